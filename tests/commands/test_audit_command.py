"""`activebias audit RUN`: the ranking as rows, as CSV, on the screen and as JSON."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import average_precision_score

import command
import report_runs
from activebias import audit
from activebias.lab import get_recipe
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.runs.contents import Inputs
from activebias.runs.folder import read_run
from activebias.runs.suspects import audit_run, rows
from small_run import HISTORY, images, write


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "run", images())


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_all_instances_worst_first(run, tmp_path):
    command.run("audit", run.path, "--out", tmp_path / "new" / "suspects.csv")
    found = read_csv(tmp_path / "new" / "suspects.csv")
    assert list(found[0])[:6] == ["file", "label", "believed", "score", "suspected", "conflict"]
    assert [row["file"] for row in found] == ["'=HYPERLINK(1).png", "c.png", "a.png", "\x1b[31md.png"]
    assert [row["index"] for row in found] == ["1", "2", "0", "3"]
    assert [row["position"] for row in found] == ["11", "12", "10", "13"]
    assert found[0]["believed"] == "cat"
    assert found[0]["suspected"] == "True"
    assert float(found[0]["confidence"]) == pytest.approx(HISTORY[1].mean(), rel=1e-5)
    assert float(found[0]["variability"]) == pytest.approx(HISTORY[1].std(), rel=1e-5)
    assert float(found[0]["score"]) == pytest.approx(audit(HISTORY[:3]).score[1], rel=1e-4)
    # Never visited: nothing is known, and it says so.
    assert (found[3]["score"], found[3]["confidence"], found[3]["visits"]) == ("", "", "0")
    assert not list((tmp_path / "new").glob(".*")), "a temporary file was left behind"


def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(run, tmp_path):
    command.run("audit", run.path, "--out", tmp_path / "safe.csv")
    found = read_csv(tmp_path / "safe.csv")
    assert found[0]["instance"] == "'=HYPERLINK(1).png"
    assert found[1]["label"] == "-1", "a number is no formula"
    command.run("audit", run.path, "--out", tmp_path / "exact.csv", "--exact")
    assert read_csv(tmp_path / "exact.csv")[0]["instance"] == "=HYPERLINK(1).png"


def test_screen_shows_the_top_and_no_control_characters(run):
    result = command.run("audit", run.path, "--top", 2)
    assert "HYPERLINK" in result.output
    assert "<b>dog</b>" in result.output
    assert "a.png" not in result.output
    assert "For 1 of 4 instances the model believes in a class other than the label" in result.output
    everything = command.run("audit", run.path, "--top", 4).output
    assert "[31md.png" in everything
    assert "\x1b" not in everything
    command.run("audit", run.path, "--top", 0)


def test_a_long_name_and_a_weak_judge_on_the_screen(tmp_path):
    names = ["n" * 300, "m"]
    inputs = Inputs(images=np.zeros((40, 8, 8), np.uint8))
    weak, good = (
        report_runs.make_run(
            tmp_path / f"run{errors[0]}",
            num=40,
            class_names=names,
            inputs=inputs,
            curves={"validation_error": errors},
        )
        for errors in ([40.0] * 4, [4.0] * 4)
    )
    output = command.run("audit", weak.path).output
    assert "The lowest validation error is 40 %" in output
    assert output.count("n") < 20 * 60
    assert "weak judge" not in command.run("audit", good.path).output


def test_a_run_without_suspects_says_so(run):
    with np.load(run.path / "instances.npz") as file:
        arrays = dict(file)
    np.savez(run.path / "instances.npz", **arrays | {"believed": arrays["label"]})
    output = " ".join(command.run("audit", run.path).output.split())
    assert "There are no suspects: for all 4 instances the model believes in the label." in output
    assert "For 0 of" not in output


def test_a_model_that_memorised_is_named_again(tmp_path):
    inputs = Inputs(images=np.zeros((40, 8, 8), np.uint8))
    warnings = ("The model memorised labels.", "The burn-in did not end.")
    run = report_runs.make_run(tmp_path / "run", num=40, class_names="ab", inputs=inputs, warnings=warnings)
    output = command.run("audit", run.path).output
    assert "Warning of the training: The model memorised labels." in output
    assert "did not end" not in output


@pytest.mark.parametrize(("kind", "shown"), [("table", "age=–, city=–, size=0.5"), ("text", "–")])
def test_a_missing_value_is_a_dash(tmp_path, kind, shown):
    frame = pd.DataFrame({"age": [1.0, np.nan] * 2, "city": ["Rome", None] * 2, "size": [0.25, 0.5] * 2})
    run = write(tmp_path / "run", Inputs(rows=frame), kind=kind)
    assert next(rows(run, audit_run(run)))["instance"] == shown


def test_json_is_one_object_without_nan(run, tmp_path):
    result = command.run("audit", run.path, "--json", "--out", tmp_path / "all.csv")
    content = json.loads(result.stdout, parse_constant=pytest.fail)
    assert (content["num_instances"], content["num_suspected"]) == (4, 1)
    assert content["out"] == str(tmp_path / "all.csv")
    assert [row["index"] for row in content["suspects"]] == [1, 2, 0, 3]
    assert content["suspects"][3]["score"] is None
    assert content["suspects"][0]["instance"] == "=HYPERLINK(1).png", "JSON is no spreadsheet"


def test_a_rival_in_the_folder_is_used(tmp_path):
    rival = np.float32([0.1, 0.8, 0.25, 0.3])
    folder = write(tmp_path / "run", images(), rival_prob=rival)
    found = audit_run(folder)
    np.testing.assert_allclose(found.score[:3], rival[:3] / (rival[:3] + found.plausibility[:3]), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "frame", "expected"),
    [
        ("table", {"age": [1, 2, 3, 4], "job": list("abcd")}, "age=2, job=b"),
        ("text", {"text": ["x", "Great\n\n  film", "y", "z"], "stars": [1, 2, 3, 4]}, "Great film"),
        ("text", {"text": ["x", "w" * 300, "y", "z"]}, "w" * 79 + "…"),
        ("tagging", {"word": ["EU", "rejects", "German", "call"]}, "rejects in “EU rejects German call”"),
    ],
)
def test_rows_texts_and_words_are_shown_in_short(tmp_path, kind, frame, expected):
    more = {"sentence": np.zeros(4, np.int64), "word": np.arange(4)} if kind == "tagging" else {}
    folder = write(tmp_path / "run", Inputs(rows=pd.DataFrame(frame)), kind=kind, **more)
    first = next(rows(folder, audit_run(folder)))
    assert first["instance"] == expected
    assert first.get("word") == (1 if kind == "tagging" else None)


@pytest.mark.parametrize(
    ("kind", "inputs", "first", "said"),
    [
        ("table", Inputs(rows=pd.DataFrame({"a": range(4)})), {"row": 11}, "row counts from 0, without the"),
        ("text", Inputs(rows=pd.DataFrame({"a": list("abcd")})), {"row": 11}, "row counts from 0, without"),
        (
            "tagging",
            Inputs(rows=pd.DataFrame({"word": list("abcd")})),
            {"sentence": 7, "word": 1},
            "The columns sentence and word count from 0.",
        ),
        ("images", images(), {"file": "=HYPERLINK(1).png"}, ""),
        ("images", Inputs(images=np.zeros((4, 2, 2), np.uint8)), {"position": 11}, ""),
    ],
)
def test_the_place_in_the_source_comes_first(tmp_path, kind, inputs, first, said):
    more = {"sentence": np.full(4, 7), "word": np.arange(4)} if kind == "tagging" else {}
    folder = write(tmp_path / "run", inputs, kind=kind, **more)
    worst = next(rows(folder, audit_run(folder)))
    place = list(worst)[: list(worst).index("label")]
    assert {name: worst[name] for name in place} == first
    assert (worst["index"], worst["position"]) == (1, 11)
    screen = command.run("audit", folder.path, "--top", 1, "--out", tmp_path / "all.csv").output
    heads = next(line for line in screen.splitlines() if "believed" in line)
    assert [head.strip() for head in heads.strip("┃").split("┃")][: len(first)] == list(first)
    assert str(next(iter(first.values()))) in screen
    assert said in screen
    assert ("instance" in heads) == ("file" not in first)
    assert list(read_csv(tmp_path / "all.csv")[0])[: len(first)] == list(first)


def test_a_window_leaves_the_prior_out_here_too(tmp_path):
    folder = write(tmp_path / "run", images(), window=2)
    assert audit_run(folder).visits.tolist() == [2, 2, 2, 0]


def test_errors_are_one_sentence(run, tmp_path):
    missing = command.run("audit", tmp_path / "nowhere", code=1)
    assert "There is no run folder" in missing.output
    into_folder = command.run("audit", run.path, "--out", tmp_path, code=1)
    assert "name a file in it" in into_folder.output.replace("\n", " ")


def test_a_failed_write_leaves_the_old_file(run, tmp_path, monkeypatch):
    path = tmp_path / "suspects.csv"
    path.write_text("old")

    def fail(value):
        raise OSError("disk full")

    monkeypatch.setattr("activebias.runs.suspects.safe_cell", fail)
    command.run("audit", run.path, "--out", path, code=1)
    assert path.read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run", "suspects.csv"]


def test_the_order_is_that_of_the_library(run):
    assert [row["index"] for row in rows(read_run(run.path), audit_run(run))] == audit_run(run).order.tolist()


def test_from_training_to_the_wrong_labels(tmp_path):
    # The whole way of a user, on a recipe whose wrong labels are known.
    recipe = get_recipe("digits").shortened(12)
    command.run("train", "digits", "--epochs", 12, "--out", tmp_path / "run", "--quiet")
    data = prepare(recipe, load_data(recipe), seed=0, device=torch.device("cpu")).dataset
    wrong = (data.train.targets != data.clean_targets).numpy()
    folder = read_run(tmp_path / "run")
    found = audit_run(folder)
    assert found.rival is not None
    assert average_precision_score(wrong, found.score) > 0.98
    assert wrong[found.suspected].mean() > 0.8
    assert found.suspected[wrong].mean() > 0.9
    believed = folder.instances().believed[wrong] == data.clean_targets[wrong].numpy()
    assert believed.mean() > 0.9
