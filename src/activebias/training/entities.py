"""Named entities from tag sequences, and their micro F1, as conlleval and seqeval's default mode count them.

An entity is a sequence of tokens of one type. Invalid sequences are read leniently: an I without a B begins
an entity, and a change of type begins another entity. BILOU is read as BIOES (L as E, U as S). Whether an
entity begins at a token depends on two neighbouring tags only. A table over pairs of tags therefore finds
all entities of a data set, even for many models, in one look-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from activebias.internal import IGNORED

_LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Entity(NamedTuple):
    """An entity of `type` on the tokens `start` to `end`, both included."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class EntityScore:
    """The numbers of true entities, of predicted entities, and of predictions with the right span and type.

    >>> score = EntityScore(num_true=4, num_predicted=2, num_correct=1)
    >>> score.precision, score.recall, round(score.f1, 4)
    (0.5, 0.25, 0.3333)
    """

    num_true: int
    num_predicted: int
    num_correct: int

    @property
    def precision(self) -> float:
        """The fraction of the predicted entities that are right; 0 without predicted entities."""
        return self.num_correct / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """The fraction of the true entities that were found; 0 without true entities."""
        return self.num_correct / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 without any entity."""
        total = self.num_true + self.num_predicted
        return 2 * self.num_correct / total if total else 0.0


class EntityScorer:
    """Scores integer tags; `tags[k]` is the name of tag k: `O`, or one of B, I, E, S, L, U with `-type`.

    >>> scorer = EntityScorer(["O", "B-PER", "I-PER", "L-PER", "U-PER"])
    >>> true = [[1, 3, 0, 4], [0, 4, -100, -100]]  # -100 is padding, which does not count
    >>> scorer.score(true, [[1, 3, 0, 0], [0, 4, 4, 4]])
    EntityScore(num_true=3, num_predicted=2, num_correct=2)
    """

    def __init__(self, tags: Sequence[str]) -> None:
        """Compute the tables for these tag names."""
        letters, types = zip(*(_split(tag) for tag in tags), strict=True) if tags else ((), ())
        self.tags = tuple(tags)
        # An additional last tag separates sentences.
        self._outside = len(tags)
        letters, types = (*letters, "O"), (*types, "")
        self._type_names = sorted(set(types))
        self._type_of = torch.tensor([self._type_names.index(name) for name in types])
        pairs = range(len(letters))
        self._begins = torch.tensor(
            [[_begins(letters[i], letters[j], types[i] == types[j]) for j in pairs] for i in pairs]
        )
        self._is_inside = torch.tensor([letter != "O" for letter in letters])

    def score(self, true: ArrayLike, predicted: ArrayLike) -> EntityScore:
        """Count over integer arrays (L,) or (sentences, L).

        Tokens with -100 in `true` (padding, later parts of a word) are ignored in both arrays.
        """
        wanted, given = _integers("true", true), _integers("predicted", predicted)
        if wanted.shape != given.shape or wanted.ndim not in (1, 2):
            raise ValueError(
                "Expected `true` and `predicted` of one shape, (L,) or (sentences, L), "
                f"but got {wanted.shape} and {given.shape}."
            )
        counted = wanted != IGNORED
        self._check("true", wanted[counted])
        self._check("predicted", given[counted])
        return self.score_many(wanted, torch.from_numpy(given)[None])[0]

    def score_many(self, true: ArrayLike | Tensor, predicted: Tensor) -> list[EntityScore]:
        """Count for K models at once, on the device of `predicted` (K, …); `true` is (…) or (K, …).

        The ignored tokens must be the same in all K. Tag numbers are not checked here.

        >>> scorer = EntityScorer(["O", "U-A"])
        >>> [score.f1 for score in scorer.score_many([0, 1], torch.tensor([[0, 1], [1, 1]]))]
        [1.0, 0.6666666666666666]
        """
        wanted = torch.as_tensor(true).to(predicted.device).expand(predicted.shape)
        place = _places(wanted[0] != IGNORED)
        true_ends, true_starts, true_types = self._ends(self._lines(wanted, place))
        ends, starts, types = self._ends(self._lines(predicted, place))
        # At most one entity of a sequence ends at a token.
        correct = true_ends & ends & (true_starts == starts) & (true_types == types)
        counts = torch.stack([each.sum(-1) for each in (true_ends, ends, correct)], dim=-1)
        return [EntityScore(*numbers) for numbers in counts.tolist()]

    def entities(self, sequence: ArrayLike) -> list[Entity]:
        """Return the entities of one sequence of tag numbers, in order.

        >>> EntityScorer(["O", "B-A", "I-A", "I-B"]).entities([0, 1, 2, 3])
        [Entity(type='A', start=1, end=2), Entity(type='B', start=3, end=3)]
        """
        row = _integers("sequence", sequence)
        if row.ndim != 1:
            raise ValueError(f"Expected `sequence` of shape (L,), but got {row.shape}.")
        self._check("sequence", row)
        line = self._lines(torch.from_numpy(row)[None], _places(torch.ones(row.shape, dtype=torch.bool)))
        ends, starts, types = (each[0] for each in self._ends(line))
        return [
            Entity(self._type_names[kind], start, end)
            for end, start, kind in zip(
                ends.nonzero().flatten().tolist(), starts[ends].tolist(), types[ends].tolist(), strict=True
            )
        ]

    def _check(self, name: str, tags: NDArray[np.int64]) -> None:
        if tags.size and (tags.min() < 0 or tags.max() >= len(self.tags)):
            worst = tags.min() if tags.min() < 0 else tags.max()
            raise ValueError(
                f"Expected `{name}` to hold tag numbers from 0 to {len(self.tags) - 1}, but got {worst}."
            )

    def _lines(self, tags: Tensor, place: Tensor) -> Tensor:
        """Return the tags (K, …) at the given places, (K, T); the place after the last tag is outside."""
        return F.pad(tags.reshape(len(tags), -1), (0, 1), value=self._outside)[:, place].long()

    def _ends(self, line: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return where entities end, and their starts and types, (K, T - 2) each.

        Positions count from the line's second place; starts and types are valid only at an end.
        """
        begins_at, is_inside, type_of = (
            table.to(line.device) for table in (self._begins, self._is_inside, self._type_of)
        )
        begins = begins_at[line[:, :-1], line[:, 1:]]
        inside = is_inside[line[:, 1:]]
        position = torch.arange(begins.shape[1], dtype=torch.int32, device=line.device)
        starts = torch.where(begins, position, -1).cummax(-1).values
        # Every token that is not outside belongs to an entity. An entity therefore ends if the next token
        # is outside or begins another entity.
        ends = inside[:, :-1] & (begins[:, 1:] | ~inside[:, 1:])
        return ends, starts[:, :-1], type_of[line[:, 1:-1]]


def _places(counted: Tensor) -> Tensor:
    """Return the places of all sentences in one line: an outside tag before each and after the last."""
    sentences = counted if counted.dim() == 2 else counted[None]
    outside = sentences.numel()
    numbers = torch.arange(outside, device=counted.device).view_as(sentences)
    line = F.pad(numbers, (1, 0), value=outside)[F.pad(sentences, (1, 0), value=True)]
    return F.pad(line, (0, 1), value=outside)


def _split(tag: str) -> tuple[str, str]:
    if tag == "O":
        return "O", ""
    letter, separator, kind = tag.partition("-")
    if letter not in _LETTERS or not separator or not kind:
        raise ValueError(
            f"Expected `tags` to hold `O` or one of B, I, E, S, L, U with `-type`, but got {tag!r}."
        )
    return _LETTERS[letter], kind


def _begins(before: str, letter: str, same_type: bool) -> bool:
    """Return whether an entity begins at a token, given its letter and the letter before."""
    if letter == "O":
        return False
    return letter in "BS" or before in "OES" or not same_type


def _integers(name: str, values: Any) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"Expected `{name}` to hold integer tag numbers, but got {array.dtype}.")
    return array.astype(np.int64)
