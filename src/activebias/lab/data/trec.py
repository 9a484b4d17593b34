"""TREC question type (Li and Roth, 2002): latin-1 text, one ``COARSE:fine question`` per line."""

from collections.abc import Sequence
from pathlib import Path

import torch

from activebias.lab.data.dataset import Dataset
from activebias.lab.data.sources import Found, require
from activebias.lab.data.vectors import Vocabulary, vocabulary_for
from activebias.training.examples import Examples
from activebias.training.reading import DataError, read_lines

TREC_NAMES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_TRAIN_FILES = {1000: "train_1000.label", 5500: "train_5500.label"}

Question = tuple[tuple[str, ...], int]


def read_questions(path: Path) -> list[Question]:
    """Read (words, coarse class) of each question.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.label"
    ...     _ = path.write_text("LOC:city Where is it ?\\n")
    ...     read_questions(path)
    [(('Where', 'is', 'it', '?'), 4)]
    """
    questions = []
    for number, line in read_lines(path, "latin-1"):
        if not line.strip(" "):
            continue
        label, _, text = line.partition(" ")
        coarse, separator, fine = label.partition(":")
        words = tuple(word for word in text.split(" ") if word)
        if not separator or not fine or not words:
            raise DataError(f"{path}, line {number}: expected `COARSE:fine question`: correct the line.")
        if coarse not in TREC_NAMES:
            raise DataError(
                f"{path}, line {number}: the class {coarse!r} is not one of {', '.join(TREC_NAMES)}: correct "
                "the line."
            )
        questions.append((words, TREC_NAMES.index(coarse)))
    if not questions:
        raise DataError(f"{path} holds no question: get it again.")
    return questions


def load_trec(
    root: str | Path | None = None,
    *,
    train_size: int = 1000,
    vectors: str | Path | None = "auto",
    dimensions: int | None = 50,
    lowercase: bool = True,
    verify: bool = True,
) -> Dataset:
    """Load TREC with ``train_size`` 1000 (the paper's training set) or 5500 (all 5,452 questions).

    ``vectors``: "auto" (the vectors in the data folder), a file in text form, or None; more than
    ``dimensions`` are reduced by PCA. Training and test questions are padded to one common length.
    """
    if train_size not in _TRAIN_FILES:
        raise DataError(f"Expected `train_size` to be 1000 or 5500, but got {train_size}.")
    found = require("trec", root, verify=verify)
    train, test = _train_questions(found, train_size), read_questions(found.path("TREC_10.label"))
    vocabulary, matrix, notes = vocabulary_for(
        (word for words, _ in train for word in words),
        (word for words, _ in test for word in words),
        vectors=vectors,
        dimensions=dimensions,
        lowercase=lowercase,
        root=root,
        stands_in_for="word2vec, 300 dimensions reduced to 50 by PCA",
    )
    length = max(len(words) for words, _ in [*train, *test])
    return Dataset(
        "trec",
        _examples(train, vocabulary, length),
        _examples(test, vocabulary, length),
        len(TREC_NAMES),
        TREC_NAMES,
        embedding=matrix,
        vocabulary=vocabulary.words,
        notes=notes,
    )


def _train_questions(found: Found, train_size: int) -> list[Question]:
    path = found.path(_TRAIN_FILES[train_size])
    if path.exists():
        return read_questions(path)
    if train_size == 1000:
        # The official small training set is the beginning of the large training set.
        return read_questions(found.path(_TRAIN_FILES[5500]))[:1000]
    raise DataError(f"{path} is missing: run `activebias data get trec`, or put the file there.")


def _examples(questions: Sequence[Question], vocabulary: Vocabulary, length: int) -> Examples:
    ids = torch.zeros(len(questions), length, dtype=torch.int64)
    for row, (words, _) in enumerate(questions):
        ids[row, : len(words)] = torch.tensor(vocabulary.ids(words))
    lengths = torch.tensor([len(words) for words, _ in questions])
    return Examples((ids,), torch.tensor([label for _, label in questions]), lengths)
