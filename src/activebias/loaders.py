"""A DataLoader whose index, order and batch sizes fit the bias by construction."""

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from activebias import checks
from activebias.indexing import IndexedDataset, collate_with_index, with_index

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias

OURS = ("sampler", "batch_sampler", "shuffle")


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
    for name in OURS:
        given = options.pop(name, None)
        if given is not None and given is not False:
            raise TypeError(
                f"`{name}` is the bias's own in `bias.loader`, which orders the instances as method "
                f"{bias.method.name!r} asks for: leave it out."
            )
    if isinstance(dataset, IterableDataset):
        raise TypeError(
            "`bias.loader` orders a map-style data set, but got a stream (IterableDataset): iterate over "
            "your own DataLoader, and let the stream bring an index with every sample (docs/streams.md)."
        )
    indexed = dataset if isinstance(dataset, IndexedDataset) else with_index(dataset)
    sampler = bias.sampler(batch_size=batch_size * accumulate, dataset=indexed, num_sequences=num_sequences)
    collate = collate_with_index(options.pop("collate_fn", None))
    return DataLoader(indexed, batch_size=batch_size, sampler=sampler, collate_fn=collate, **options)
