"""Named entities from tag sequences, and their micro F1, as conlleval and seqeval's default mode count them.

An entity is a run of tokens of one type. Invalid sequences are read leniently: an I without a B begins an
entity, a change of type begins another. BILOU is read as BIOES (L as E, U as S). Whether an entity begins at
a token depends on two neighbouring tags only, so it is a table over pairs of tags, and a whole data set is
one look-up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Entity(NamedTuple):
    """An entity of `type` on the tokens `start` to `end`, both included."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class EntityScore:
    """How many entities there are, how many were predicted, how many of these have the right span and type.

    >>> score = EntityScore(num_true=4, num_predicted=2, num_correct=1)
    >>> score.precision, score.recall, round(score.f1, 4)
    (0.5, 0.25, 0.3333)
    """

    num_true: int
    num_predicted: int
    num_correct: int

    @property
    def precision(self) -> float:
        """The part of the predicted entities that is right; 0 when none was predicted."""
        return self.num_correct / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """The part of the true entities that was found; 0 when there is none."""
        return self.num_correct / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 when there is no entity at all."""
        total = self.num_true + self.num_predicted
        return 2 * self.num_correct / total if total else 0.0


class EntityScorer:
    """Scores integer tags; `tags[k]` is the name of tag k: `O`, or one of B, I, E, S, L, U with `-type`.

    >>> scorer = EntityScorer(["O", "B-PER", "I-PER", "L-PER", "U-PER"])
    >>> true = [[1, 3, 0, 4], [0, 4, -100, -100]]  # -100 fills up: what stands there does not count
    >>> scorer.score(true, [[1, 3, 0, 0], [0, 4, 4, 4]])
    EntityScore(num_true=3, num_predicted=2, num_correct=2)
    """

    def __init__(self, tags: Sequence[str]) -> None:
        """Work out the tables for these tag names."""
        letters, types = zip(*(_split(tag) for tag in tags), strict=True) if tags else ((), ())
        self.tags = tuple(tags)
        # One tag more, the last: what stands between sentences.
        self._outside = len(tags)
        letters, types = (*letters, "O"), (*types, "")
        self._type_names = sorted(set(types))
        self._type_of = np.array([self._type_names.index(name) for name in types])
        pairs = range(len(letters))
        self._begins = np.array(
            [[_begins(letters[i], letters[j], types[i] == types[j]) for j in pairs] for i in pairs]
        )
        self._is_inside = np.array([letter != "O" for letter in letters])

    def score(self, true: ArrayLike, predicted: ArrayLike, *, ignore_index: int = -100) -> EntityScore:
        """Count over integer arrays (L,) or (sentences, L).

        Tokens with `ignore_index` in `true` (padding, later parts of a word) are left out of both.
        """
        wanted, given = _integers("true", true), _integers("predicted", predicted)
        if wanted.shape != given.shape or wanted.ndim not in (1, 2):
            raise ValueError(
                "Expected arguments `true` and `predicted` of one shape, (L,) or (sentences, L), "
                f"but got {wanted.shape} and {given.shape}."
            )
        counted = wanted != ignore_index
        true_starts, true_ends, true_types = self._spans(self._line("true", wanted, counted))
        starts, ends, types = self._spans(self._line("predicted", given, counted))
        # No two entities of a sequence start at one token, so looking for the start is enough.
        place = np.searchsorted(true_starts, starts)
        found = place < len(true_starts)
        place[~found] = 0
        if len(true_starts):
            found &= true_starts[place] == starts
            found &= true_ends[place] == ends
            found &= true_types[place] == types
        return EntityScore(len(true_starts), len(starts), int(found.sum()))

    def entities(self, sequence: ArrayLike) -> list[Entity]:
        """Return the entities of one sequence of tag numbers, in order.

        >>> EntityScorer(["O", "B-A", "I-A", "I-B"]).entities([0, 1, 2, 3])
        [Entity(type='A', start=1, end=2), Entity(type='B', start=3, end=3)]
        """
        row = _integers("sequence", sequence)
        if row.ndim != 1:
            raise ValueError(f"Expected argument `sequence` of shape (L,), but got {row.shape}.")
        starts, ends, types = self._spans(self._line("sequence", row, np.ones(row.shape, bool)))
        return [
            Entity(self._type_names[kind], int(start), int(end))
            for kind, start, end in zip(types, starts, ends, strict=True)
        ]

    def _line(self, name: str, rows: NDArray[np.int64], counted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Lay all sentences in one line, with an outside tag before each and after the last."""
        checked = rows[counted]
        if checked.size and (checked.min() < 0 or checked.max() >= len(self.tags)):
            worst = checked.min() if checked.min() < 0 else checked.max()
            raise ValueError(
                f"Expected argument `{name}` to hold tag numbers from 0 to {len(self.tags) - 1}, "
                f"but got {worst}."
            )
        line = np.pad(np.atleast_2d(rows), ((0, 0), (1, 0)), constant_values=self._outside)
        kept = np.pad(np.atleast_2d(counted), ((0, 0), (1, 0)), constant_values=True)
        return np.append(line[kept], self._outside)

    def _spans(
        self, line: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return first tokens, last tokens and types; positions count from the line's second place."""
        before, tag = line[:-1], line[1:]
        begins = self._begins[before, tag]
        # Every token that is not outside belongs to one entity, so an entity ends where the next token is
        # outside or begins another: starts and ends pair up in order.
        ends = self._is_inside[before] & (begins | ~self._is_inside[tag])
        starts = np.flatnonzero(begins)
        return starts, np.flatnonzero(ends) - 1, self._type_of[tag[starts]]


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of one sequence of tag names.

    >>> entities_of(["B-PER", "L-PER", "O", "U-LOC"])
    [Entity(type='PER', start=0, end=1), Entity(type='LOC', start=3, end=3)]
    """
    names = sorted(set(tags))
    return EntityScorer(names).entities([names.index(tag) for tag in tags])


def entity_f1(true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> float:
    """Return the micro F1 of sentences of tag names; for whole data sets `EntityScorer.score` is faster.

    >>> entity_f1([["B-PER", "L-PER", "O"]], [["B-PER", "I-PER", "O"]])
    1.0
    """
    num_true = num_predicted = num_correct = 0
    for number, (wanted, given) in enumerate(zip(true, predicted, strict=True)):
        if len(wanted) != len(given):
            raise ValueError(
                f"Expected arguments `true` and `predicted` to have sentences of the same lengths, "
                f"but got {len(wanted)} and {len(given)} tags in sentence {number}."
            )
        wanted_entities, given_entities = set(entities_of(wanted)), set(entities_of(given))
        num_true += len(wanted_entities)
        num_predicted += len(given_entities)
        num_correct += len(wanted_entities & given_entities)
    return EntityScore(num_true, num_predicted, num_correct).f1


def _split(tag: str) -> tuple[str, str]:
    if tag == "O":
        return "O", ""
    letter, separator, kind = tag.partition("-")
    if letter not in _LETTERS or not separator or not kind:
        raise ValueError(
            f"Expected argument `tags` to hold `O` or one of B, I, E, S, L, U with `-type`, but got {tag!r}."
        )
    return _LETTERS[letter], kind


def _begins(before: str, letter: str, same_type: bool) -> bool:
    """Tell whether an entity begins at a token, from its letter and the one before it."""
    if letter == "O":
        return False
    return letter in "BS" or before in "OES" or not same_type


def _integers(name: str, values: Any) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"Expected argument `{name}` to hold integer tag numbers, but got {array.dtype}.")
    return array.astype(np.int64)
