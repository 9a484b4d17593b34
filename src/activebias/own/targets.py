"""Targets that are probably no classes, or not the classes that were meant: refused or named in a note."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from activebias.own.data import listing
from activebias.own.written_dates import are_dates

if TYPE_CHECKING:
    from pandas import Series

# More different whole numbers than this are probably counts. Digits, grades and scores of tests are fewer.
MOST_NUMBERS = 20
# More different dates than this are no classes.
MOST_DATES = 20


def note_target(column: "Series", labels: Sequence[str], target: str) -> list[str]:
    """Name labels that may mean something else than one class each; refuse dates."""
    return [
        *_note_counts(labels, target),
        *_note_dates(column, labels, target),
        *_note_sets(labels, target),
        *note_case(labels, f"Column {target!r}"),
    ]


def note_case(labels: Sequence[str], what: str) -> list[str]:
    """Name classes that differ in upper and lower case or in blanks only.

    >>> note_case(["cat", "Cat", "cat", "dog"], "pets.csv")
    ["pets.csv has classes that differ in case or blanks only: 'cat' (2) and 'Cat' (1). They stay apart."]
    """
    alike = defaultdict(list)
    for label, number in Counter(labels).most_common():
        alike[" ".join(label.casefold().split())].append(f"{label!r} ({number})")
    groups = [" and ".join(names) for names in alike.values() if len(names) > 1]
    if not groups:
        return []
    return [f"{what} has classes that differ in case or blanks only: {listing(groups)}. They stay apart."]


def _note_counts(labels: Sequence[str], target: str) -> list[str]:
    names = set(labels)
    if len(names) <= MOST_NUMBERS or not all(re.fullmatch(r"[+-]?\d{1,15}", name) for name in names):
        return []
    numbers = sorted(map(int, names))
    return [
        f"Column {target!r} has {len(names)} whole numbers from {numbers[0]} to {numbers[-1]}, and each is a "
        "class. If they count or measure something, group them into a few classes."
    ]


def _note_dates(column: "Series", labels: Sequence[str], target: str) -> list[str]:
    if not are_dates(column):
        return []
    number = len(set(labels))
    if number > MOST_DATES:
        raise ValueError(
            f"Column {target!r} holds {number} different dates such as {labels[0]!r}: dates are no classes. "
            "Choose another --target, or group the dates into classes."
        )
    return [f"Column {target!r} holds dates such as {labels[0]!r}: each of the {number} dates is a class."]


def _note_sets(labels: Sequence[str], target: str) -> list[str]:
    """Name labels such as a;b whose parts are found in other labels too."""
    counts = Counter(labels)
    for separator in ";|,":
        parts = {label: {part.strip() for part in label.split(separator)} for label in counts}
        number_of = Counter(part for each in parts.values() for part in each if part)
        several = [
            label
            for label, each in parts.items()
            if len(each) > 1 and all(number_of[part] > 1 for part in each)
        ]
        if several:
            rows = sum(counts[label] for label in several)
            return [
                f"Column {target!r} has several labels in one cell such as {several[0]!r} ({rows} rows): "
                "each combination is a class of its own. The model learns one class a row."
            ]
    return []
