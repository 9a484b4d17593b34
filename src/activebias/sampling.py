"""The torch sampler that yields the instances of an epoch in the method's order, on every rank its part."""

from collections.abc import Iterator, Sized
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils.data import Dataset, DistributedSampler

from activebias import checks

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias


def num_items_of(bias: "ActiveBias", dataset: Sized | None, num_sequences: int | None) -> int:
    """Return how many items the sampler of `bias` orders: its instances, or the sentences of their words."""
    num_items = bias.num_instances
    if num_sequences is not None:
        if bias.method.order != "scan":
            raise ValueError(
                f"Method {bias.method.name!r} draws single instances, but the words of a sentence train "
                "together: use scan, wd, we, wpv or wtc."
            )
        num_items = checks.integer("num_sequences", num_sequences, at_least=1)
    if dataset is not None and len(dataset) != num_items:
        raise ValueError(
            f"The data set has {len(dataset)} samples, but the bias was made for {num_items}: "
            "`num_instances` must be the length of the data set (in tagging, `num_sequences`)."
        )
    return num_items


class EmphasisSampler(DistributedSampler[int]):
    """Yields the indices of an epoch in the order that the method asks for; made by `bias.sampler(…)`.

    With `num_workers=0` batch k is drawn from the distribution as it stands after batch k-1. A DataLoader
    with workers asks for `num_workers × prefetch_factor` batches ahead, so its draws lag by that many
    batches: that is the price of prefetching; weights are never late. Persistent workers are fine: the
    sampler lives in the main process.

    It is a `DistributedSampler`, the type that trainers leave alone: each rank takes its own part of every
    global batch, from one draw that is the same on all ranks.

    An iterator begins where the recorded visits of this epoch end, and forgets those of a step that is not
    complete (gradient accumulation). After a resume, or a `break`, only the batches that were not trained on
    come. That is counted, so the loader must keep the order: `in_order=True`, as it does by itself.
    """

    def __init__(
        self, bias: "ActiveBias", *, batch_size: int, num_items: int, num_replicas: int, rank: int
    ) -> None:
        """Use `ActiveBias.sampler`, which checks the arguments."""
        items = cast(Dataset[int], range(num_items))  # the base class asks for no more than its length
        super().__init__(items, num_replicas=num_replicas, rank=rank, seed=bias.seed)
        self.bias = bias
        self.batch_size = batch_size
        self.num_items = num_items

    @property
    def global_batch_size(self) -> int:
        """The instances of one step over all ranks."""
        return self.batch_size * self.num_replicas

    @property
    def num_remaining(self) -> int:
        """How many indices of the epoch, over all ranks, have not been trained on yet."""
        return self.num_items - self.bias._order.position

    def __len__(self) -> int:
        """Return how many indices this rank gets in a whole epoch."""
        full, rest = divmod(self.num_items, self.global_batch_size)
        return full * self.batch_size + -(-rest // self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indices of the rest of the epoch, drawn batch by batch."""
        self.bias._step.drop()
        batches = self.bias._order.batches(self.global_batch_size)
        # Not a generator: an index then costs no Python frame.
        return chain.from_iterable(self._share(batch).tolist() for batch in batches)

    def _share(self, batch: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of a global batch; the last one is padded with its own first entries.

        The padding stands at the end of the last ranks' parts, where `ActiveBias` knows to find it.
        """
        if self.num_replicas == 1:
            return batch
        share = -(-batch.numel() // self.num_replicas)
        position = torch.arange(self.rank * share, (self.rank + 1) * share, device="cpu")
        return batch[position % batch.numel()]

    def set_epoch(self, epoch: int) -> None:
        """Forward to the bias; trainers call this by themselves."""
        self.bias.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: where the epoch stands is part of the bias's own state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take nothing over: the bias's own state says where to go on."""
