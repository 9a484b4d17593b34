"""The data that all readers return, and its division into training and validation part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray

from activebias import TokenIndex
from activebias.own.duplicates import Conflicts
from activebias.own.splits import Split
from activebias.runs.contents import Inputs, Kind
from activebias.training.examples import Examples

VALIDATION_SHARE = 0.2
Validation: TypeAlias = float | Path | Split
"""A share of the data, a separate folder or file, or the division of an earlier run."""


@final
@dataclass(frozen=True, kw_only=True)
class OwnData:
    """Data for training: examples of both parts, their origin, and a suitable model.

    `train_position` and `validation_position` are the rows in the source, one per example (in tagging one
    per sentence). `inputs` shows the instances to a person: the training part, then the validation part.
    `identity` is a digest of every example's input, in the same order. `model` is a name and arguments for
    `build_model`. `conflicts`, `skipped` and `notes` report problems of the data to the user. `settings` are
    the options with which the data was read.
    """

    kind: Kind
    source: str
    class_names: tuple[str, ...]
    train: Examples
    validation: Examples
    train_position: NDArray[np.int64]
    validation_position: NDArray[np.int64]
    inputs: Inputs
    model: dict[str, Any]
    learning_rate: float
    conflicts: Conflicts
    identity: NDArray[np.uint64]
    window: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[Mapping[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> TokenIndex | None:
        """The numbering of the words in tagging."""
        if self.train.lengths is None:
            return None
        return TokenIndex(self.train.lengths.tolist())


def validation_setting(validation: Validation) -> float | str:
    """Return the validation part as the user gave it, for `run.json`."""
    if isinstance(validation, Path):
        return str(validation)
    return validation.share if isinstance(validation, Split) else validation


def encode_labels(labels: Sequence[str], what: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the sorted class names (by value if all are numbers), and every label's class.

    >>> encode_labels(["10", "9", "10"], "digits.csv")[0]
    ('9', '10')
    """
    names = sorted(set(labels))
    if all(name.isdecimal() for name in names):
        names.sort(key=int)
    if len(names) < 2:
        came = f"only {names[0]!r}" if names else "none"
        raise ValueError(f"{what} must have examples of at least two classes to learn from, but has {came}.")
    number = {name: position for position, name in enumerate(names)}
    return tuple(names), np.array([number[label] for label in labels], dtype=np.int64)


@final
@dataclass(frozen=True)
class Divided:
    """The labels of all examples, and the positions of the training and validation examples."""

    class_names: tuple[str, ...]
    labels: NDArray[np.int64]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]

    @property
    def order(self) -> NDArray[np.int64]:
        """The positions of all examples: the training part, then the validation part."""
        return np.concatenate([self.train, self.held_out])

    @property
    def in_train(self) -> NDArray[np.bool_]:
        """Whether an example is in the training part."""
        return np.isin(np.arange(len(self.labels)), self.train)

    def check(self, source: Path, validation: Path) -> None:
        """Raise if the file of validation examples does not fit the training examples."""
        if not len(self.held_out):
            raise ValueError(f"{validation} has no example to validate on.")
        unknown = np.setdiff1d(self.labels[self.held_out], self.labels[self.train])
        if len(unknown):
            names = listing([self.class_names[k] for k in unknown])
            raise ValueError(f"{validation} has classes that {source} does not have: {names}.")

    def examples(self, *tensors: torch.Tensor) -> tuple[Examples, Examples]:
        """Return the training and validation examples of the tensors."""
        labels = torch.from_numpy(self.labels)
        train, held_out = torch.from_numpy(self.train), torch.from_numpy(self.held_out)
        return (
            Examples(tuple(tensor[train] for tensor in tensors), labels[train]),
            Examples(tuple(tensor[held_out] for tensor in tensors), labels[held_out]),
        )


def divide(
    labels: NDArray[np.int64], groups: Sequence[Any] | NDArray[Any], *, share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the training and of the validation part, each in the order of the source.

    Both parts have the same share of every class. Examples of the same group (duplicates) stay together:
    with a copy in the training part, the validation error would be too low. A class with only one example is
    in the training part. So is a group that is larger than the validation share of its class, as long as the
    class has two smaller groups: its copies alone would decide the validation error.
    """
    from sklearn.model_selection import train_test_split

    if not 0 < share < 1:
        raise ValueError(
            f"Expected `--validation` to be a share above 0 and below 1, or a file, but got {share:g}."
        )
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    label_of_group = labels[first]
    sizes = np.bincount(group)
    quotas = np.maximum(np.round(share * np.bincount(label_of_group, weights=sizes)), 1)
    is_small = sizes <= quotas[label_of_group]
    num_small = np.bincount(label_of_group, weights=is_small)[label_of_group]
    counts = np.bincount(label_of_group)
    divisible = np.flatnonzero((counts[label_of_group] > 1) & (is_small | (num_small < 2)))
    num_classes = len(np.unique(label_of_group[divisible]))
    if num_classes < 2:
        raise ValueError(
            f"{len(first)} different examples are too few to train and validate on {len(np.unique(labels))} "
            f"classes: two classes need two or more each, but {'only one' if num_classes else 'none'} has."
        )
    num_validation = max(round(share * len(divisible)), num_classes)
    if len(divisible) - num_validation < num_classes:
        raise ValueError(
            f"Expected `--validation` to leave an example of each of the {num_classes} classes to train on, "
            f"but got {share:g} of {len(divisible)} different examples: give a smaller share."
        )
    _, chosen = train_test_split(
        divisible, test_size=num_validation, stratify=label_of_group[divisible], random_state=seed % 2**32
    )
    is_validation = np.isin(group, chosen)
    return np.flatnonzero(~is_validation), np.flatnonzero(is_validation)


def note_small_classes(class_names: Sequence[str], labels: NDArray[np.int64]) -> list[str]:
    """Return a note with the classes that are too small to learn or to validate."""
    counts = np.bincount(labels, minlength=len(class_names))
    small = [f"{name} ({count})" for name, count in zip(class_names, counts, strict=True) if count < 5]
    return [f"Classes with fewer than five examples: {listing(small)}."] if small else []


def require_file(path: Path, what: str) -> None:
    """Refuse a path that is no file."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give {what}. A folder of images is for `--images`.")
    if not path.is_file():
        raise ValueError(f"There is no file {path}: give {what}.")


def listing(words: Sequence[str], most: int = 8) -> str:
    """Return words separated by commas, and the number of words that are not shown.

    >>> listing(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
