"""The same input with different labels: named in the run folder, by the audit and by the report."""

import csv
import json
import shutil

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("PIL")
import pandas as pd

from activebias.own.images import read_images
from activebias.own.tables import read_table
from activebias.own.tagged import read_tagged
from activebias.runs.folder import read_run
from command import run
from own_data import made_up, write_digits, write_wine

pytestmark = pytest.mark.usefixtures("own_place")

# Of the first sentence, but for Paris.
COPY = "Ada\tB-person\nSmith\tI-person\nsaw\tO\n@user0\tO\nin\tO\nParis\tO\n"


@pytest.fixture
def photos(tmp_path):
    """Digits in folders; one picture lies in three of them, another one twice in one."""
    folder = write_digits(tmp_path / "photos", 150)
    first, second, *_ = sorted((folder / "digit 1").iterdir())
    shutil.copy(first, folder / "digit 4" / "same.png")
    shutil.copy(first, folder / "digit 7" / "same.png")
    shutil.copy(second, folder / "digit 1" / "copy.png")
    return folder


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_images_with_the_same_bytes_in_several_class_folders(photos):
    data = read_images(photos, validation=0.2, seed=0)
    names = sorted(path.name for path in (photos / "digit 1").iterdir() if path.name != "copy.png")
    assert [(row["group"], row["label"], row["instance"]) for row in data.conflicts.rows] == [
        (1, "digit 1", str(photos / "digit 1" / names[0])),
        (1, "digit 4", str(photos / "digit 4" / "same.png")),
        (1, "digit 7", str(photos / "digit 7" / "same.png")),
    ]
    assert data.notes == (
        "Duplicate images: 3. Copies of the same input are never in both parts.",
        "Same input, different labels: 3 images in 1 group. The run folder's conflicts.csv lists them.",
    )


def test_the_rows_and_the_instances_are_the_same(photos):
    """Whatever part they come into, which the seed decides."""
    seen = set()
    for seed in range(12):
        data = read_images(photos, validation=0.4, seed=seed)
        (part,) = {row["part"] for row in data.conflicts.rows}  # copies stay together
        seen.add(part)
        members = [data.inputs.names[k] for k in np.flatnonzero(data.conflicts.groups)]
        assert members == [row["instance"] for row in data.conflicts.rows]
        position = np.concatenate([data.train_position, data.validation_position])
        assert position[data.conflicts.groups > 0].tolist() == [
            row["position"] for row in data.conflicts.rows
        ]
    assert seen == {"training", "validation"}


def test_rows_of_a_table(tmp_path):
    frame = pd.read_csv(write_wine(tmp_path / "wine.csv"))
    copies = frame.iloc[[3, 60, 10]].assign(target=[2, 0, 0])  # the last one with its own label
    frame.loc[0, "target"] = None  # a row that is left out moves no position
    frame = pd.concat([frame, copies]).assign(number=range(181))
    frame.to_csv(tmp_path / "wine.csv", index=False)
    data = read_table(tmp_path / "wine.csv", target="target", validation=0.2, seed=0)
    assert [(row["group"], row["position"], row["label"]) for row in data.conflicts.rows] == [
        (1, 3, "0"),
        (1, 178, "2"),
        (2, 60, "1"),
        (2, 179, "0"),
    ]
    assert data.conflicts.rows[0]["instance"].startswith("alcohol=14.37, malic_acid=1.95, ash=2.5, ")
    position = np.concatenate([data.train_position, data.validation_position])
    numbers = dict(zip(position.tolist(), data.conflicts.groups.tolist(), strict=True))
    for row in data.conflicts.rows:
        assert numbers.pop(row["position"]) == row["group"]
    assert not any(numbers.values())


def test_words_of_a_sentence(tmp_path):
    (tmp_path / "tweets.conll").write_text(made_up() + "\n" + COPY)
    data = read_tagged(tmp_path / "tweets.conll", validation=0.2, seed=1)
    text = "Paris in “Ada Smith saw @user0 in Paris”"
    expected = {"group": 1, "part": "training", "word": 5, "instance": text}
    assert data.conflicts.rows == (
        expected | {"position": 0, "label": "B-location"},
        expected | {"position": 60, "label": "O"},
    )
    members = np.flatnonzero(data.conflicts.groups)
    assert data.inputs.rows["word"][members].tolist() == ["Paris", "Paris"]
    assert len(data.conflicts.groups) == len(data.inputs)


def test_wnut17_contradicts_itself(real_data):
    data = read_tagged(real_data("wnut17") / "wnut17train.conll", validation=0.2, seed=0)
    note = "Same input, different labels: 50 words in 20 groups. The run folder's conflicts.csv lists them."
    assert note in data.notes


