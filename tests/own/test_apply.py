"""`activebias apply`: a corrected copy of images, tables and tagged text, with nothing else changed."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import command
from activebias.own.rewriting import corrected_csv
from activebias.runs import read_run
from own_data import made_up, write_digits, write_wine

SHORT = ("--epochs", 1, "--burn-in", 0, "--quiet")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def train(*arguments):
    command.run("train", *arguments, *SHORT)


def write_corrections(rows, path="corrections.csv"):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def apply(*arguments, code=0):
    result = command.run("apply", "corrections.csv", *arguments, code=code)
    return " ".join((result.stdout + result.stderr).split())


# Every oddity of the dialect has to stay: BOM, semicolons, CRLF, quotes, line breaks in cells, blank lines,
# spaces, a missing last line end, and labels that are written as 1.0.
ODD = (
    "\ufeffname;size;wine class;note\r\n"
    + "".join(
        f'"wine ""{k}""";{k / 8};{k % 3}.0;"a note;\r\nin two lines"\r\n' + ("\r\n" if k % 10 == 3 else "")
        if k % 2
        else f" wine {k} ;{k / 8};{k % 3}; plain \r\n"
        for k in range(60)
    )
    + "last;1;2;no line end"
)


def test_a_table_keeps_its_dialect():
    Path("odd.csv").write_bytes(ODD.encode())
    train("--csv", "odd.csv", "--target", "wine class")
    write_corrections(
        [
            {"row": 4, "label": "1", "new_label": "2", "comment": "x"},
            {"row": 7, "label": "1", "new_label": "0", "comment": "x"},
            {"row": 9, "label": "0", "new_label": "", "comment": "kept"},
            {"row": 60, "label": "2", "new_label": "1", "comment": "x"},
        ]
    )
    said = apply("--run", "runs/odd", "--out", "new.csv")
    assert said.startswith("Changed 3 labels of 61: 1 → 0 (1); 1 → 2 (1); 2 → 1 (1).")
    assert "`activebias train --csv new.csv --like runs/odd`" in said
    assert Path("odd.csv").read_bytes() == ODD.encode(), "the source is never changed"
    before, after = ODD.split("\r\n"), Path("new.csv").read_bytes().decode().split("\r\n")
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert changed == [
        (" wine 4 ;0.5;1; plain ", " wine 4 ;0.5;2; plain "),
        ('"wine ""7""";0.875;1.0;"a note;', '"wine ""7""";0.875;0;"a note;'),
        ("last;1;2;no line end", "last;1;1.0;no line end"),
    ]
    train("--csv", "new.csv", "--like", "runs/odd")
    assert read_run("runs/new").info.num_validation == read_run("runs/odd").info.num_validation


def test_a_gzipped_table_stays_gzipped():
    text = Path(write_wine("wine.csv")).read_bytes()
    Path("wine.csv.gz").write_bytes(gzip.compress(text))
    train("--csv", "wine.csv.gz", "--target", "target")
    write_corrections([{"row": 5, "label": "0", "new_label": "2"}])
    said = apply("--run", "runs/wine.csv", "--out", "new.csv", code=1)
    assert "Expected `--out` to be a gzipped (.gz) file" in said
    apply("--run", "runs/wine.csv", "--out", "new.csv.gz")
    before, after = text.splitlines(), gzip.decompress(Path("new.csv.gz").read_bytes()).splitlines()
    assert [
        number for number, lines in enumerate(zip(before, after, strict=True)) if len(set(lines)) > 1
    ] == [6]


def test_labels_that_need_quotes():
    text = 'x,y\n1,"a, b"\n2,c\n'
    assert corrected_csv(text, ",", "y", {1: "a, b"}, {"a, b": 0}) == 'x,y\n1,"a, b"\n2,"a, b"\n'
    assert corrected_csv(text, ",", "y", {1: 'd"e'}, {}) == 'x,y\n1,"a, b"\n2,"d""e"\n'


def test_a_parquet_file_keeps_its_types():
    frame = pd.read_csv(write_wine("wine.csv"))
    kinds = pa.array(["red", "white", "rosé"]).take(pa.array(frame["target"])).dictionary_encode()
    table = pa.table({"kind": kinds, **{name: frame[name] for name in frame.columns[:4]}})
    pq.write_table(table.replace_schema_metadata({"from": "the cellar"}), "wine.parquet")
    train("--csv", "wine.parquet", "--target", "kind")
    write_corrections([{"row": 5, "label": "red", "new_label": "rosé"}])
    apply("--run", "runs/wine", "--out", "new.parquet")
    new = pq.read_table("new.parquet")
    assert new.schema.equals(pq.read_table("wine.parquet").schema, check_metadata=True)
    expected = table["kind"].to_pylist()
    expected[5] = "rosé"
    assert new["kind"].to_pylist() == expected
    assert new["alcohol"].equals(table["alcohol"])
    assert "to be a parquet file" in apply("--run", "runs/wine", "--out", "new.csv", code=1)


