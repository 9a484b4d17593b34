"""Bring the instance's index into the batch, and number the words of tagging data."""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate

from activebias import checks
from activebias.checks import IGNORED


class IndexedDataset(Dataset[Any]):
    """A map-style data set whose samples come with their index; made by `with_index`."""

    def __init__(self, dataset: Any) -> None:
        """Wrap `dataset`, which needs a length and integer access."""
        # torch's own __getitem__, which a stream inherits, only raises.
        access = getattr(type(dataset), "__getitem__", None)
        if access in (None, Dataset.__getitem__) or not hasattr(dataset, "__len__"):
            raise TypeError(
                "with_index needs a map-style data set (one with __len__ and __getitem__), because an "
                f"instance is known by its position, but got {type(dataset).__name__}. Of a stream make your "
                "own DataLoader, and let the stream bring an index with every sample (docs/streams.md)."
            )
        if has_index(dataset):
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
    # No closure, so that worker processes can receive it.
    return partial(_collate_with_index, collate_fn or usual_collate)


def _collate_with_index(collate_fn: Callable[[list[Any]], Any], batch: list[Any]) -> Any:
    if isinstance(batch[0], dict):
        index = torch.tensor([sample["index"] for sample in batch])
        samples = [{key: value for key, value in sample.items() if key != "index"} for sample in batch]
        collated = collate_fn(samples)
        collated["index"] = index  # in place: a BatchEncoding stays one
        return collated
    return torch.tensor([index for index, _ in batch]), collate_fn([sample for _, sample in batch])


