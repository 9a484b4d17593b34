"""The order of one epoch: the items that are handed out, the batches that come back, and where to go on.

An item is an instance or, in tagging, a sentence. A sampler hands the items out step by step. A batch that is
trained on comes back with its index, and is compared with the items handed out. So the order knows which
entries are padding, when a step is complete, and that nobody trains on anything else.
"""

import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

from activebias import checks
from activebias.checksum import Checksum
from activebias.epoch_items import Draw, EpochItems
from activebias.places import Place, Step

# Iterations of one epoch that are remembered when their iterators are gone.
MOST_RECENT = 8

ADVICE = (
    "An instance is its position in the data set that the loader reads, so wrap the outermost one: "
    "`with_index(ConcatDataset(…))`, `with_index(Subset(…))`. Pass every batch's own index to the bias, "
    "once, and keep the loader's order (`in_order=True`)."
)


@dataclass(frozen=True)
class Plan:
    """How the steps of an epoch are dealt out to the ranks: shared by a sampler and the batches it hands out.

    Attributes:
        num_items: the items of an epoch, over all ranks.
        batch_size: the items of one optimiser step on this rank.
        num_ranks, rank: the ranks that train together, and which of them this process is.
        sentences: whether an item is a sentence, whose words are the instances.
        sharded_here: whether the sampler yields this rank's part of every step. Otherwise it yields whole
            steps, and somebody else (Accelerate) deals their batches out to the ranks, in turn.
        smallest: the loader drops a last batch with fewer items (`drop_last`).
    """

    num_items: int
    batch_size: int
    num_ranks: int = 1
    rank: int = 0
    sentences: bool = False
    sharded_here: bool = True
    smallest: int = 1

    @property
    def step_size(self) -> int:
        """The items of one step over all ranks."""
        return self.batch_size * self.num_ranks

    def yielded(self, items: np.ndarray) -> np.ndarray:
        """Return the entries of a step that the sampler yields; missing ones are the step's first again."""
        if self.num_ranks == 1 or not self.sharded_here:
            return items
        share = -(-len(items) // self.num_ranks)
        return items[np.arange(self.rank * share, (self.rank + 1) * share) % len(items)]

    def share(self, num_items: int, size: int) -> int:
        """Return how many entries of a step of `num_items` come back here, `size` at a time, with padding."""
        if self.sharded_here:
            return -(-num_items // self.num_ranks)
        # Whole batches are dealt out in turn, and the last round is padded. An empty batch completes nothing.
        size = max(size, 1)
        num_rounds = -(-num_items // (size * self.num_ranks))
        return min(self.batch_size, num_rounds * size)

    def real(self, items: np.ndarray, come: int, size: int) -> np.ndarray:
        """Return the items among the `size` entries that follow the first `come`; the others are padding."""
        if self.sharded_here:
            share = self.share(len(items), size)
            return items[self.rank * share + come : self.rank * share + min(come + size, share)]
        first = come * self.num_ranks + self.rank * size
        return items[first : first + size]


class Handout:
    """One iteration over the rest of an epoch. An iteration that nobody trains on leaves no trace."""

    def __init__(self, order: "EpochOrder", plan: Plan, generator: torch.Generator | None) -> None:
        """Begin where training stands; `generator` is this iteration's own."""
        self.plan = plan
        self.generator = generator
        self.start = self.position = order.position
        self.steps: deque[Step] = deque()  # handed out, and not yet trained on
        self.come = 0  # entries of the first of these steps that came back
        self.is_closed = False  # whether its iterator was left before the end
        self._order, self._items = order, order.items

    def __iter__(self) -> Iterator[list[int]]:
        """Hand out step after step: the entries that the sampler yields here."""
        while (size := min(self.plan.step_size, self.plan.num_items - self.position)) > 0:
            if self._order.items is not self._items:
                raise RuntimeError(
                    "An epoch was begun or a state loaded in the middle of this iteration: call "
                    "`bias.set_epoch` before the loop over the loader, and begin a new loop after `load`."
                )
            step = Step(self.position, self._items.at(self.position, size, self.generator))
            self.steps.append(step)
            self.position += size
            self._order.active = self
            try:
                yield self.plan.yielded(step.items).tolist()
            except GeneratorExit:  # the sampler's iterator dies
                self.is_closed = True
                raise

    def find(self, index: np.ndarray | None, size: int) -> Place | None:
        """Return where a batch of `size` stands, None if nowhere; without an index it is the next one.

        The caller may have skipped batches before it.
        """
        while self.steps and self.steps[0].position < self._order.position:  # trained on by another iteration
            self.steps.popleft()
            self.come = 0
        come = self.come
        for skipped, step in enumerate(self.steps):
            number = len(step.items)
            share = self.plan.share(number, size)
            while come + size <= share:
                expected = real = self.plan.real(step.items, come, size)
                if len(real) < size and self.plan.sharded_here:
                    expected = self.plan.yielded(step.items)[come : come + size]  # with the padding
                if index is None or (index[: len(expected)] == expected).all():
                    completes, unfinished = come + size >= share, skipped > 0 and self.come > 0
                    padded = share * self.plan.num_ranks
                    scale = padded / number if padded > number else None
                    skips = (skipped, come - (0 if skipped else self.come))
                    return Place(self, skips, step, come, len(real), completes, scale, unfinished)
                come += max(size, 1)
            come = 0
        return None


class EpochOrder:
    """The order of the items of the current epoch, on every rank the same.

    `position` counts the items of the steps that were trained on: there a new iteration begins. Draws that
    were handed out and not yet trained on are part of the state, so that a resumed run trains on them.
    """

    def __init__(self, num_items: int, *, seed: int, draw: Draw | None) -> None:
        """Use `draw(number, generator)` to draw with replacement; None for a permutation."""
        self.num_items = num_items
        self.seed = seed
        self.epoch: int | None = None
        self._draw = draw
        self._has_warned = False
        self.has_callback = False  # whether a callback keeps the bias in Lightning's checkpoints
        self._begin()

    def _begin(self) -> None:
        self.items = EpochItems(self.num_items, seed=self.seed, epoch=self.epoch or 0, draw=self._draw)
        self.position = 0
        self.recorded = False  # whether somebody trained in this epoch
        # Iterations that somebody goes on with, and the latest ones: their batches may still come back.
        self._alive: WeakSet[Handout] = WeakSet()
        self._recent: deque[Handout] = deque(maxlen=MOST_RECENT)
        self._leader: Handout | None = None  # the iteration that was trained on last
        self.active: Handout | None = None  # the iteration that handed out last
        self._come = 0  # items of a step in the user's own order
        self._num_trained = self._num_skipped = 0  # steps
        self._checksum = Checksum()

    def begin(self, epoch: int) -> None:
        """Begin `epoch`, in a new permutation or with new draws."""
        self.epoch = epoch
        self._begin()

    def end(self, method: str, *, by_order: bool) -> None:
        """Warn, once, of an epoch that was trained in another order than the one handed out."""
        if self._has_warned or not self.recorded:
            return
        message = None
        if by_order and not self._recent:
            message = (
                f"Method {method!r} emphasises by the order of the instances, but nobody asked for that "
                f"order in epoch {self.epoch}: give the DataLoader `sampler=bias.sampler(…)`. If you draw "
                "from `bias.probabilities()` yourself, ignore this warning."
            )
        elif 2 * self._num_skipped >= max(self._num_trained, 2):
            message = (
                f"Of the steps handed out in epoch {self.epoch}, {self._num_trained} came back whole, and "
                f"{self._num_skipped} in part or not at all. Where something else deals the batches out to "
                "the ranks (Accelerate), pass `shard=False` to `bias.sampler`. If you leave out instances on "
                "purpose, ignore this warning."
            )
        elif not self._checksum.agrees():
            message = (
                f"In epoch {self.epoch} the indices that came back on the GPU were not those handed out, or "
                f"a batch was skipped. {ADVICE} An index on the CPU is checked batch by batch."
            )
        if message is not None:
            self._has_warned = True
            warnings.warn(message, stacklevel=3)

    def resize(self, num_items: int) -> None:
        """Order another number of items: the sentences of a tagging task, whose words are the instances."""
        if num_items == self.num_items:
            return
        if self.position:
            raise ValueError(
                f"The epoch under way orders {self.num_items} items, but the sampler is to order "
                f"{num_items}: pass the same `num_sequences` as before, or begin another epoch first."
            )
        self.num_items = num_items
        self._begin()

    def hand_out(self, plan: Plan) -> Handout:
        """Begin an iteration over the rest of the epoch."""
        if self.epoch is None:
            raise RuntimeError(
                "The order needs to know the epoch: call `bias.set_epoch(epoch)` before iterating."
            )
        if plan.num_items != self.num_items:
            raise RuntimeError(
                f"This sampler orders {plan.num_items} items, but a later one {self.num_items}: use that one."
            )
        left = self.num_items - self.position
        # A last short step may have been fetched but not trained on. Asking for it twice in vain shows that
        # nobody will train on it (`drop_last` in a loader that is not `bias.loader`).
        rest = (self.position, self.num_items)
        fetched = any((each.start, each.position) == rest for each in self._recent)
        dropped = plan.share(left, plan.smallest) < plan.smallest
        if self.recorded and (dropped or (left < plan.step_size and fetched)):
            raise RuntimeError(
                f"Epoch {self.epoch} is over: call `bias.set_epoch({self.epoch + 1})` before the next one. A "
                "pass that does not train, such as the training accuracy, needs a loader of its own, without "
                "the bias's sampler."
            )
        if self.recorded and left < plan.step_size and any(each.position == rest[1] for each in self._recent):
            warnings.warn(
                f"Epoch {self.epoch} was handed out to its end, and this pass has only the {left} of "
                f"{self.num_items} items that were not trained on. If the loader drops a last short batch "
                f"(`drop_last`), the pass is empty: call `bias.set_epoch({self.epoch + 1})` before the next "
                "epoch, and give a pass that does not train a loader of its own, without the bias's sampler.",
                stacklevel=4,
            )
        handout = Handout(self, plan, self.items.generator_at(self.position))
        self._alive.add(handout)
        self._recent.append(handout)
        return handout

    def find(self, index: np.ndarray | None, size: int, *, strict: bool = True) -> Place | None:
        """Return where a batch stands, None where nothing was handed out: its order is the user's own.

        Several iterations may have handed out the same batch: the one that skips least is meant, of equal
        ones the one trained on last, then the one that has not gone ahead. A batch without an index belongs
        to the iteration that handed out last; in the middle of a step, to the one trained on last, unless
        its iterator was left. `strict` refuses a batch that was not handed out.
        """
        leader = self._leader
        if index is None:
            in_step = leader is not None and leader.come > 0 and not leader.is_closed
            handouts = [each for each in (leader if in_step else self.active,) if each is not None]
        elif leader is not None and (place := leader.find(index, size)) and place.skips == (0, 0):
            return place  # nothing skips less, and searching all iterations takes long
        else:
            handouts = list(dict.fromkeys((*self._recent, *self._alive)))
        found = [(place, each) for each in handouts if (place := each.find(index, size)) is not None]
        if found:
            place, handout = min(
                found, key=lambda pair: (pair[0].skips, pair[1] is not leader, pair[1].position)
            )
            return place._replace(restarts=handout is not leader)
        if strict and handouts:
            raise ValueError(self._stranger(leader or handouts[-1], index, size))
        return None

    def _stranger(self, handout: Handout, index: np.ndarray | None, size: int) -> str:
        batch_size = handout.plan.batch_size
        if size > batch_size or index is None or (handout.come and batch_size % size):
            return (
                f"A batch of {size} came back, but `bias.sampler(batch_size={batch_size})` hands out steps "
                f"of {batch_size}: pass the number of instances that this rank trains on per optimiser step. "
                "The loader's batch size must divide it."
            )
        came = f"The index {index[:5].tolist()} … came back, but"
        if not handout.steps:
            return (
                f"{came} every batch handed out has come back already, or another loop over the epoch went "
                "past it: train in one loop at a time, and pass every batch to the bias once. To evaluate, "
                "use torch's own loss."
            )
        return f"{came} {handout.steps[0].items[:5].tolist()} … was handed out. {ADVICE}"

    def take_back(self, index: torch.Tensor, host_index: np.ndarray | None, plan: Plan | None) -> Place:
        """Count a batch as trained on. Where nothing was handed out, `plan` says how large a step is.

        `host_index` is the index, None where it cannot be compared: on a GPU, or of words.
        """
        words, size = index.ndim > 1, len(index)
        if plan is not None and plan.sentences and not words:
            raise ValueError(
                "The sampler was made with `num_sequences`, so `index` must have the shape (sentences, "
                f"words), but got {tuple(index.shape)}."
            )
        place = self.find(host_index, size)
        self.recorded = True
        if place is None or place.handout is None:
            come = self._come + size
            completes = plan is None or come >= plan.batch_size
            self._come = 0 if completes else come
            return Place(None, (0, 0), Step(self.position, np.empty(0)), come, size, completes, None, False)
        self._leader = handout = place.handout
        for _ in range(place.skips[0] + place.completes):
            handout.steps.popleft()
        self._num_skipped += place.skips[0]
        self._num_trained += place.completes
        handout.come = 0 if place.completes else place.come + size
        if place.completes:
            self.position = place.step.position + len(place.step.items)
        if host_index is None and not words:
            self._checksum.add(index, handout.plan.real(place.step.items, place.come, size))
        return place

    def undo(self, place: Place) -> None:
        """Count a step as not trained on: its visits could not be taken in."""
        self.position = place.step.position
        if place.handout is not None:
            place.handout.come = 0 if place.completes else place.come
            if place.completes:
                place.handout.steps.appendleft(place.step)

    def __getstate__(self) -> dict[str, Any]:
        """Leave iterations out of a copy: it goes on where training stands."""
        kept = {name: vars(self)[name] for name in ("seed", "has_callback", "_draw", "_has_warned")}
        return {"kept": kept, "where": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on where the original stood."""
        vars(self).update(state["kept"])
        self.load_state_dict(state["where"])

    def state_dict(self) -> dict[str, Any]:
        """Return where the epoch stands."""
        pending, generator_state = self.items.pending(self.position)
        if self._leader is not None and self._leader.generator is not None:
            steps = [step.items for step in self._leader.steps]
            pending = np.concatenate([np.empty(0, dtype=np.int64), *steps])
            generator_state = self._leader.generator.get_state()
        return {
            "epoch": self.epoch,
            "num_items": self.num_items,
            "position": self.position,
            "come": self._come,
            "pending": torch.from_numpy(pending.copy()),
            "generator": generator_state,
        }

    def check_state(self, state: dict[str, Any], plan: Plan | None) -> None:
        """Raise if `state` does not fit, or its order not the plan of the sampler."""
        if state["epoch"] is not None:
            checks.integer("epoch", state["epoch"], at_least=0)
        num_items = checks.integer("num_items", state["num_items"], at_least=1)
        if plan is not None and plan.num_items != num_items:
            raise ValueError(f"it orders {num_items} items, but the sampler {plan.num_items}")
        position = checks.integer("position", state["position"], at_least=0)
        if position > num_items:
            raise ValueError(
                f"The stored `position` is {position}, beyond the {num_items} items of an epoch."
            )
        checks.integer("come", state["come"], at_least=0)
        pending = state["pending"]
        checks.stored("pending", pending, (len(pending),), torch.int64)
        if len(pending) > num_items - position:
            raise ValueError(f"The state has {len(pending)} draws for {num_items - position} items.")
        checks.index_range(pending, num_items)
        torch.Generator("cpu").set_state(state["generator"])  # raises if it is none

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        self.epoch, self.num_items = state["epoch"], state["num_items"]
        self._begin()
        self.position, self._come = state["position"], state["come"]
        # A scan's permutation comes again from the epoch's seed; draws depend on the draws before them.
        self.items.go_on(self.position, state["pending"].numpy(), state["generator"])