@pytest.mark.parametrize("packed", [False, True])
def test_tagged_text_keeps_its_columns_and_line_ends(packed):
    text = "-DOCSTART- -X- O\r\n\r\n# a comment\r\n" + made_up(40).replace("\t", " NN  ").replace(
        "\n", " \r\n"
    )
    pack = gzip.compress if packed else bytes
    Path("tweets.conll").write_bytes(pack(text.encode()))
    train("--conll", "tweets.conll")
    write_corrections([{"sentence": 2, "word": 5, "label": "B-location", "new_label": "O"}])
    apply("--run", "runs/tweets", "--out", "new.conll")
    content = Path("new.conll").read_bytes()
    after = (gzip.decompress(content) if packed else content).decode()
    lines = [(a, b) for a, b in zip(text.split("\n"), after.split("\n"), strict=True) if a != b]
    assert lines == [("Kyoto NN  B-location \r", "Kyoto NN  O \r")]


def test_images_are_copied_and_moved():
    write_digits(Path("photos"), 100)
    Path("photos/readme.txt").write_text("mine")
    Path("photos/digit 1/deep").mkdir()
    first, *_ = sorted(Path("photos/digit 1").glob("*.png"))
    first = first.rename("photos/digit 1/deep/1.png")
    other = sorted(Path("photos/digit 2").iterdir())[0].rename("photos/digit 2/same.png")
    sorted(Path("photos/digit 3").iterdir())[0].rename("photos/digit 3/same.png")
    train("--images", "photos")
    before = {path: path.read_bytes() for path in Path("photos").rglob("*") if path.is_file()}
    write_corrections(
        [
            {"file": "photos/digit 1/deep/1.png", "label": "digit 1", "new_label": "digit 7"},
            {"file": "photos/digit 2/same.png", "label": "digit 2", "new_label": "digit 3"},
        ]
    )
    apply("--run", "runs/photos", "--out", "new")
    assert Path("new/digit 7/deep/1.png").read_bytes() == before[first]
    assert not Path("new/digit 1/deep/1.png").exists()
    assert Path("new/digit 3/same (from digit 2).png").read_bytes() == before[other]
    assert Path("new/readme.txt").read_text() == "mine"
    assert before == {path: path.read_bytes() for path in Path("photos").rglob("*") if path.is_file()}
    assert sum(path.is_file() for path in Path("new").rglob("*")) == len(before)
    train("--images", "new", "--like", "runs/photos")
    pixels = [
        sorted(image.tobytes() for image in run.inputs().images[run.instances().in_validation])
        for run in (read_run("runs/photos"), read_run("runs/new"))
    ]
    assert pixels[0] == pixels[1]


def test_a_separate_validation_file_is_corrected_too():
    frame = pd.read_csv(write_wine("wine.csv"))
    frame.iloc[::5].to_csv("val.csv", index=False)
    frame.drop(index=frame.index[::5]).to_csv("wine.csv", index=False)
    train("--csv", "wine.csv", "--target", "target", "--validation", "val.csv")
    rows = [{"row": 3, "label": "0", "new_label": "1"}]
    write_corrections(rows)
    assert "lacks part" in apply("--run", "runs/wine", "--out", "new", code=1)
    write_corrections([row | {"part": "validation"} for row in rows])
    said = apply("--run", "runs/wine", "--out", "new")
    assert "--csv new/training.csv --validation new/validation.csv --like runs/wine" in said
    assert Path("new/training.csv").read_bytes() == Path("wine.csv").read_bytes()
    before, after = pd.read_csv("val.csv"), pd.read_csv("new/validation.csv")
    assert np.flatnonzero(before["target"] != after["target"]).tolist() == [3]
    train("--csv", "new/training.csv", "--validation", "new/validation.csv", "--like", "runs/wine")


