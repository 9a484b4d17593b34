"""Corrections of labels: a CSV file that the report exports, or a person writes, checked against its run.

The file has the columns that say where an instance is (`row`, `file`, or `sentence` and `word`), `label` and
`new_label`. Other columns are ignored. A row with an empty `new_label`, or with the old one, changes nothing.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from activebias.internal import did_you_mean
from activebias.runs.cells import safe_cell
from activebias.runs.contents import places_of
from activebias.runs.folder import RunFolder

Value = TypeVar("Value")

# The most problems that an error names.
SHOWN = 5


class Correction(NamedTuple):
    """An instance of a run, by its number, and the name of its new class."""

    instance: int
    label: str


def read_corrections(path: Path, folder: RunFolder) -> list[Correction]:
    """Read the corrections that change a label; raise if the file does not fit the run."""
    lines, names = _read_lines(path), folder.info.class_names
    labels = [names[label] for label in folder.instances().label]
    columns, keys = _places(folder)
    _check_columns(path, lines, [*columns, "label", "new_label"])
    instance_of = _as_written(keys, range(len(keys)))
    class_of = _as_written([(name,) for name in names], names)
    found: dict[int, str] = {}
    problems: list[str] = []
    for line in lines:
        key = tuple(line[column].strip() for column in columns)
        what = ", ".join(f"{column} {cell}" for column, cell in zip(columns, key, strict=True))
        instance, new = instance_of.get(key), line["new_label"].strip()
        if instance is None:
            problems.append(f"{what} is not in the run")
        elif class_of.get((line["label"].strip(),)) != labels[instance]:
            problems.append(f"{what} has the label {labels[instance]!r} in the run, not {line['label']!r}")
        elif new and (new,) not in class_of:
            hint = did_you_mean(new, names).strip()
            problems.append(f"{what} has {new!r}, which is not a class of the run{hint and f' ({hint})'}")
        elif new and found.setdefault(instance, class_of[new,]) != class_of[new,]:
            problems.append(f"{what} stands twice, with different new labels")
    if problems:
        more = f" And {len(problems) - SHOWN} more." if len(problems) > SHOWN else ""
        raise ValueError(f"{path} does not fit {folder.path}: {'; '.join(problems[:SHOWN])}.{more}")
    return [Correction(k, new) for k, new in sorted(found.items()) if new != labels[k]]


def _places(folder: RunFolder) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the columns that tell the instances apart, and their cells for every instance."""
    instances = folder.instances()
    places = places_of(folder.info.kind, instances, folder.inputs())
    keys = [tuple(map(str, key)) for key in zip(*places.values(), strict=True)]
    if len(set(keys)) == len(keys):
        return [*places], keys
    # A separate validation file has row numbers of its own.
    parts = ["validation" if flag else "training" for flag in instances.in_validation]
    return [*places, "part"], [(*key, part) for key, part in zip(keys, parts, strict=True)]


def _as_written(keys: Sequence[tuple[str, ...]], values: Sequence[Value]) -> dict[tuple[str, ...], Value]:
    """Return the value of every key, and of the key with the apostrophes that our CSV files have."""
    plain = dict(zip(keys, values, strict=True))
    return {tuple(map(safe_cell, key)): value for key, value in plain.items()} | plain


def _read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines as dicts; a spreadsheet may have written semicolons or tabs."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}: export corrections.csv from the report of the run.")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            separator = max(",;\t", key=file.readline().count)
            file.seek(0)
            reader = csv.DictReader(file, delimiter=separator, restval="")
            return [{name: line[name] for name in reader.fieldnames or ()} for line in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read ({error}): save it as CSV in UTF-8.") from error


def _check_columns(path: Path, lines: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    if not lines:
        raise ValueError(f"{path} has no rows: export corrections.csv from the report of the run.")
    if missing := [name for name in columns if name not in lines[0]]:
        raise ValueError(
            f"{path} lacks {', '.join(missing)}: it needs the columns {', '.join(columns)}. Its columns are "
            f"{', '.join(lines[0])}."
        )
