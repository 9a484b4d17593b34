"""Column files: one word per line, a blank line between sentences, and a column with the entity tag."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from activebias.lab.data.tags import to_bilou
from activebias.training.reading import DataError, read_lines

_DOCUMENT_START = "-DOCSTART-"

# The columns of CoNLL-2012, counted from 0.
_CONLL2012_WORD, _CONLL2012_ENTITY, _CONLL2012_LEAST = 3, 10, 12


@dataclass(frozen=True)
class TaggedText:
    """Sentences as (words, BILOU tags), and the number of document marks.

    A ``-DOCSTART-`` line marks a document. It is not a sentence and is left out. The paper's token counts
    include these lines: ``num_tokens + num_documents`` is the paper's number.
    """

    sentences: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    num_documents: int = 0

    @property
    def num_tokens(self) -> int:
        """Return the number of words, without document marks."""
        return sum(len(words) for words, _ in self.sentences)


def read_columns(
    path: Path, *, types: Iterable[str], scheme: str, num_columns: int | None = None
) -> TaggedText:
    r"""Read a file with the word in the first column and the tag (IOB1, IOB2 or BIO) in the last.

    Columns are separated by tabs, or by spaces if a line has no tab. ``num_columns=None``: as many as in the
    first line, at least 2.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train"
    ...     _ = path.write_text("-DOCSTART- O\n\nAda B-PER\nLovelace I-PER\nwrote O\n")
    ...     text = read_columns(path, types=["PER"], scheme="bio")
    >>> text.sentences, text.num_documents
    (((('Ada', 'Lovelace', 'wrote'), ('B-PER', 'L-PER', 'O')),), 1)
    """
    allowed = tuple(types)
    sentences: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    num_documents = 0
    words: list[str] = []
    tags: list[str] = []
    numbers: list[int] = []

    def finish() -> None:
        if words:
            converted = to_bilou(tags, scheme, types=allowed, where=_lines(path, numbers))
            sentences.append((tuple(words), tuple(converted)))
        words.clear()
        tags.clear()
        numbers.clear()

    for number, line in read_lines(path):
        if not line.strip(" \t"):
            finish()
            continue
        pieces = _split(line)
        if num_columns is None:
            num_columns = max(len(pieces), 2)
        if len(pieces) != num_columns or not pieces[0]:
            raise DataError(
                f"{path}, line {number}: {len(pieces)} columns where {num_columns} are expected: correct the "
                "line."
            )
        if pieces[0] == _DOCUMENT_START:
            num_documents += 1
            finish()
            continue
        words.append(pieces[0])
        tags.append(pieces[-1])
        numbers.append(number)
    finish()
    if not sentences:
        raise DataError(f"{path} holds no sentence: get it again.")
    return TaggedText(tuple(sentences), num_documents)


def read_conll2012(paths: Sequence[Path], *, types: Iterable[str]) -> TaggedText:
    r"""Read CoNLL-2012 files, whose entities are bracketed: ``(PERSON*``, ``*``, ``*)``, ``(GPE)``.

    >>> import tempfile
    >>> row = "nw/a 0 {} {} NN * - - - - {} -\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.gold_conll"
    ...     _ = path.write_text(row.format(0, "Ada", "(PERSON*") + row.format(1, "Lovelace", "*)"))
    ...     read_conll2012([path], types=["PERSON"]).sentences
    ((('Ada', 'Lovelace'), ('B-PERSON', 'L-PERSON')),)
    """
    allowed = tuple(types)
    sentences: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for path in paths:
        words: list[str] = []
        tags: list[str] = []
        numbers: list[int] = []
        inside: str | None = None
        # The additional blank line ends the last sentence.
        for number, line in [*read_lines(path), (0, "")]:
            if line.startswith(("#begin", "#end")):
                continue
            if not line.strip():
                if inside is not None:
                    raise DataError(
                        f"{path}, line {numbers[-1]}: the entity {inside} is not closed: correct the file."
                    )
                if words:
                    converted = to_bilou(tags, "bio", types=allowed, where=_lines(path, numbers))
                    sentences.append((tuple(words), tuple(converted)))
                words, tags, numbers = [], [], []
                continue
            pieces = line.split()
            if len(pieces) < _CONLL2012_LEAST:
                raise DataError(
                    f"{path}, line {number}: {len(pieces)} columns where at least {_CONLL2012_LEAST} are "
                    "expected: correct the line."
                )
            tag, inside = _bracket_tag(pieces[_CONLL2012_ENTITY], inside, f"{path}, line {number}")
            words.append(pieces[_CONLL2012_WORD])
            tags.append(tag)
            numbers.append(number)
    if not sentences:
        raise DataError(f"No sentence in {len(paths)} CoNLL-2012 files: get them again.")
    return TaggedText(tuple(sentences))


def _lines(path: Path, numbers: Sequence[int]) -> Callable[[int], str]:
    """Return a function from a word's position to its line, for errors."""
    return lambda position: f"{path}, line {numbers[position]}"


def _bracket_tag(mark: str, inside: str | None, where: str) -> tuple[str, str | None]:
    """Return the BIO tag of one bracket mark, and the type of the entity that is open after it."""
    kind = mark.strip("()*")
    opens, closes = mark.startswith("("), mark.endswith(")")
    well_formed = mark in ("*", "*)") if not opens else mark in (f"({kind}*", f"({kind})", f"({kind}*)")
    if not well_formed or (opens and (inside is not None or not kind)) or (mark == "*)" and inside is None):
        raise DataError(f"{where}: {mark!r} is not a valid entity bracket here: correct the line.")
    if opens:
        return f"B-{kind}", None if closes else kind
    return ("O" if inside is None else f"I-{inside}"), None if closes else inside


def _split(line: str) -> list[str]:
    if "\t" in line:
        return [piece.strip(" ") for piece in line.rstrip("\t ").split("\t")]
    # Not str.split(), because tweets have unusual blanks inside words.
    return [piece for piece in line.split(" ") if piece]
