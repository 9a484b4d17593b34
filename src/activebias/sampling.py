"""The torch sampler that yields the items of an epoch in the method's order, and the DataLoader around it."""

import sys
import warnings
from collections.abc import Iterator, Sized
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from torch.utils.data import DataLoader, Dataset, DistributedSampler

from activebias import checks
from activebias.indexing import IndexedDataset, collate_with_index, with_index
from activebias.order import Plan

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias


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
    (`list(loader)`) changes nothing. The length is that of a whole epoch.
    """

    def __init__(self, bias: "ActiveBias", plan: Plan) -> None:
        """Use `ActiveBias.sampler`, which checks the arguments."""
        items = cast(Dataset[int], range(plan.num_items))  # the base class asks for no more than its length
        replicas, rank = (plan.num_ranks, plan.rank) if plan.sharded_here else (1, 0)
        super().__init__(items, num_replicas=replicas, rank=rank, seed=bias.seed)
        self.bias, self.plan, self.order = bias, plan, bias._order

    @property
    def batch_size(self) -> int:
        """The items of one optimiser step on this rank."""
        return self.plan.batch_size

    @property
    def num_remaining(self) -> int:
        """How many items of the epoch, over all ranks, have not been trained on yet."""
        return self.plan.num_items - self.order.position

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indices of the rest of the epoch, drawn step by step."""
        return chain.from_iterable(self._steps())

    def _steps(self) -> Iterator[list[int]]:
        num_ranks = self.bias._ranks.number()
        if num_ranks not in (1, self.plan.num_ranks):
            raise RuntimeError(
                f"The sampler was made for {self.plan.num_ranks} rank(s), but {num_ranks} train, and would "
                "all train on the same batches: make it after `torch.distributed.init_process_group`. Where "
                "something else deals the batches out to the ranks (Accelerate), pass `shard=False`."
            )
        yield from self.order.hand_out(self.plan)

    def set_epoch(self, epoch: int) -> None:
        """Forward to the bias; trainers call this by themselves."""
        helper = sys._getframe(1)  # Lightning's loop calls through one
        names = [frame.f_globals.get("__name__") for frame in (helper, helper.f_back) if frame is not None]
        if not self.order.has_callback and any(name in LIGHTNING_LOOPS for name in names):
            self.order.has_callback = True  # told once
            warnings.warn(
                "Lightning's Trainer trains with a bias, but has no callback for it: its checkpoints would "
                "not hold the bias, and a resumed run would begin with an empty history. Pass "
                "`callbacks=[ActiveBiasCallback(bias)]`, from activebias.integrations.lightning.",
                stacklevel=2,
            )
        resumes = self.order.position > 0 and not self.order.recorded
        if resumes and self.order.epoch is not None and epoch < self.order.epoch:
            raise RuntimeError(
                f"The state that was loaded stands in epoch {self.order.epoch}, but the loader begins epoch "
                f"{epoch}, because it counts the epochs by itself: with Accelerate call "
                "`loader.set_epoch(epoch)`; with Fabric iterate over the DataLoader itself, without "
                f"`setup_dataloaders`. To begin anew with this history, call `bias.set_epoch({epoch})` first."
            )
        self.bias.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the position in the epoch is part of the bias's own state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load nothing: the bias's own state has the position in the epoch."""


def make_sampler(
    bias: "ActiveBias",
    *,
    batch_size: int,
    dataset: Sized | None = None,
    num_sequences: int | None = None,
    num_replicas: int | None = None,
    rank: int | None = None,
    shard: bool = True,
) -> EmphasisSampler:
    """Return a torch sampler of this bias, for a DataLoader.

    Args:
        bias: it follows the plan of its latest sampler.
        batch_size: the instances of one optimiser step on this rank, accumulated ones included; the
            DataLoader's batch size must divide it. Draws, and updates of the scores, come in batches of
            this size. A last step that `drop_last` leaves incomplete is counted in by the next `set_epoch`:
            call it after the last epoch too.
        dataset: if given, its length is checked against `num_instances`.
        num_sequences: in tagging, the number of sentences: the sampler then orders sentences.
        num_replicas, rank: default to torch.distributed's, which must be set up before.
        shard: False where something else (Hugging Face's Accelerate) deals the sampler's batches out to the
            ranks.
    """
    num_items = bias.num_instances // (bias.num_classes if bias.multi_label else 1)
    sentences = num_sequences is not None and not bias.multi_label
    if (sentences or bias.multi_label) and bias.method.order != "scan":
        raise ValueError(
            f"Method {bias.method.name!r} draws single instances, but the words of a sentence, or the labels "
            "of an example, train together: use scan, wd, we, wpv, wtc or auto."
        )
    if sentences:
        num_items = checks.integer("num_sequences", num_sequences, at_least=1)
    if dataset is not None and len(dataset) != num_items:
        raise ValueError(
            f"The data set has {len(dataset)} samples, but the bias was made for {num_items}: "
            "`num_instances` must be the length of the data set (in tagging, `num_sequences`)."
        )
    num_ranks = bias._ranks.number() if num_replicas is None else num_replicas
    num_ranks = checks.integer("num_replicas", num_ranks, at_least=1)
    rank = checks.integer("rank", bias._ranks.rank() if rank is None else rank, at_least=0)
    if rank >= num_ranks:
        raise ValueError(f"Expected `rank` to be below `num_replicas`, {num_ranks}, but got {rank}.")
    batch_size = checks.integer("batch_size", batch_size, at_least=1)
    plan = Plan(num_items, batch_size, num_ranks, rank, sentences, sharded_here=shard)
    bias._order.resize(num_items)
    bias._plan = plan
    if bias.epoch is not None:
        bias._prepare_epoch()  # on a GPU, for steps of this size
    return EmphasisSampler(bias, plan)


def make_loader(
    bias: "ActiveBias",
    dataset: Any,
    batch_size: int,
    *,
    accumulate: int = 1,
    num_sequences: int | None = None,
    **options: Any,
) -> DataLoader[Any]:
    """Return a DataLoader of `(index, sample)` batches in the order of the method.

    `accumulate` says how many batches an optimiser step takes, `num_sequences` in tagging how many sentences
    there are. All other options go to torch's DataLoader. A `collate_fn` sees the samples, not their index.
    """
    batch_size = checks.integer("batch_size", batch_size, at_least=1)
    accumulate = checks.integer("accumulate", accumulate, at_least=1)
    for name in ("sampler", "batch_sampler", "shuffle"):
        given = options.pop(name, None)
        if given is not None and given is not False:
            raise TypeError(
                f"`{name}` is the bias's own in `bias.loader`, which orders the instances as method "
                f"{bias.method.name!r} asks for: leave it out."
            )
    indexed = dataset if isinstance(dataset, IndexedDataset) else with_index(dataset)
    sampler = bias.sampler(batch_size=batch_size * accumulate, dataset=indexed, num_sequences=num_sequences)
    if options.get("drop_last"):
        sampler.plan = bias._plan = replace(sampler.plan, smallest=batch_size)
    collate = collate_with_index(options.pop("collate_fn", None))
    return DataLoader(indexed, batch_size=batch_size, sampler=sampler, collate_fn=collate, **options)