def test_a_validation_file_may_contradict_the_training_file(tmp_path):
    frame = pd.read_csv(write_wine(tmp_path / "wine.csv"))
    frame.iloc[[5, 6]].assign(target=[2, 0]).to_csv(tmp_path / "other.csv", index=False)
    path = tmp_path / "wine.csv"
    data = read_table(path, target="target", validation=tmp_path / "other.csv", seed=0)
    assert [(row["part"], row["position"]) for row in data.conflicts.rows] == [
        ("training", 5),
        ("validation", 0),
    ]
    assert np.flatnonzero(data.conflicts.groups).tolist() == [5, 178]
    (duplicates, _) = data.notes
    assert "The training part has copies of 2 validation rows" in duplicates


def test_from_training_to_the_report(photos):
    result = run("train", "--images", "photos", "--epochs", 2, "--seed", 1)
    assert "Some inputs have different labels: see runs/photos/conflicts.csv." in " ".join(
        result.stdout.split()
    )
    assert "Same input, different labels: 3 images in 1 group." in result.stderr
    listed = read_csv("runs/photos/conflicts.csv")
    assert list(listed[0]) == ["group", "part", "label", "position", "instance"]
    assert {row["part"] for row in listed} == {"training"}
    said = " ".join(run("audit", "runs/photos", "--out", "all.csv").stdout.split())
    assert "different labels: 3 instances, numbered in the column conflict." in said
    marked = [row for row in read_csv("all.csv") if row["conflict"]]
    assert {row["conflict"] for row in marked} == {"1"}
    assert {row["instance"] for row in marked} == {row["instance"] for row in listed}
    value = json.loads(run("audit", "runs/photos", "--json", "--top", 200).stdout)
    assert value["num_conflicts"] == 3
    assert sum(row["conflict"] == 1 for row in value["suspects"]) == 3
    assert sum(row["conflict"] is None for row in value["suspects"]) == value["num_instances"] - 3


def test_the_screen_speaks_of_the_column_conflict_where_it_shows_one(photos):
    run("train", "--images", "photos", "--epochs", 1, "--seed", 1, "--quiet")
    worst = json.loads(run("audit", "runs/photos", "--json", "--top", 200).stdout)["suspects"]
    num_before = next(k for k, row in enumerate(worst) if row["conflict"])
    assert num_before, "choose another seed: some rows must come before the first conflict"
    for top in (num_before, num_before + 1):
        said = " ".join(run("audit", "runs/photos", "--top", top).stdout.replace("┃", "│").split())
        assert "different labels: 3 instances, numbered in the column conflict." in said
        assert "│ conflict │" in said
    said = " ".join(run("audit", "runs/photos", "--top", 0).stdout.split())
    assert "different labels: 3 instances. runs/photos/conflicts.csv lists them" in said
    said = " ".join(run("audit", "runs/photos", "--top", 0, "--out", "all.csv").stdout.split())
    assert "numbered in the column conflict." in said


def test_without_conflicts_there_is_no_file_and_an_old_one_goes(photos):
    arguments = ("train", "--images", "photos", "--epochs", 1, "--json")
    assert json.loads(run(*arguments).stdout)["conflicts"] == "runs/photos/conflicts.csv"
    for name in ("digit 4", "digit 7"):
        (photos / name / "same.png").unlink()
    assert json.loads(run(*arguments).stdout)["conflicts"] is None
    folder = read_run("runs/photos")
    assert folder.conflicts_file is None
    assert folder.instances().num_conflicts == 0
    assert any("Duplicate images: 1" in note for note in folder.info.notes)
    assert "different labels" not in run("audit", "runs/photos").stdout


def test_conflicts_that_are_only_validated_on_are_said_too(photos):
    seed = next(
        seed
        for seed in range(20)
        if read_images(photos, validation=0.4, seed=seed).conflicts.rows[0]["part"] == "validation"
    )
    run("train", "--images", "photos", "--epochs", 1, "--seed", seed, "--validation", 0.4, "--quiet")
    assert len(read_csv("runs/photos/conflicts.csv")) == 3
    said = " ".join(run("audit", "runs/photos").stdout.split())
    assert "Some inputs have different labels: 3 instances, numbered in the column conflict." in said
    assert "│ conflict │" in said.replace("┃", "│")


def test_what_a_spreadsheet_would_run_gets_an_apostrophe(tmp_path):
    frame = pd.DataFrame({"text": [f"a text with number {k}" for k in range(60)], "y": ["=1+1", "b"] * 30})
    frame.loc[60] = ["a text with number 4", "b"]
    frame.loc[61] = ["@SUM(1) as the beginning", "b"]
    frame.loc[62] = ["@SUM(1) as the beginning", "=1+1"]
    frame.to_csv(tmp_path / "cells.csv", index=False)
    run("train", "--csv", "cells.csv", "--target", "y", "--epochs", 1, "--quiet")
    listed = read_csv("runs/cells/conflicts.csv")
    assert [row["label"] for row in listed] == ["'=1+1", "b", "b", "'=1+1"]
    assert [row["instance"][0] for row in listed] == ["a", "a", "'", "'"]
