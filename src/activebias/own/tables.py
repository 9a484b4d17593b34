"""Tables of the user: CSV, TSV or parquet, with numbers, categories and text in any mixture."""

import csv
import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from activebias.internal import did_you_mean
from activebias.own.columns import NUM_HASHES, Column, features, hashed_words, read_column
from activebias.own.data import (
    Divided,
    OwnData,
    Validation,
    divide,
    encode_labels,
    listing,
    note_small_classes,
    require_file,
    validation_setting,
)
from activebias.own.duplicates import COLUMNS, Conflicts, find_conflicts, note_duplicates
from activebias.own.splits import Split
from activebias.own.targets import note_target
from activebias.runs.contents import Inputs, Kind, identifiers_beside
from activebias.runs.folder import require_pandas
from activebias.runs.suspects import describer, excerpt
from activebias.training.reading import DataError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# A target with more different numbers is a quantity, unless the table has many rows per number.
MOST_CLASSES = 100
# The run folder keeps so many of the columns that identify the rows.
MOST_IDENTIFIERS = 2
# Words that pandas reads as a missing value. In a column of word labels, they are labels.
MISSING_WORDS = ("NA", "N/A", "n/a", "None", "NULL", "null")
PACKED = (".zip", ".bz2", ".xz", ".zst", ".tar")


def read_table(path: Path, *, target: str, validation: Validation, seed: int) -> OwnData:
    """Read a table whose column `target` holds the labels; rows without a label are skipped and listed.

    A label is missing if its cell is empty or NaN. If the labels are words, None and NA are classes;
    in other columns they are missing values. `validation` is a share, another file with the same columns, or
    the division of an earlier run.
    """
    pd = require_pandas("Reading a table")
    frame, notes = read_frame(path, target)
    _check_columns(frame, target, path)
    num_rows = len(frame)
    if isinstance(validation, Path):
        more, more_notes = read_frame(validation, target)
        notes += more_notes
        if missing := [str(name) for name in frame.columns if name not in more.columns]:
            raise ValueError(f"{validation} lacks columns that {path} has: {listing(missing)}.")
        frame = pd.concat([frame, more[frame.columns]], ignore_index=True)
    return table_data(
        frame, num_rows, path=path, target=target, validation=validation, seed=seed, notes=notes
    )


def table_data(
    frame: "DataFrame",
    num_rows: int,
    *,
    path: Path,
    target: str,
    validation: Validation,
    seed: int,
    notes: list[str],
) -> OwnData:
    """Prepare a table from `path`; the rows after the first `num_rows` are those of a validation file."""
    pd = require_pandas("Reading a table")
    labelled = labels_of(frame[target]).notna().to_numpy()
    position = np.concatenate([np.arange(num_rows), np.arange(len(frame) - num_rows)])
    in_validation = np.arange(len(frame)) >= num_rows
    skipped = [
        {
            "what": f"row {position[k]} of {(path, validation)[int(in_validation[k])]}",
            "why": "it has no label",
        }
        for k in np.flatnonzero(~labelled)
    ]
    frame, position, in_validation = (
        frame[labelled].reset_index(drop=True),
        position[labelled],
        in_validation[labelled],
    )
    texts = labels_of(frame[target]).tolist()
    _refuse_quantities(frame[target], target, path)
    notes += note_target(frame[target], texts, target)
    class_names, labels = encode_labels(texts, f"Column {target!r} of {path}")
    columns = [read_column(frame[name]) for name in frame.columns if name != target]
    used = [column for column in columns if column.role != "nothing"]
    reasons = " ".join(column.note for column in columns if column.role == "nothing")
    if not used:
        raise ValueError(f"{path} has no column to learn {target!r} from. {reasons}".rstrip())
    # Only the columns in use: with a row number or identifier, no two rows would be equal.
    inputs = frame[[column.name for column in used]].astype(str)
    copies = pd.util.hash_pandas_object(inputs, index=False).to_numpy()
    identity = _identity(frame.drop(columns=target))
    if isinstance(validation, Path):
        parts = (np.flatnonzero(~in_validation), np.flatnonzero(in_validation))
        divided = Divided(class_names, labels, *parts)
        divided.check(path, validation)
    elif isinstance(validation, Split):
        divided = Divided(class_names, labels, *validation.divide(identity, path))
    else:
        try:
            parts = divide(labels, copies, share=validation, seed=seed)
        except ValueError as error:  # perhaps because of the columns that are not used
            raise ValueError(f"{error} {reasons}".rstrip()) from None
        divided = Divided(class_names, labels, *parts)
    names = [column.name for column in columns if column.identifies][:MOST_IDENTIFIERS]
    identifiers = frame[names].apply(labels_of) if names else None
    conflicts = find_conflicts(
        copies.tolist(),
        texts,
        in_train=divided.in_train,
        position=position,
        describe=lambda members: _descriptions(frame.iloc[members], used),
        more=identifiers_beside(COLUMNS, identifiers),
    )
    notes += [column.note for column in columns if column.note]
    notes += [
        *_note_words_for_missing(texts, target),
        *_note_missing(used),
        *note_duplicates("rows", copies.tolist(), divided.in_train),
        *conflicts.note("rows"),
        *note_small_classes(class_names, labels),
        *(validation.notes("rows", identity) if isinstance(validation, Split) else ()),
    ]
    data = _own_data(path, frame, used, divided, position, conflicts, identity, identifiers)
    settings = {"target": target, "validation": validation_setting(validation)}
    return replace(data, settings=settings, skipped=tuple(skipped), notes=tuple(notes))


