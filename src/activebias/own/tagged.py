"""Tagged text of the user: a word and its tag per line, a blank line between sentences (CoNLL)."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from activebias.internal import IGNORED
from activebias.own.data import (
    OwnData,
    Validation,
    divide,
    encode_labels,
    listing,
    note_small_classes,
    require_file,
    validation_setting,
)
from activebias.own.duplicates import Conflicts, find_conflicts, note_duplicates
from activebias.own.splits import Split, identity_of
from activebias.own.targets import note_case
from activebias.runs.contents import Inputs
from activebias.runs.folder import require_pandas
from activebias.runs.suspects import excerpt
from activebias.training.examples import Examples
from activebias.training.reading import read_lines
from activebias.training.words import SHAPE_NAMES, word_shape

Sentence = tuple[tuple[str, ...], tuple[str, ...]]
"""Words and their tags."""

PADDING, UNKNOWN = 0, 1
# Two kinds of sentences, each in both parts.
FEWEST = 4


def read_tagged(path: Path, *, validation: Validation, seed: int) -> OwnData:
    """Read a CoNLL file: the first column is the word, the last column its tag, with any tags.

    `validation` is a share of the sentences, another file, or the division of an earlier run. Words that
    occur only once in the training part count as unknown, so that the model learns to handle unknown words.
    """
    pd = require_pandas("Reading tagged text")
    sentences, skipped = _read(path)
    num_first = len(sentences)
    if isinstance(validation, Path):
        more, more_skipped = _read(validation)
        sentences, skipped = sentences + more, skipped + more_skipped
    class_names, labels = encode_labels([tag for _, tags in sentences for tag in tags], str(path))
    number_of: dict[tuple[str, ...], int] = {}
    copies = [number_of.setdefault(words, len(number_of)) for words, _ in sentences]
    digests = [hashlib.sha256("\n".join(words).encode()).hexdigest() for words, _ in sentences]
    identity = identity_of(digests)
    if isinstance(validation, Path):
        train, held_out = np.arange(num_first), np.arange(num_first, len(sentences))
    elif isinstance(validation, Split):
        train, held_out = validation.divide(identity, path)
    else:
        train, held_out = _divide(sentences, copies, validation, seed)
    lengths = np.array([len(words) for words, _ in sentences])
    tags = np.split(labels, np.cumsum(lengths)[:-1])
    unknown = _only_in(held_out, train, tags, class_names)
    if unknown and isinstance(validation, Path):
        raise ValueError(f"{validation} has tags that {path} does not have: {listing(unknown)}.")
    counts = Counter(word.lower() for k in train for word in sentences[k][0])
    number = {word: k for k, word in enumerate((w for w in sorted(counts) if counts[w] > 1), UNKNOWN + 1)}
    position = np.concatenate([np.arange(num_first), np.arange(len(sentences) - num_first)])
    in_train, order = np.isin(np.arange(len(sentences)), train), np.concatenate([train, held_out])
    conflicts = _find_conflicts(sentences, copies, in_train, position)
    return OwnData(
        kind="tagging",
        source=str(path),
        class_names=class_names,
        train=_examples([sentences[k] for k in train], [tags[k] for k in train], number),
        validation=_examples([sentences[k] for k in held_out], [tags[k] for k in held_out], number),
        train_position=position[train],
        validation_position=position[held_out],
        inputs=Inputs(rows=pd.DataFrame({"word": [word for k in order for word in sentences[k][0]]})),
        model={
            "name": "SmallTagger",
            "arguments": {
                "num_words": len(number) + UNKNOWN + 1,
                "num_shapes": len(SHAPE_NAMES),
                "num_classes": len(class_names),
            },
        },
        learning_rate=2e-3,
        conflicts=conflicts,
        identity=identity[order],
        settings={"validation": validation_setting(validation)},
        window=5,  # the paper's window for tagging
        skipped=tuple(skipped),
        notes=(
            *note_case([tag for _, tags in sentences for tag in tags], str(path)),
            *note_duplicates("sentences", copies, in_train),
            *conflicts.note("words"),
            *note_small_classes(class_names, labels),
            *(validation.notes("sentences", identity) if isinstance(validation, Split) else ()),
        ),
    )


def _find_conflicts(
    sentences: list[Sentence], copies: list[int], in_train: NDArray[np.bool_], position: NDArray[np.int64]
) -> Conflicts:
    """Find words with different tags in copies of the same sentence."""
    lengths = [len(words) for words, _ in sentences]
    sentence_of = np.repeat(np.arange(len(sentences)), lengths)
    place = np.concatenate([np.arange(length) for length in lengths])

    def describe(members: Sequence[int]) -> list[str]:
        found = [(sentences[sentence_of[k]][0], place[k]) for k in members]
        return [f"{words[number]} in “{excerpt(' '.join(words))}”" for words, number in found]

    return find_conflicts(
        list(zip(np.repeat(copies, lengths).tolist(), place.tolist(), strict=True)),
        [tag for _, tags in sentences for tag in tags],
        in_train=np.repeat(in_train, lengths),
        position=np.repeat(position, lengths),
        more={"word": place.tolist()},
        describe=describe,
    )


def _read(path: Path) -> tuple[list[Sentence], list[dict[str, str]]]:
    """Return the sentences; a line without a word and a tag is skipped and listed."""
    skipped: list[dict[str, str]] = []
    lines = words_of_lines(path, lambda what, why: skipped.append({"what": what, "why": why}))
    sentences = [(tuple(word for _, word, _ in each), tuple(tag for *_, tag in each)) for each in lines]
    if not sentences:
        raise ValueError(
            f"{path} holds no sentence: each line must be a word and its tag, separated by a tab or blank."
        )
    for first in (0, 1):
        if all(words == tuple(map(str, range(first, first + len(words)))) for words, _ in sentences):
            raise ValueError(
                f"Expected the first column of {path} to be the words, but got their numbers: put the word "
                "first and its tag last."
            )
    return sentences, skipped


def words_of_lines(
    path: Path, on_skipped: Callable[[str, str], object] = lambda what, why: None
) -> list[list[tuple[int, str, str]]]:
    """Return (line number, word, tag) of the words of every sentence; tell of the lines that are skipped."""
    require_file(path, "a file with a word and its tag per line")
    sentences: list[list[tuple[int, str, str]]] = [[]]
    lines = [(number, line.removeprefix("\ufeff")) for number, line in read_lines(path)]
    shapes = Counter(_shape(line) for _, line in lines if line.strip(" \t"))
    usual = max(shapes, key=shapes.__getitem__, default=None)
    for number, line in lines:
        if not line.strip(" \t"):
            sentences.append([])
            continue
        pieces = _pieces(line)
        # In a file of two columns, "# O" is the word "#" with its tag, not a comment.
        if pieces[0] == "-DOCSTART-" or (line.startswith("# ") and _shape(line) != usual):
            continue
        if len(pieces) < 2 or not pieces[0].strip() or not pieces[-1].strip():
            on_skipped(f"line {number} of {path}", f"{line.strip()!r} is not a word with a tag")
            continue
        sentences[-1].append((number, pieces[0].strip(" "), pieces[-1].strip(" ")))
    return [sentence for sentence in sentences if sentence]


def _pieces(line: str) -> list[str]:
    """Return the columns of a line. Not str.split(): tweets have unusual blanks inside words."""
    return line.split("\t") if "\t" in line else [piece for piece in line.split(" ") if piece]


def _shape(line: str) -> tuple[bool, int]:
    """Return the separator and the number of columns of a line: a comment differs from the other lines."""
    return "\t" in line, len(_pieces(line))


def _divide(
    sentences: list[Sentence], copies: list[int], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide by sentences; both parts have the same share of sentences with a tag other than the usual."""
    if (number := len(set(copies))) < FEWEST:
        raise ValueError(
            f"Expected at least {FEWEST} different sentences to train and validate on, but got {number}: put "
            "a blank line after every sentence."
        )
    usual = Counter(tag for _, tags in sentences for tag in tags).most_common(1)[0][0]
    has_other = np.array([any(tag != usual for tag in tags) for _, tags in sentences], dtype=np.int64)
    if min(np.bincount(has_other, minlength=2)) < 2:
        has_other = np.arange(len(sentences)) % 2  # too few sentences of a kind to divide
    return divide(has_other, copies, share=share, seed=seed)


def _only_in(
    here: NDArray[np.int64], there: NDArray[np.int64], tags: list[NDArray[np.int64]], names: tuple[str, ...]
) -> list[str]:
    def present(part: NDArray[np.int64]) -> set[int]:
        return {int(tag) for k in part for tag in tags[k]}

    return [names[k] for k in sorted(present(here) - present(there))]


def _examples(sentences: list[Sentence], tags: list[NDArray[np.int64]], number: dict[str, int]) -> Examples:
    lengths = torch.tensor([len(words) for words, _ in sentences])
    size = (len(lengths), int(lengths.max()))
    inside = torch.arange(size[1]) < lengths.unsqueeze(1)
    tokens = torch.zeros((*size, 2), dtype=torch.int64)
    targets = torch.full(size, IGNORED, dtype=torch.int64)
    flat = [word for words, _ in sentences for word in words]
    numbers = [(number.get(word.lower(), UNKNOWN), word_shape(word)) for word in flat]
    tokens[inside] = torch.tensor(numbers)
    targets[inside] = torch.from_numpy(np.concatenate(tags))
    return Examples((tokens,), targets, lengths)
