"""Examples with the same input: their number, and conflicts between their labels."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

# The columns of `conflicts.csv` that all kinds of data have.
COLUMNS = ("group", "part", "label", "position", "instance")


@final
@dataclass(frozen=True)
class Conflicts:
    """Groups of instances with the same input and different labels, numbered from 1.

    `groups` has the group of every instance, or 0: first the training part, then the validation part. `rows`
    are the rows of `conflicts.csv`: the members of both parts, group by group. In tagging the instances are
    words, and the input of a word is its sentence and its place in the sentence.
    """

    groups: NDArray[np.int64]
    rows: tuple[Mapping[str, Any], ...]

    def note(self, what: str) -> list[str]:
        """Return a note with the number of conflicts."""
        if not self.rows:
            return []
        number = self.rows[-1]["group"]
        return [
            f"Same input, different labels: {len(self.rows)} {what} in {number} group{'s' * (number > 1)}. "
            "The run folder's conflicts.csv lists them."
        ]


def find_conflicts(
    groups: Sequence[Hashable],
    labels: Sequence[str],
    *,
    in_train: NDArray[np.bool_],
    position: NDArray[np.int64],
    describe: Callable[[Sequence[int]], Sequence[str]],
    more: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> Conflicts:
    """Find the conflicts, from one entry per instance of both parts, in the order of the source.

    Instances of the same group have the same input. `describe` is called for the members of conflicts only.
    `more` are columns to list behind the position, under names that are not in `COLUMNS`.
    """
    numbers = conflict_numbers(groups, labels)
    members = sorted(np.flatnonzero(numbers).tolist(), key=numbers.__getitem__)
    rows = tuple(
        {
            "group": int(numbers[k]),
            "part": "training" if in_train[k] else "validation",
            "label": labels[k],
            "position": int(position[k]),
            **{name: values[k] for name, values in more.items()},
            "instance": text,
        }
        for k, text in zip(members, describe(members) if members else (), strict=True)
    )
    return Conflicts(np.concatenate([numbers[in_train], numbers[~in_train]]), rows)


def conflict_numbers(groups: Sequence[Hashable], labels: Sequence[str]) -> NDArray[np.int64]:
    """Number the groups with different labels from 1; return the number of every instance's group, or 0.

    >>> conflict_numbers(["a", "b", "b", "c", "a", "c"], ["cat", "dog", "dog", "cat", "dog", "dog"])
    array([1, 0, 0, 2, 1, 2])
    """
    labels_of: dict[Hashable, set[str]] = {}
    for group, label in zip(groups, labels, strict=True):
        labels_of.setdefault(group, set()).add(label)
    conflicting = (group for group, different in labels_of.items() if len(different) > 1)
    numbers = {group: number for number, group in enumerate(conflicting, 1)}
    return np.array([numbers.get(group, 0) for group in groups], dtype=np.int64)


def note_duplicates(what: str, groups: Sequence[Hashable], in_train: NDArray[np.bool_]) -> list[str]:
    """Return a note with the number of duplicates, and whether both parts have copies of the same input.

    >>> note_duplicates("rows", ["a", "b", "a", "b", "b"], np.array([True, False, True, False, False]))
    ['Duplicate rows: 3. Copies of the same input are never in both parts.']
    >>> note_duplicates("rows", ["a", "b", "a", "a"], np.array([True, True, False, False]))
    ['Duplicate rows: 2. The training part has copies of 2 validation rows: the validation error is too low.']
    """
    number = len(groups) - len(set(groups))
    if not number:
        return []
    trained = {group for group, flag in zip(groups, in_train, strict=True) if flag}
    shared = sum(group in trained for group, flag in zip(groups, in_train, strict=True) if not flag)
    if not shared:
        return [f"Duplicate {what}: {number}. Copies of the same input are never in both parts."]
    return [
        f"Duplicate {what}: {number}. The training part has copies of {shared} validation {what}: the "
        "validation error is too low."
    ]