def _identity(frame: "DataFrame") -> NDArray[np.uint64]:
    """Return a digest of every row, which does not depend on the order of the columns or on other rows.

    Numbers count as float64: a whole number is read as a float if its column has a gap somewhere.
    """
    pd = require_pandas("Reading a table")
    kinds = pd.api.types
    numeric = {
        name: kinds.is_numeric_dtype(frame[name]) and not kinds.is_complex_dtype(frame[name])
        for name in sorted(frame.columns)
    }
    columns = {name: frame[name].astype("float64" if flag else str) for name, flag in numeric.items()}
    digests: NDArray[np.uint64] = pd.util.hash_pandas_object(pd.DataFrame(columns), index=False).to_numpy()
    return digests


def _kind(columns: list[Column]) -> Kind:
    return "text" if any(column.role == "text" for column in columns) else "table"


def _shown(frame: "DataFrame", columns: list[Column]) -> "DataFrame":
    """Return the columns that show a row to a person, text columns first."""
    return frame[[column.name for column in sorted(columns, key=lambda column: column.role != "text")]]


def _descriptions(frame: "DataFrame", columns: list[Column]) -> list[str]:
    describe = describer(Inputs(rows=_shown(frame, columns)), _kind(columns))
    return [describe(k) for k in range(len(frame))]


def _own_data(
    path: Path,
    frame: "DataFrame",
    columns: list[Column],
    divided: Divided,
    position: NDArray[np.int64],
    conflicts: Conflicts,
    identity: NDArray[np.uint64],
    identifiers: "DataFrame | None",
) -> OwnData:
    text = [column for column in columns if column.role == "text"]
    tensors = (features(frame, columns, divided.train), *(hashed_words(text) if text else ()))
    train, validation = divided.examples(*tensors)
    rows = _shown(frame, columns).iloc[divided.order].reset_index(drop=True)
    for name in rows.columns:
        if rows[name].dtype == object:  # a parquet column has one type
            rows[name] = rows[name].map(str, na_action="ignore")
    if identifiers is not None:
        identifiers = identifiers.iloc[divided.order].reset_index(drop=True)
    return OwnData(
        kind=_kind(columns),
        source=str(path),
        class_names=divided.class_names,
        train=train,
        validation=validation,
        train_position=position[divided.train],
        validation_position=position[divided.held_out],
        inputs=Inputs(rows=rows, identifiers=identifiers),
        model={
            "name": "RowNet",
            "arguments": {
                "num_features": tensors[0].shape[1],
                "num_words": NUM_HASHES + 1 if text else 0,
                "num_classes": len(divided.class_names),
            },
        },
        learning_rate=5e-3,
        conflicts=conflicts,
        identity=identity[divided.order],
    )


def read_frame(path: Path, target: str) -> tuple["DataFrame", list[str]]:
    """Return the table, and notes on how it was read."""
    pd = require_pandas("Reading a table")
    notes: list[str] = []
    require_file(path, "a CSV, TSV or parquet file")
    if path.suffix.lower() in PACKED:
        raise ValueError(f"{path} is packed: unpack it, or pack it with gzip (.csv.gz).")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            frame = pd.read_parquet(path)
        else:
            frame, notes = _read_csv(path, target)
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8.") from error
    except Exception as error:  # parsers raise many exception types
        text = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read as a table ({text}): check the file.") from error
    if frame.empty:
        raise ValueError(f"{path} has no rows.")
    return frame.rename(columns=str).reset_index(drop=True), notes