def test_apostrophes_of_our_files_are_undone():
    frame = pd.DataFrame({"x": range(40), "z": [k % 7 for k in range(40)], "y": ["=1+1", "-b"] * 20})
    frame.to_csv("cells.csv", index=False)
    train("--csv", "cells.csv", "--target", "y")
    write_corrections([{"row": 0, "label": "'=1+1", "new_label": "'-b"}])
    apply("--run", "runs/cells", "--out", "new.csv")
    assert pd.read_csv("new.csv")["y"].tolist() == ["-b", "-b", *["=1+1", "-b"] * 19]


def test_json():
    write_wine("wine.csv")
    train("--csv", "wine.csv", "--target", "target")
    write_corrections([{"row": 1, "label": "0", "new_label": "2"}])
    value = json.loads(
        command.run("apply", "corrections.csv", "--run", "runs/wine", "--out", "n.csv", "--json").stdout
    )
    assert value["num_changed"] == 1
    assert value["changes"] == [{"label": "0", "new_label": "2", "number": 1}]
    assert value["written"] == {"--csv": "n.csv"}


def test_what_does_not_fit_is_refused_by_row():
    write_wine("wine.csv")
    train("--csv", "wine.csv", "--target", "target")
    write_corrections(
        [
            {"row": 999, "label": "0", "new_label": "1"},
            {"row": 1, "label": "2", "new_label": "1"},
            {"row": 2, "label": "0", "new_label": "7"},
            {"row": 3, "label": "0", "new_label": "1"},
            {"row": 3, "label": "0", "new_label": "2"},
        ]
    )
    said = apply("--run", "runs/wine", "--out", "new.csv", code=1)
    assert "row 999 is not in the run" in said
    assert "row 1 has the label '0' in the run, not '2'" in said
    assert "row 2 has '7', which is not a class of the run" in said
    assert "row 3 stands twice, with different new labels" in said
    assert not Path("new.csv").exists()
    write_corrections([{"row": 2, "label": "0", "new_label": "00"}])
    said = apply("--run", "runs/wine", "--out", "new.csv", code=1)
    assert "row 2 has '00', which is not a class of the run (Did you mean '0'?)." in said
    write_corrections([{"index": 1, "label": "0", "new_label": "1"}])
    assert "lacks row: it needs the columns row, label, new_label" in apply(
        "--run", "runs/wine", "--out", "new.csv", code=1
    )
    write_corrections([{"row": 1, "label": "0", "new_label": "0"}])
    assert "changes no label" in apply("--run", "runs/wine", "--out", "new.csv", code=1)


def test_nothing_is_overwritten_and_a_changed_source_is_refused():
    write_wine("wine.csv")
    train("--csv", "wine.csv", "--target", "target")
    write_corrections([{"row": 1, "label": "0", "new_label": "1"}])
    assert "wine.csv exists already" in apply("--run", "runs/wine", "--out", "wine.csv", code=1)
    frame = pd.read_csv("wine.csv")
    frame.drop(index=range(60)).to_csv("wine.csv", index=False)
    assert "wine.csv has changed since runs/wine: the label of row 1 was '0'" in apply(
        "--run", "runs/wine", "--out", "new.csv", code=1
    )
    Path("wine.csv").unlink()
    assert "There is no wine.csv" in apply("--run", "runs/wine", "--out", "new.csv", code=1)
    command.run("train", "digits", *SHORT, code=2)  # --burn-in is not for recipes
    command.run("train", "digits", "--epochs", 1, "--quiet", "--out", "recipe")
    write_corrections([{"position": 1, "label": "0", "new_label": "1"}])
    assert "recipe" in apply("--run", "recipe", "--out", "new.csv", code=1)
    write_digits(Path("photos"), 60)
    train("--images", "photos")
    name = read_run("runs/photos").inputs().names[0]
    label = Path(name).parent.name
    write_corrections(
        [{"file": name, "label": label, "new_label": "digit 9" if label != "digit 9" else "digit 1"}]
    )
    assert "inside of photos" in apply("--run", "runs/photos", "--out", "photos/new", code=1)


def test_one_more_pair_is_no_plural():
    frame = pd.read_csv(write_wine("wine.csv"))
    train("--csv", "wine.csv", "--target", "target")
    pairs = [(old, new) for old in range(3) for new in range(3) if old != new]
    used: set[int] = set()
    rows = []
    for old, new in pairs:
        row = next(int(k) for k in frame.index[frame["target"] == old] if k not in used)
        used.add(row)
        rows.append({"row": row, "label": old, "new_label": new})
    write_corrections(rows)
    assert "; and 1 more pair. The corrected" in apply("--run", "runs/wine", "--out", "new.csv")
