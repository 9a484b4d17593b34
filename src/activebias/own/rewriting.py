"""Tables and tagged text with some labels replaced, and every other character as it was."""

import gzip
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from activebias.own.tagged import words_of_lines
from activebias.training.reading import DataError, read_bytes

BOM = "\ufeff"


def corrected_csv(
    text: str, separator: str, target: str, new_labels: Mapping[int, str], like: Mapping[str, int]
) -> str:
    """Return the text with new labels in some rows, counted from 0 without the header.

    A new label is written as in the row `like[label]`, so that 2.0 and quoted labels stay so; a label that no
    row has is quoted if necessary.

    >>> corrected_csv('x;y\\n1;"a"\\n2;b', ";", "y", {1: "a"}, {"a": 0})
    'x;y\\n1;"a"\\n2;"a"'
    """
    rows = _records(text, separator)
    header = next(rows)
    column = [_unquoted(text[start:end]) for start, end in header].index(target)
    cells = [row[column] if column < len(row) else None for row in rows]
    pieces, end = [], 0
    for row, label in sorted(new_labels.items()):
        span = cells[row] if row < len(cells) else None
        if span is None:
            raise DataError(f"Row {row} has no column {target!r}.")
        example = cells[like[label]] if label in like else None
        raw = _quoted(label, separator) if example is None else text[slice(*example)]
        pieces += [text[end : span[0]], raw]
        end = span[1]
    return "".join([*pieces, text[end:]])


def _records(text: str, separator: str) -> Iterator[list[tuple[int, int]]]:
    """Yield the places of the fields of every record; blank lines are no records, as in pandas."""
    other = f"[^{re.escape(separator)}\\r\\n]*"
    field = re.compile(f'"(?:[^"]|"")*"{other}|{other}')
    blank = re.compile(r"[ \t]*(?:\r\n|\r|\n|\Z)" if separator != "\t" else r" *(?:\r\n|\r|\n|\Z)")
    place = len(BOM) if text.startswith(BOM) else 0
    while place < len(text):
        if empty := blank.match(text, place):
            place = empty.end()
            continue
        record = []
        while True:
            found = field.match(text, place)
            assert found is not None  # the pattern matches the empty text too
            record.append(found.span())
            place = found.end()
            if place >= len(text) or text[place] != separator:
                break
            place += 1
        yield record
        place += 2 if text.startswith("\r\n", place) else 1


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _quoted(label: str, separator: str) -> str:
    if any(character in label for character in (separator, '"', "\n", "\r")):
        return '"' + label.replace('"', '""') + '"'
    return label


def corrected_parquet(
    path: Path, target: str, new_labels: Mapping[int, str], like: Mapping[str, int]
) -> bytes:
    """Return a parquet file with new labels in some rows, in the column's own type."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(path)
    number = table.schema.get_field_index(target)
    values = table.column(number).to_pylist()
    examples = {label: values[row] for label, row in like.items()}
    for row, label in new_labels.items():
        values[row] = examples[label]
    field = table.schema.field(number)
    table = table.set_column(number, field, pa.array(values, type=field.type))
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def corrected_tags(path: Path, new_tags: Mapping[tuple[int, int], str]) -> bytes:
    """Return tagged text with new tags for some words, given as (sentence, word) from 0."""
    content = read_bytes(path)
    lines = content.split(b"\n")
    sentences = words_of_lines(path)
    for (sentence, word), new in new_tags.items():
        number, _, tag = sentences[sentence][word]
        line = lines[number - 1]
        end = len(line.rstrip(b" \r"))  # the tag is the last column
        lines[number - 1] = line[: end - len(tag.encode())] + new.encode() + line[end:]
    return packed_as(path, b"\n".join(lines))


def packed_as(source: Path, content: bytes) -> bytes:
    """Return the content of a file, gzipped if the source is."""
    with open(source, "rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
    return gzip.compress(content, mtime=0) if is_gzipped else content
