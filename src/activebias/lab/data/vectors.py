"""Vocabularies, and word vectors in text form: a word and its numbers per line, plain or gzipped.

Id 0 is padding (a zero vector), and id 1 the unknown word. A word without a vector in the file is unknown.
All unknown words share id 1, whose vector is the mean of the vectors in use, as GloVe's authors advise.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from activebias.lab.data.sources import require
from activebias.training.reading import DataError, read_lines

PADDING, UNKNOWN = 0, 1
_SPECIAL = ("<padding>", "<unknown>")


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids.

    With ``lowercase`` a word is looked up in lower case, otherwise as written and then in lower case.

    >>> vocabulary = Vocabulary(("<padding>", "<unknown>", "the", "cat"))
    >>> vocabulary.ids(["The", "dog"])
    [2, 1]
    """

    words: tuple[str, ...]
    lowercase: bool = True
    _positions: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build the mapping from word to id."""
        object.__setattr__(self, "_positions", {word: k for k, word in enumerate(self.words) if k > UNKNOWN})

    def __len__(self) -> int:
        """Return the number of ids, including padding and unknown word."""
        return len(self.words)

    def ids(self, words: Iterable[str]) -> list[int]:
        """Return the id of each word."""
        result = []
        for word in words:
            lower = self._positions.get(word.lower(), UNKNOWN)
            result.append(lower if self.lowercase else self._positions.get(word, lower))
        return result


def build_vocabulary(words: Iterable[str], *, lowercase: bool = True) -> Vocabulary:
    """Make a vocabulary of the given words, the most frequent first, for training without vectors.

    >>> build_vocabulary(["a", "The", "the"]).words
    ('<padding>', '<unknown>', 'the', 'a')
    """
    counts = Counter(word.lower() if lowercase else word for word in words)
    return Vocabulary((*_SPECIAL, *sorted(counts, key=lambda word: (-counts[word], word))), lowercase)


def read_vectors(
    path: Path, words: Iterable[str], *, dimensions: int | None = None, lowercase: bool = True
) -> tuple[Vocabulary, Tensor]:
    """Read the vectors of the given words, reduced by PCA if the file has more than ``dimensions``.

    A first line of two whole numbers (word2vec's text form: number of words, dimensions) is skipped. Words
    are in the order of the file; the first vector of a repeated word counts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "vectors.txt"
    ...     _ = path.write_text("the 1 2\\ncat 3 4\\ndog 5 6\\n")
    ...     vocabulary, vectors = read_vectors(path, ["The", "cat", "unicorn"])
    >>> vocabulary.words
    ('<padding>', '<unknown>', 'the', 'cat')
    >>> vectors.tolist()
    [[0.0, 0.0], [2.0, 3.0], [1.0, 2.0], [3.0, 4.0]]
    """
    wanted = (
        {word.lower() for word in words}
        if lowercase
        else {key for word in words for key in (word, word.lower())}
    )
    width = 0
    kept: dict[str, list[float]] = {}
    for number, line in read_lines(path):
        line = line.rstrip(" ")
        pieces = line.split(" ")
        if not line or (number == 1 and len(pieces) == 2 and pieces[0].isdigit() and pieces[1].isdigit()):
            continue
        width = width or len(pieces) - 1
        # From the right, because some vector files have words with spaces.
        word, *numbers = line.rsplit(" ", width)
        if width < 1 or len(numbers) != width or (word in wanted and " " in word):
            raise DataError(
                f"{path}, line {number}: {len(pieces)} columns where a word and {max(width, 1)} numbers are "
                "expected, separated by single spaces: correct the file (word2vec's binary form must be "
                "converted to text)."
            )
        if word in wanted and word not in kept:
            try:
                kept[word] = [float(value) for value in numbers]
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}: correct the file.") from error
    if not kept:
        raise DataError(
            f"{path} has no vector for any word of the data: check the language and the text form."
        )
    matrix = torch.tensor(list(kept.values()), dtype=torch.float64)
    if not bool(torch.isfinite(matrix).all()):
        word = list(kept)[int((~torch.isfinite(matrix)).any(1).nonzero()[0])]
        raise DataError(
            f"{path}: the vector of {word!r} holds a number that is not finite: correct the file."
        )
    if dimensions is not None and dimensions != width:
        if dimensions > width:
            raise DataError(
                f"{path} has {width} dimensions, fewer than the {dimensions} asked for: use other vectors."
            )
        matrix = reduce_dimensions(matrix, dimensions)
    full = torch.cat([torch.zeros(1, matrix.shape[1]), matrix.mean(0, keepdim=True), matrix])
    return Vocabulary((*_SPECIAL, *kept), lowercase), full.float()


def reduce_dimensions(vectors: Tensor, dimensions: int) -> Tensor:
    """Project vectors (V, D) on their first principal components: centred, the largest variance first.

    The sign of a component is arbitrary. Here its largest entry is positive, the same on every machine.

    >>> reduce_dimensions(torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), 1).flatten().tolist()
    [-5.0, 0.0, 5.0]
    """
    if not 1 <= dimensions <= vectors.shape[1]:
        raise ValueError(f"`dimensions` must lie in 1 to {vectors.shape[1]}, but got {dimensions}.")
    centred = vectors.double() - vectors.double().mean(0)
    _, components = torch.linalg.eigh(centred.T @ centred)
    components = components.flip(1)[:, :dimensions]
    largest = components.gather(0, components.abs().argmax(0, keepdim=True))
    projected: Tensor = centred @ (components * largest.sign())
    return projected.to(vectors.dtype)


def vocabulary_for(
    train_words: Iterable[str],
    test_words: Iterable[str],
    *,
    vectors: str | Path | None,
    dimensions: int | None,
    lowercase: bool,
    root: str | Path | None,
    stands_in_for: str,
) -> tuple[Vocabulary, Tensor | None, tuple[str, ...]]:
    """Return vocabulary, vectors and notes.

    ``vectors``: "auto" (the vectors in the data folder), a file, or None for no vectors. Test words have an
    id too if the vectors are fixed. Without vectors only training words have an id, because the vectors of
    other words cannot be learned.
    """
    if vectors is None:
        return build_vocabulary(train_words, lowercase=lowercase), None, ()
    if vectors == "auto":
        found = require("embeddings", root)
        path = found.path(found.form.files[0].name)
    else:
        path = Path(vectors).expanduser()
    words = {*train_words, *test_words}
    vocabulary, matrix = read_vectors(path, words, dimensions=dimensions, lowercase=lowercase)
    note = f"Word vectors: {path.name}, {matrix.shape[1]} dimensions; the paper used {stands_in_for}."
    return vocabulary, matrix, (note,)
