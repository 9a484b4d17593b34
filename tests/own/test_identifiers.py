"""Columns that identify the rows of a table: not trained on, and shown so that the owner finds a row."""

import csv
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import activebias
import command
from activebias.own.train import train_own
from activebias.runs.folder import read_run
from own_tables import read

KEPT = ("label", "believed", "score", "suspected", "conflict", "duplicate", "part", "instance")
CUSTOMERS = [f"K-{7 * k:04d}" for k in range(178)]


@pytest.fixture
def run(wine, tmp_path):
    """Return a run on wines with four columns that identify the rows; one wine has no number."""
    wine = wine.assign(number=np.arange(178) + 5000, third=[f"T{k}" for k in range(178)])
    wine.insert(0, "saved", np.arange(178))  # the number of the row, as pandas saves it
    wine.insert(1, "index", [None if k == 9 else name for k, name in enumerate(CUSTOMERS)])
    return train_own(read(wine, tmp_path), tmp_path / "run", epochs=2)


def listed(run, path):
    command.run("audit", run.path, "--out", path)
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_first_two_are_kept_and_not_trained_on(run):
    inputs, position = run.inputs(), run.instances().position
    assert list(inputs.identifiers) == ["index", "number"]
    assert inputs.identifiers["number"].tolist() == [str(5000 + k) for k in position]
    assert run.info.model["arguments"]["num_features"] == len(inputs.rows.columns) == 13


def test_the_audit_has_them_behind_the_row(run, tmp_path):
    """A column that is called as one of the audit's gets another name, and its cells are its own."""
    found = listed(run, tmp_path / "suspects.csv")
    assert list(found[0])[:4] == ["row", "index_", "number", "label"]
    for line in found:
        assert line["index_"] == ("" if line["row"] == "9" else CUSTOMERS[int(line["row"])])
        assert line["number"] == str(5000 + int(line["row"]))
    assert sorted(int(line["index"]) for line in found) == list(range(178))
    worst = json.loads(command.run("audit", run.path, "--json").stdout)["suspects"][0]
    assert worst["index_"] == found[0]["index_"]


def test_the_screen_shows_the_first_if_it_is_short(run):
    shown = command.run("audit", run.path, "--top", 178).output
    assert all(name in shown for name in CUSTOMERS if name != CUSTOMERS[9])
    frame = run.inputs().identifiers.assign(index="x" * 40)
    frame.to_parquet(run.path / "identifiers.parquet")
    assert "xxx" not in command.run("audit", run.path).output


def test_a_folder_without_them_is_read_and_a_damaged_one_is_refused(run, tmp_path):
    frame = pd.read_parquet(run.path / "identifiers.parquet")
    frame[1:].to_parquet(run.path / "identifiers.parquet")
    with pytest.raises(ValueError, match=r"identifiers\.parquet has 177 instances, but run\.json says 178"):
        run.inputs()
    (run.path / "identifiers.parquet").unlink()  # as an earlier release wrote it
    assert read_run(run.path).inputs().identifiers is None
    assert list(listed(run, tmp_path / "suspects.csv")[0])[:2] == ["row", "label"]


def test_the_exports_have_them(run, tmp_path):
    """Cartography knows an example by its guid alone, which is the row."""
    for format_name in ("npz", "parquet", "cartography"):
        arguments = ("--format", format_name, "--out", tmp_path / format_name)
        command.run("export", run.path, *arguments)
    arrays = np.load(tmp_path / "npz")
    assert arrays["identifier_names"].tolist() == ["index", "number"]
    for row, (customer, number) in zip(arrays["row"], arrays["identifiers"].tolist(), strict=True):
        assert (customer, number) == ("" if row == 9 else CUSTOMERS[row], str(5000 + row))
    table = pq.read_table(tmp_path / "parquet")
    assert table.column_names[:4] == ["row", "index_", "number", "part"]
    for line in table.to_pylist():
        assert line["index_"] == (None if line["row"] == 9 else CUSTOMERS[line["row"]])
    assert sorted(table["index"].to_pylist()) == list(range(178))
    (run.path / "identifiers.parquet").unlink()
    command.run("export", run.path, "--out", tmp_path / "without")
    assert "identifiers" not in np.load(tmp_path / "without")


def test_conflicts_have_them(wine, tmp_path):
    wine = pd.concat([wine, wine.iloc[[3]].assign(target="class_2")])
    wine = wine.assign(**{"=part": [f"A{k}" for k in range(179)], "group": [f"B{k}" for k in range(179)]})
    run = train_own(read(wine, tmp_path), tmp_path / "run", epochs=1)
    with open(run.conflicts_file, encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert list(found[0]) == ["group", "part", "label", "position", "'=part", "group_", "instance"]
    assert [(line["group"], line["'=part"], line["group_"]) for line in found] == [
        ("1", "A3", "B3"),
        ("1", "A178", "B178"),
    ]
    assert list(listed(run, tmp_path / "suspects.csv")[0])[:3] == ["row", "'=part", "group"]


@pytest.mark.parametrize("name", ["customer", "index", "place", "duplicate", "row"])
def test_find_issues_has_them_behind_the_row(wine, name):
    wine.insert(0, name, CUSTOMERS)
    table, _ = activebias.find_issues(wine, target="target", epochs=1)
    shown = f"{name}_" if name in ("duplicate", "row") else name
    assert list(table.columns) == ["row", shown, *KEPT]
    assert table[shown].tolist() == [CUSTOMERS[row] for row in table["row"]]
    assert not table["duplicate"].any()