def has_index(dataset: Any) -> bool:
    """Return whether `with_index` was applied to a data set, or to a part of a Subset or ConcatDataset."""
    if isinstance(dataset, Subset):
        return has_index(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return any(has_index(part) for part in dataset.datasets)
    return isinstance(dataset, IndexedDataset)


def uncollated(collate_fn: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return the collation of the samples without their index."""
    if isinstance(collate_fn, partial) and collate_fn.func is _collate_with_index:
        inner: Callable[[list[Any]], Any] = collate_fn.args[0]
        return inner
    return collate_fn


def usual_collate(samples: list[Any]) -> Any:
    """Return a batch as torch's `default_collate` does; samples may be dataclasses too."""
    first = samples[0]
    if not dataclasses.is_dataclass(first) or isinstance(first, type):
        return default_collate(samples)
    fields = {
        field.name: usual_collate([getattr(sample, field.name) for sample in samples])
        for field in dataclasses.fields(first)
        if field.init  # the constructor sets the other fields itself
    }
    return type(first)(**fields)


class TokenIndex:
    """Numbers the words of sequences: in tagging and in language models every word is an instance.

    >>> tokens = TokenIndex([3, 1, 2])
    >>> tokens.num_instances
    6
    >>> tokens([2, 0])  # the words of sentences 2 and 0, padded with -1
    tensor([[ 4,  5, -1],
            [ 0,  1,  2]])

    Where not every word of a sequence has a label, `of_labels` numbers the words that have one:

    >>> tokens.of_labels([2, 1], torch.tensor([[7, -100, 8], [9, -100, -100]]))
    tensor([[ 4, -1,  5],
            [ 3, -1, -1]])
    """

    def __init__(self, lengths: Iterable[int], *, by_position: bool = False) -> None:
        """Take the number of labels of every sequence.

        With `by_position` take the number of its positions, labelled or not. Then a word is known by its
        position, and keeps its history where the labels change from epoch to epoch (dynamic masking) or
        where a sequence loses its end (truncation). A position that never has a label is an instance that
        is never visited.
        """
        given = lengths.cpu() if isinstance(lengths, torch.Tensor) else list(lengths)
        self.lengths = checks.integers("lengths", given).clone()
        if self.lengths.dim() != 1 or self.lengths.numel() == 0 or bool((self.lengths < 0).any()):
            raise ValueError(
                "Expected `lengths` to be the numbers of words of at least one sentence, none negative."
            )
        self.by_position = bool(by_position)
        self._first = self.lengths.cumsum(0) - self.lengths

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        column: str = "labels",
        *,
        shift: bool = False,
        by_position: bool = False,
        ignore_index: int = IGNORED,
    ) -> "TokenIndex":
        """Number the words of a data set of dicts, such as Hugging Face's, by one of its columns.

        Args:
            dataset: the training set, as the loader reads it.
            column: "labels", whose `ignore_index` does not count; "input_ids" where a collator makes the
                labels of them.
            shift: True for a causal model, in which the first word of a sequence is never predicted.
            by_position: count every position, labelled or not. For labels that change from epoch to epoch,
                as in masked language models.
            ignore_index: the label that does not count.

        >>> dataset = [{"labels": [5, -100, 6]}, {"labels": [7]}]
        >>> TokenIndex.from_dataset(dataset).lengths
        tensor([2, 1])
        >>> TokenIndex.from_dataset(dataset, by_position=True).lengths
        tensor([3, 1])
        """
        lengths = []
        for words in _column(dataset, column):
            words = checks.tensor_of(column, words)[1 if shift else 0 :]
            lengths.append(len(words) if by_position else int((words != ignore_index).sum()))
        return cls(lengths, by_position=by_position)

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
        sequence_index, lengths = self._lengths_of(sequence_index)
        position = torch.arange(int(lengths.max()) if width is None else width, device=lengths.device)
        index = self._first[sequence_index].unsqueeze(-1) + position
        return torch.where(position < lengths.unsqueeze(-1), index, -1)

    def sequence_of(self, words: torch.Tensor) -> torch.Tensor:
        """Return the sentences that words, given by their indices, are in.

        >>> TokenIndex([3, 1, 2]).sequence_of(torch.tensor([0, 2, 3, 5]))
        tensor([0, 0, 1, 2])
        """
        lengths = self.lengths.to(words.device)
        return torch.searchsorted(lengths.cumsum(0), words, right=True)

    def of_labels(
        self,
        sequence_index: Any,
        labels: torch.Tensor,
        *,
        attention_mask: torch.Tensor | None = None,
        ignore_index: int = IGNORED,
    ) -> torch.Tensor:
        """Return the indices of the words that have a label, in the shape (B, L) of `labels`, -1 elsewhere.

        The number of labels of every sequence is compared with its length. Call it where the labels are on
        the CPU, as in a collation: on a GPU nothing is compared, because looking would wait for the device.

        Args:
            sequence_index: the positions of the B sequences in the data set.
            labels: the labels of their words, padded with `ignore_index`.
            attention_mask: 0 for padding. Needed if words are numbered by position and the padding is on the
                left.
            ignore_index: the label that does not count.
        """
        sequence_index, lengths = self._lengths_of(sequence_index)
        if labels.dim() != 2 or len(labels) != len(sequence_index):
            raise ValueError(
                f"Expected `labels` of shape ({len(sequence_index)}, words), one row for every sequence, but "
                f"got {tuple(labels.shape)}."
            )
        labelled = labels != ignore_index
        if not self.by_position:
            number = labelled.cumsum(-1) - 1
        elif attention_mask is None:
            number = torch.arange(labels.shape[1], device=labels.device).expand(labels.shape)
        else:
            number = attention_mask.long().cumsum(-1) - 1
        if labels.device.type == "cpu":
            self._compare(sequence_index, lengths, labelled, number)
        index = self._first[sequence_index].unsqueeze(-1) + number
        return torch.where(labelled & (number < lengths.unsqueeze(-1)), index, -1)

    def _lengths_of(self, sequence_index: Any) -> tuple[torch.Tensor, torch.Tensor]:
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
        return sequence_index, self.lengths[sequence_index]

    def _compare(
        self,
        sequence_index: torch.Tensor,
        lengths: torch.Tensor,
        labelled: torch.Tensor,
        number: torch.Tensor,
    ) -> None:
        """Refuse sequences whose labels do not fit their length."""
        if self.by_position:
            come = torch.where(labelled, number + 1, 0).amax(-1) if labelled.shape[1] else lengths
            wrong, what = come > lengths, "has a label at its position {}, but it has {} positions"
            advice = (
                "Count the positions of the sequences as the batches have them; `shift=True` is for causal "
                "models only. If the padding is on the left, pass `attention_mask`."
            )
        else:
            come = labelled.sum(-1)
            wrong, what = come != lengths, "came with {} labels, but its length is {}"
            advice = (
                "`TokenIndex.from_dataset` counts the labels that are not `ignore_index`; for a causal model "
                "pass `shift=True`. If labels change from epoch to epoch (dynamic masking), or if sequences "
                "are truncated after the data set, number the words by position: `by_position=True`."
            )
        if not bool(wrong.any()):
            return
        row = int(wrong.nonzero()[0])
        found = what.format(int(come[row]), int(lengths[row]))
        raise ValueError(f"Sequence {int(sequence_index[row])} {found}. {advice}")


def _column(dataset: Any, name: str) -> Iterable[Any]:
    names = getattr(dataset, "column_names", None)
    if names is None:
        first = dataset[0]
        names = list(first) if isinstance(first, dict) else []
    if name not in names:
        raise ValueError(
            f"Expected `column` to be a column of the data set, but got {name!r}, and it has "
            f"{', '.join(map(repr, names)) or 'no columns'}: pass `column=…`, or `TokenIndex(lengths)`."
        )
    if hasattr(dataset, "column_names"):
        return dataset[name]  # type: ignore[no-any-return]
    return (dataset[position][name] for position in range(len(dataset)))
