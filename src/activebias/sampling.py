"""The torch sampler that yields the items of an epoch in the method's order, on every rank its part."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sized
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from torch.utils.data import Dataset, DistributedSampler

from activebias import checks
from activebias.methods import Method
from activebias.order import EpochOrder, Plan

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias


def num_items_of(method: Method, num_instances: int, dataset: Sized | None, num_sequences: int | None) -> int:
    """Return how many items a sampler orders: the instances, or the sentences of their words."""
    num_items = num_instances
    if num_sequences is not None:
        if method.order != "scan":
            raise ValueError(
                f"Method {method.name!r} draws single instances, but the words of a sentence, or the labels "
                "of an example, train together: use scan, wd, we, wpv, wtc or auto."
            )
        num_items = checks.integer("num_sequences", num_sequences, at_least=1)
    if dataset is not None and len(dataset) != num_items:
        raise ValueError(
            f"The data set has {len(dataset)} samples, but the bias was made for {num_items}: "
            "`num_instances` must be the length of the data set (in tagging, `num_sequences`)."
        )
    return num_items


# The modules of Lightning's Trainer, under both names of the package, that tell a sampler the epoch.
LIGHTNING_LOOPS = ("lightning.pytorch.loops.fit_loop", "pytorch_lightning.loops.fit_loop")


class EmphasisSampler(DistributedSampler[int]):
    """Yields the indices of an epoch in the order that the method asks for; made by `bias.sampler(…)`.

    With `num_workers=0` batch k is drawn from the distribution as it stands after batch k-1. A DataLoader
    with workers asks for `num_workers × prefetch_factor` batches ahead, so its draws lag by that many
    batches: that is the price of prefetching; weights are never late. Persistent workers are fine: the
    sampler lives in the main process.

    It is a `DistributedSampler`, the type that trainers leave alone: each rank takes its own part of every
    global batch, from one draw that is the same on all ranks.

    An iterator begins where training stands. After a resume, or a `break`, only the batches that were not
    trained on come; a step that was left before its end comes again as a whole. An iterator that only looks
    (`list(loader)`) changes nothing.
    """

    def __init__(
        self, plan: Plan, order: EpochOrder, *, set_epoch: Callable[[int], None], num_ranks: Callable[[], int]
    ) -> None:
        """Use `ActiveBias.sampler`, which checks the arguments."""
        items = cast(Dataset[int], range(plan.num_items))  # the base class asks for no more than its length
        replicas, rank = (plan.num_ranks, plan.rank) if plan.sharded_here else (1, 0)
        super().__init__(items, num_replicas=replicas, rank=rank, seed=order.seed)
        self.plan = plan
        self.order = order
        self._set_epoch, self._num_ranks = set_epoch, num_ranks
        self.has_callback = False  # whether a callback keeps the bias in Lightning's checkpoints

    @property
    def batch_size(self) -> int:
        """The items of one optimiser step on this rank."""
        return self.plan.batch_size

    @property
    def num_items(self) -> int:
        """The items of an epoch, over all ranks."""
        return self.plan.num_items

    @property
    def num_remaining(self) -> int:
        """How many items of the epoch, over all ranks, have not been trained on yet."""
        return self.num_items - self.order.position

    def __len__(self) -> int:
        """Return how many indices this sampler yields in a whole epoch."""
        if not self.plan.sharded_here:
            return self.num_items
        full, rest = divmod(self.num_items, self.plan.step_size)
        return full * self.batch_size + -(-rest // self.plan.num_ranks)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indices of the rest of the epoch, drawn step by step."""
        return chain.from_iterable(self._steps())

    def _steps(self) -> Iterator[list[int]]:
        num_ranks = self._num_ranks()
        if num_ranks not in (1, self.plan.num_ranks):
            raise RuntimeError(
                f"The sampler was made for {self.plan.num_ranks} rank(s), but {num_ranks} train, and would "
                "all train on the same batches: make it after `torch.distributed.init_process_group`. Where "
                "something else deals the batches out to the ranks (Accelerate), pass `shard=False`."
            )
        yield from self.order.hand_out(self.plan)

    def belongs_to(self, bias: object) -> bool:
        """Return whether `bias` made this sampler."""
        return bool(self._set_epoch == getattr(bias, "set_epoch", None))

    def set_epoch(self, epoch: int) -> None:
        """Forward to the bias; trainers call this by themselves."""
        if not self.has_callback and self._is_called_by_lightning():
            self.has_callback = True  # told once
            warnings.warn(
                "Lightning's Trainer trains with a bias, but has no callback for it: its checkpoints would "
                "not hold the bias, and a resumed run would begin with an empty history. Pass "
                "`callbacks=[ActiveBiasCallback(bias)]`, from activebias.integrations.lightning.",
                stacklevel=2,
            )
        self._set_epoch(epoch)

    @staticmethod
    def _is_called_by_lightning() -> bool:
        # Of the frames above this one and `set_epoch`, the first is Lightning's helper, the second its loop.
        frame = sys._getframe(2)
        callers = (frame, frame.f_back)
        return any(each is not None and each.f_globals.get("__name__") in LIGHTNING_LOOPS for each in callers)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: where the epoch stands is part of the bias's own state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take nothing over: the bias's own state says where to go on."""


def make_sampler(
    bias: "ActiveBias",
    batch_size: int,
    dataset: Sized | None,
    num_sequences: int | None,
    num_replicas: int | None,
    rank: int | None,
    shard: bool,
) -> EmphasisSampler:
    """Return the sampler of `ActiveBias.sampler`, and let the bias go by its plan."""
    sentences = num_sequences is not None and not bias.multi_label
    if bias.multi_label:
        num_sequences = bias.num_instances // bias.num_classes
    num_ranks = checks.integer(
        "num_replicas", bias._ranks.number() if num_replicas is None else num_replicas, at_least=1
    )
    rank = checks.integer("rank", bias._ranks.rank() if rank is None else rank, at_least=0)
    if rank >= num_ranks:
        raise ValueError(f"Expected `rank` to be below `num_replicas`, {num_ranks}, but got {rank}.")
    plan = Plan(
        num_items=num_items_of(bias.method, bias.num_instances, dataset, num_sequences),
        batch_size=checks.integer("batch_size", batch_size, at_least=1),
        num_ranks=num_ranks,
        rank=rank,
        sentences=sentences,
        sharded_here=shard,
    )
    sampler = EmphasisSampler(plan, bias._order, set_epoch=bias.set_epoch, num_ranks=bias._ranks.number)
    bias._order.resize(plan.num_items)
    bias._plan = plan
    if bias.epoch is not None:
        bias._prepare_epoch()  # on a GPU, for steps of this size
    return sampler
