"""One optimiser step: the visits that belong to it, on this rank and on the others.

A step's visits are counted in together, when the last one has come: Algorithm 1 computes the weights of a
batch from what was known before it. The visits may come in parts (gradient accumulation) and lie on several
ranks, whose last batch of an epoch is filled up so that all ranks have the same number of batches.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from activebias.distributed import exchange, ranks
from activebias.memory import Visited
from activebias.order import EpochOrder
from activebias.sampling import EmphasisSampler


class Step:
    """Collects the visits of a step, and knows which of them are only filling."""

    def __init__(self, order: EpochOrder, *, num_instances: int, group: dist.ProcessGroup | None) -> None:
        """Follow `order`; `group` holds the ranks that train together."""
        self.sampler: EmphasisSampler | None = None
        self._order = order
        self._num_instances = num_instances
        self._group = group
        self._visits: list[Visited] = []
        self._num_items = 0  # instances, or sentences, that the visits come from
        self._words = False  # whether the visits are words of sentences

    @property
    def num_ranks(self) -> int:
        """The number of ranks that train together and tell each other what they saw."""
        return ranks(self._group)[1]

    def _parts(self) -> tuple[int, int]:
        """Return which part of a step this process has, and how many parts there are."""
        rank, num_ranks = ranks(self._group)
        if num_ranks == 1 and self.sampler is not None:
            return self.sampler.rank, self.sampler.num_replicas
        return rank, num_ranks

    def _remaining(self) -> int:
        return self._order.num_items - self._order.position

    def _sharded_elsewhere(self) -> bool:
        """Return whether somebody else (Accelerate) deals the sampler's batches out to the ranks."""
        return self.sampler is not None and self.num_ranks > self.sampler.num_replicas

    def _share(self, num_items: int) -> int:
        """Return how many items of this step are this rank's, where `num_items` of them come at a time.

        0 without a sampler: nobody has said.
        """
        if self.sampler is None:
            return 0
        if self._sharded_elsewhere():
            # Whole batches are dealt out in turn, and the last round is filled up.
            num_rounds = -(-self._remaining() // (max(num_items, 1) * self.num_ranks))
            return min(self.sampler.batch_size, num_rounds * num_items)
        return min(self.sampler.batch_size, -(-self._remaining() // self._parts()[1]))

    def num_real(self, num_items: int) -> int | None:
        """Return how many of the next `num_items` are no filling; None if the step has no filling at all.

        The filling stands at the end: of the last ranks' parts or, sharded elsewhere, of the last round.
        """
        part, num_parts = self._parts()
        if num_parts == 1 or (share := self._share(num_items)) * num_parts <= self._remaining():
            return None
        if self._sharded_elsewhere():
            before = self._num_items * num_parts + part * num_items
        else:
            before = part * share + self._num_items
        return min(max(self._remaining() - before, 0), num_items)

    def filling_scale(self, num_items: int) -> float:
        """Return by how much more the real instances weigh in a mean that counts the filling too."""
        return self._share(num_items) * self._parts()[1] / max(self._remaining(), 1)

    def check(self, index: torch.Tensor) -> None:
        """Refuse words without their sentences: the order counts sentences."""
        if index.dim() == 1 and self.sampler is not None and self.sampler.num_items != self._num_instances:
            raise ValueError(
                "The sampler was made with `num_sequences`, so `index` must have the shape (sentences, "
                f"words), but got {tuple(index.shape)}."
            )

    def mask(self, index: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
        """Return which entries of a batch count: what `mask` says, without the filling."""
        num_real = self.num_real(index.shape[0])
        if num_real is None:
            return mask
        real = torch.arange(index.shape[0], device=index.device) < num_real
        real = real.view(-1, *[1] * (index.dim() - 1)).expand(index.shape)
        return real if mask is None else mask & real

    def mean(self, loss: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return the mean loss over what counts; of words, over those of all ranks."""
        together = self.num_ranks > 1 and loss.dim() > 1
        if mask is None and not together:
            return loss.mean()
        # Where nothing is left out there is no mask, but the other ranks may have one: all must add up.
        count = loss.new_full((), loss.numel()) if mask is None else mask.sum().to(loss)
        if not together:
            return loss.sum() / count.clamp(min=1)
        # DistributedDataParallel divides the sum of the gradients by the number of ranks.
        dist.all_reduce(count, group=self._group)
        return loss.sum() * self.num_ranks / count.clamp(min=1)

    def is_whole(self, shape: torch.Size) -> bool:
        """Return whether a batch of that shape is a whole step, with nothing before it and no other rank."""
        return not self._visits and self.num_ranks == 1 and shape[0] >= self._share(shape[0])

    def is_plain(self, shape: torch.Size) -> bool:
        """Return whether a batch (B,) of that shape is a whole step of instances, without filling."""
        counts_instances = self.sampler is None or self.sampler.num_items == self._num_instances
        return counts_instances and self._parts()[1] == 1 and self.is_whole(shape)

    def advance(self, num_items: int) -> None:
        """Count a whole step as trained on."""
        if self.sampler is not None:
            self._order.advance(num_items * self._parts()[1])

    def add(self, index: torch.Tensor, prob: torch.Tensor, shape: torch.Size) -> bool:
        """Add the visits of a batch of that shape; return whether the step is complete."""
        self._visits.append((index, prob))
        self._num_items += shape[0]
        self._words = len(shape) > 1
        return self._num_items >= self._share(shape[0])

    def finish(self, append: Callable[[Visited], None]) -> None:
        """Hand the visits of all ranks to `append`, and begin the next step.

        Where it raises (a statistic of the user's), the visits are dropped and do not count as trained on.
        """
        if not self._visits:
            return
        visits = self._joined()
        if self.num_ranks > 1:
            visits = self._from_all_ranks(*visits)
        num_items = self._num_items
        self.drop()
        append(visits)
        self.advance(num_items)

    def _joined(self) -> Visited:
        indices, probs = zip(*self._visits, strict=True)
        index, prob = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in (indices, probs))
        return index, prob

    def _from_all_ranks(self, index: torch.Tensor, prob: torch.Tensor) -> Visited:
        size = None if self.sampler is None or self._words else self.sampler.batch_size
        if size is not None and index.numel() > size:
            raise ValueError(
                f"{index.numel()} visits came in one step, but `bias.sampler(batch_size={size})` was told "
                f"{size}: pass the number of instances that this rank trains on per optimiser step."
            )
        index, prob = exchange(index, prob, size=size, group=self._group)
        if index.device.type == "cpu":
            there = index >= 0
            return index[there], prob[there]
        return torch.where(index < 0, self._num_instances, index), prob

    def drop(self) -> None:
        """Forget the visits of an unfinished step: its gradients are lost, and it will come again."""
        self._visits, self._num_items = [], 0

    def state_dict(self) -> dict[str, Any] | None:
        """Return a copy of the visits that wait for the rest of their step, None if there are none.

        With `drop_last` the rest never comes, and the next epoch counts them in. They are this rank's own,
        which a state that all ranks load cannot hold.
        """
        if not self._visits or self.num_ranks > 1:
            return None
        index, prob = self._joined()
        counts = index < self._num_instances  # on a GPU what does not count waits too
        return {"index": index[counts], "prob": prob[counts], "num_items": self._num_items}

    def load_state_dict(self, state: dict[str, Any] | None, device: torch.device) -> None:
        """Take over what `state_dict` returned: a new iterator of the same epoch drops it again."""
        self.drop()
        if state is not None and self.num_ranks == 1:
            self._visits = [(state["index"].to(device), state["prob"].to(device))]
            self._num_items = state["num_items"]
