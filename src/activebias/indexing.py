"""Bring the instance's index into the batch, and number the words of tagging data."""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate

from activebias import checks


class IndexedDataset(Dataset[Any]):
    """A map-style data set whose samples come with their index; made by `with_index`."""

    def __init__(self, dataset: Any) -> None:
        """Wrap `dataset`, which needs a length and integer access."""
        # torch's own __getitem__, which a stream inherits, only raises.
        access = getattr(type(dataset), "__getitem__", None)
        if access in (None, Dataset.__getitem__) or not hasattr(dataset, "__len__"):
            raise TypeError(
                "with_index needs a map-style data set (one with __len__ and __getitem__), because an "
                f"instance is known by its position, but got {type(dataset).__name__}."
            )
        parts = dataset.datasets if isinstance(dataset, ConcatDataset) else [dataset]
        parts = [dataset.dataset] if isinstance(dataset, Subset) else parts
        if any(isinstance(part, IndexedDataset) for part in parts):
            raise TypeError(
                "with_index was given a data set that has an index already, or consists of such: wrap it "
                "once, the outermost one."
            )
        self.dataset = dataset

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return the sample at `index` together with its index."""
        index = self._checked(index)
        return _attach(index, self.dataset[index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return many samples at once, in one call where the data set can do that."""
        indices = [self._checked(index) for index in indices]
        fetch = getattr(self.dataset, "__getitems__", None)
        samples = fetch(indices) if fetch else [self.dataset[index] for index in indices]
        return [_attach(index, sample) for index, sample in zip(indices, samples, strict=True)]

    def _checked(self, index: int) -> int:
        index = operator.index(index)
        if not 0 <= index < len(self.dataset):
            raise IndexError(
                f"Instance {index} was asked for, but the data set has {len(self.dataset)}: "
                "`num_instances` must be the length of the data set. In tagging, pass the number of "
                "sentences to the sampler: `bias.sampler(num_sequences=…)`."
            )
        return index


def _attach(index: int, sample: Any) -> Any:
    if not isinstance(sample, dict):
        return index, sample
    if "index" in sample:
        raise ValueError(
            "The data set's samples already have a column 'index': rename it, or use it as it is."
        )
    return {**sample, "index": index}


def with_index(dataset: Any) -> IndexedDataset:
    """Wrap a data set so that every sample brings its index along.

    A sample that is a tuple, a tensor or a dataclass comes as `(index, sample)`; a dict, as Hugging Face's
    data sets give it, gets a column `index`. torch's own collation does the rest; for dataclasses, or with
    a collation of your own, pass `collate_fn=ab.collate_with_index(…)` to the DataLoader.

    >>> indexed = with_index([("a", 0), ("b", 1)])
    >>> indexed[1]
    (1, ('b', 1))
    """
    return IndexedDataset(dataset)


def collate_with_index(collate_fn: Callable[[list[Any]], Any] | None = None) -> Callable[[list[Any]], Any]:
    """Return a collation for `with_index` that leaves the samples to `collate_fn`.

    Without `collate_fn` samples are collated as torch does it, dataclasses field by field. A dict's index
    is put back into the collated batch.
    """
    return _CollateWithIndex(collate_fn or _default_collate)


@dataclasses.dataclass(frozen=True)
class _CollateWithIndex:
    """A class and not a closure, so that worker processes can receive it."""

    collate_fn: Callable[[list[Any]], Any]

    def __call__(self, batch: list[Any]) -> Any:
        if isinstance(batch[0], dict):
            index = torch.tensor([sample["index"] for sample in batch])
            samples = [{key: value for key, value in sample.items() if key != "index"} for sample in batch]
            collated = self.collate_fn(samples)
            collated["index"] = index  # in place: a BatchEncoding stays one
            return collated
        return torch.tensor([index for index, _ in batch]), self.collate_fn([sample for _, sample in batch])


def _default_collate(samples: list[Any]) -> Any:
    first = samples[0]
    if not dataclasses.is_dataclass(first) or isinstance(first, type):
        return default_collate(samples)
    fields = {
        field.name: _default_collate([getattr(sample, field.name) for sample in samples])
        for field in dataclasses.fields(first)
        if field.init  # what the constructor does not take, it makes
    }
    return type(first)(**fields)


class TokenIndex:
    """Numbers the words of sentences of different lengths: in tagging every word is an instance.

    >>> tokens = TokenIndex([3, 1, 2])
    >>> tokens.num_instances
    6
    >>> tokens([2, 0])  # the words of sentences 2 and 0, padded with -1
    tensor([[ 4,  5, -1],
            [ 0,  1,  2]])
    """

    def __init__(self, lengths: Iterable[int]) -> None:
        """Take the number of words of every sentence."""
        given = lengths.cpu() if isinstance(lengths, torch.Tensor) else list(lengths)
        self.lengths = checks.integers("lengths", given).clone()
        if self.lengths.dim() != 1 or self.lengths.numel() == 0 or bool((self.lengths < 0).any()):
            raise ValueError(
                "Expected `lengths` to be the numbers of words of at least one sentence, none negative."
            )
        self._first = self.lengths.cumsum(0) - self.lengths

    @property
    def num_instances(self) -> int:
        """The number of words of all sentences."""
        return int(self.lengths.sum())

    @property
    def num_sequences(self) -> int:
        """The number of sentences."""
        return self.lengths.numel()

    def __call__(self, sequence_index: Any, width: int | None = None) -> torch.Tensor:
        """Return the words' indices of the given sentences, (B, width), with -1 after a sentence's end."""
        sequence_index = checks.integers("sequence_index", sequence_index)
        # On a GPU looking would wait for the device.
        if sequence_index.device.type == "cpu" and bool(
            ((sequence_index < 0) | (sequence_index >= self.num_sequences)).any()
        ):
            raise ValueError(
                f"Expected `sequence_index` to be from 0 to {self.num_sequences - 1} (the sentences), but "
                f"got {sequence_index.tolist()}."
            )
        device = sequence_index.device
        if self._first.device != device:
            self.lengths, self._first = self.lengths.to(device), self._first.to(device)
        lengths = self.lengths[sequence_index]
        position = torch.arange(int(lengths.max()) if width is None else width, device=device)
        index = self._first[sequence_index].unsqueeze(-1) + position
        return torch.where(position < lengths.unsqueeze(-1), index, -1)