def _read_csv(path: Path, target: str) -> tuple["DataFrame", list[str]]:
    """Read a text file. MISSING_WORDS are missing values, except in a target column of words."""
    pd = require_pandas("Reading a table")
    read = partial(pd.read_csv, path, sep=separator_of(path))
    frame, notes = read(low_memory=False), []
    line, num_fields, num_names = _first_row(path)
    if num_fields > num_names:
        # pandas takes the first fields of rows that are longer than the header for names of the rows.
        names, num_extra = list(frame.columns), num_fields - num_names
        read = partial(read, header=0, names=[*names, *range(num_extra)])
        extra = read(keep_default_na=False, dtype=str).iloc[:, -num_extra:]
        if (extra.fillna("").apply(lambda column: column.str.strip()) != "").any(axis=None):
            raise DataError(
                f"{path}: line {line} has {num_fields} fields, but the header has {num_names}. Name every "
                "column in the header, also a column of row numbers, and put fields that contain a separator "
                "in quotes."
            )
        frame = read(low_memory=False)[names]
        notes.append(f"The rows of {path} end with a separator that the header lacks: it is ignored.")
    header = read(header=None, names=None, nrows=1, keep_default_na=False, dtype=str).iloc[0].str.strip()
    again = [k for k, name in enumerate(header) if name == target and frame.columns[k] != target]
    if target in frame and again:
        # pandas renames the second y to y.1. As a feature, it would tell the model the label.
        labels, left_out = frame.columns.get_loc(target) + 1, ", ".join(str(k + 1) for k in again)
        notes.append(
            f"{path} has {len(again) + 1} columns named {target!r}: column {labels} holds the labels; left "
            f"out: {left_out}."
        )
        frame = frame.drop(columns=frame.columns[again])
    if target in frame and frame[target].hasnans and not pd.api.types.is_numeric_dtype(frame[target]):
        as_written = read(keep_default_na=False, dtype=str)[target]
        words = as_written.str.strip().isin(MISSING_WORDS)
        frame.loc[words, target] = as_written[words]
    return frame, notes


def _first_row(path: Path) -> tuple[int, int, int]:
    """Return the line of the first row, and the number of fields of this row and of the header."""
    usual = csv.field_size_limit(sys.maxsize)  # a text may be long
    try:
        with _opened(path) as file:
            lines = csv.reader(file, delimiter=separator_of(path))
            written = (fields for fields in lines if len(fields) > 1 or "".join(fields).strip())
            (_, num_names), (line, num_fields), *_ = [
                *((lines.line_num, len(fields)) for fields in islice(written, 2)),
                *[(0, 0)] * 2,
            ]
    finally:
        csv.field_size_limit(usual)
    return line, num_fields, num_names


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open a text file, plain or gzipped, without its byte order mark."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        yield file


def separator_of(path: Path) -> str:
    """Return the separator of the header: comma, semicolon or tab, whichever is most frequent."""
    with _opened(path) as file:
        first = next((line for line in file if line.strip()), "")
    return max(",;\t", key=re.sub('"[^"]*"', "", first).count)


def refuse_equal_names(frame: "DataFrame", path: Path) -> None:
    """Refuse a table with several columns of one name."""
    twice = frame.columns[frame.columns.duplicated()].unique()
    if len(twice):
        raise ValueError(f"{path} has several columns named {listing(sorted(twice))}: rename them.")


def _check_columns(frame: "DataFrame", target: str, path: Path) -> None:
    names = [str(name) for name in frame.columns]
    refuse_equal_names(frame, path)
    if target not in names:
        hint = did_you_mean(target, names)
        raise ValueError(f"{path} has no column {target!r}; its columns are {listing(names, 20)}.{hint}")


def labels_of(column: "Series") -> "Series":
    """Return labels as text: 3.0 as 3, without surrounding blanks; blank labels are missing."""

    def text(value: Any) -> str | None:
        if isinstance(value, (list, tuple, set, dict, np.ndarray)):
            raise ValueError(
                f"Expected one label per row, but got {excerpt(str(value), 40)}: choose one of them, or "
                "another column."
            )
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return str(value).strip() or None

    return column.astype(object).map(text, na_action="ignore")


def _refuse_quantities(column: "Series", target: str, path: Path) -> None:
    pd = require_pandas("Reading a table")
    distinct = column.nunique()
    whole = not pd.api.types.is_float_dtype(column) or (column % 1 == 0).all()
    if distinct > MOST_CLASSES and (not whole or distinct > len(column) / 5):
        raise ValueError(
            f"Column {target!r} of {path} has {distinct} different values in {len(column)} rows: that is a "
            "quantity or a name, not a class. Choose another --target, or group the values into classes."
        )
    if not whole and distinct > 20:
        raise ValueError(
            f"Column {target!r} of {path} holds {distinct} different fractions: that is a quantity, not a "
            "class. Choose another --target, or group the values into classes."
        )


def _note_words_for_missing(labels: list[str], target: str) -> list[str]:
    """Return a note on classes that may be meant as missing labels, for the user to decide."""
    counts = Counter(label for label in labels if label in MISSING_WORDS)
    if not counts:
        return []
    words = listing([f"{word!r} ({number})" for word, number in counts.items()])
    return [
        f"Column {target!r} has the label {words}: that is a class. Leave cells empty to skip their rows."
    ]


def _note_missing(columns: list[Column]) -> list[str]:
    missing = [
        f"{column.name} ({number})" for column in columns if (number := int(column.values.isna().sum()))
    ]
    if not missing:
        return []
    return [
        f"Missing values in {listing(missing)}: a missing number is replaced by the median and marked, a "
        "missing word is a category of its own."
    ]
