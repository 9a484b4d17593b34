"""Before and after a correction: only rows that both runs validate on, with the same label, are compared."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import command
from activebias.runs import read_run
from activebias.runs.before_after import BeforeAfter, compare_before_after
from activebias.runs.suspects import audit_run, rows
from own_data import made_up, write_digits, write_wine
from small_run import images, write

COUNTS = {"num_before": 300, "num_after": 300, "num_common": 300, "relabelled": 0}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def train(*arguments):
    result = command.run("train", *arguments, "--epochs", 3, "--burn-in", 1, "--quiet")
    return " ".join(result.stdout.split())


def noisy_wine():
    """Write wines with every sixth label wrong, and with right labels."""
    frame = pd.read_csv(write_wine("right.csv"))
    frame["target"] = (frame["target"] + (frame.index % 6 == 0)) % 3
    frame.to_csv("wine.csv", index=False)


def test_corrected_labels_and_another_split_count_for_nothing():
    noisy_wine()
    train("--csv", "wine.csv", "--target", "target", "--validation", 0.5)
    said = train("--csv", "right.csv", "--like", "runs/wine")
    train("--csv", "right.csv", "--target", "target", "--validation", 0.5, "--seed", 3, "--out", "anew")
    before, after, anew = (read_run(path) for path in ("runs/wine", "runs/right", "anew"))
    labels = [pd.read_csv(name)["target"].to_numpy() for name in ("wine.csv", "right.csv")]
    for second in (after, anew):
        found = compare_before_after(before, second)
        rows = [{int(row["position"]): row for row in run.validation()} for run in (before, second)]
        common = [k for k in rows[0] if k in rows[1] and labels[0][k] == labels[1][k]]
        wrong = [sum(part[k]["label"] != part[k]["predicted"] for k in common) for part in rows]
        assert (found.num_common, found.wrong_before, found.wrong_after) == (len(common), *wrong)
        assert found.fixed - found.broken == wrong[0] - wrong[1]
        both = sum(k in rows[1] for k in rows[0])
        assert found.relabelled == both - len(common)
    assert f"{len(common)} rows" not in said, "the sentence is about the run with the same split"
    found = compare_before_after(before, after)
    assert f"Compared with runs/wine: On the {found.num_common} rows that both validate on" in said
    assert f"Left out: {found.relabelled} with another label." in said
    assert "only in" not in said


def test_words_are_compared_one_by_one():
    Path("a.conll").write_text(made_up(60).replace("Paris\tB-location", "Paris\tO"))
    Path("b.conll").write_text(made_up(60))
    train("--conll", "a.conll")
    train("--conll", "b.conll", "--like", "runs/a")
    found = compare_before_after(read_run("runs/a"), read_run("runs/b"))
    instances = read_run("runs/a").instances()
    words = np.array(read_run("runs/a").inputs().rows["word"])[instances.in_validation]
    assert found.num_before == found.num_after == len(words)
    assert found.relabelled == (words == "Paris").sum() > 0
    assert found.num_common == len(words) - found.relabelled
    changes = {}
    for was, now in zip(*(read_run(f"runs/{name}").validation() for name in "ab"), strict=True):
        if was["label"] == now["label"]:
            change = (now["label"] == now["predicted"]) - (was["label"] == was["predicted"])
            changes[was["position"]] = changes.get(was["position"], 0) + change
    assert found.better == sum(number > 0 for number in changes.values())
    assert found.worse == sum(number < 0 for number in changes.values())


@pytest.mark.parametrize(
    ("source", "places"),
    [
        (("--csv", "wine.csv", "--target", "target"), ["row"]),
        (("--images", "photos"), ["file"]),
        (("--conll", "a.conll"), ["sentence", "word"]),
    ],
)
def test_the_predictions_begin_as_the_audit_and_those_of_an_earlier_release_are_compared(source, places):
    noisy_wine()
    write_digits(Path("photos"), 100)
    Path("a.conll").write_text(made_up(60))
    for out in "xy":
        train(*source, "--out", out)
    x, y = read_run("x"), read_run("y")
    assert list(x.validation()[0]) == [*places, "label", "predicted", "probability", "position"]
    expected = {}
    for row in rows(x, audit_run(x)):
        if row["part"] == "validation":
            expected[tuple(str(row[name]) for name in places)] = row["label"]
    assert {tuple(row[name] for name in places): row["label"] for row in x.validation()} == expected
    frame = pd.read_csv("x/validation.csv")
    frame[["position", "label", "predicted", "probability"]].to_csv("x/validation.csv", index=False)
    assert compare_before_after(x, y) == compare_before_after(y, y)


def shown_comparison():
    text = Path("report.html").read_text()
    start = text.index('id="report-data">') + len('id="report-data">')
    return json.loads(text[start : text.index("</script>", start)])["comparison"]


def test_the_report_says_it_and_shows_no_errors_that_mislead(tmp_path):
    noisy_wine()
    train("--csv", "wine.csv", "--target", "target")
    train("--csv", "right.csv", "--like", "runs/wine")
    said = " ".join(command.run("report", "runs/wine", "runs/right").stdout.split())
    assert "% were predicted wrong before and" in said
    assert "too few rows to compare two errors (fewer than 100): a first run with a larger `--v" in said
    comparison = shown_comparison()
    assert comparison["hides_errors"]
    assert [row[-2:] for row in comparison["rows"]] == [["not comparable"] * 2] * 2
    value = json.loads(command.run("report", "runs/wine", "runs/right", "--json").stdout)
    assert value["before_after"]["relabelled"] > 0
    again = command.run("report", "runs/wine", "runs/wine").stdout
    assert "0 fixed, 0 broken" in " ".join(again.split())
    assert "hides_errors" not in shown_comparison()


def test_three_runs_whose_validation_parts_differ():
    noisy_wine()
    target = ("--target", "target")
    train("--csv", "wine.csv", *target)
    train("--csv", "wine.csv", *target, "--method", "scan", "--out", "runs/scan")
    train("--csv", "right.csv", "--like", "runs/wine")
    command.run("report", "runs/wine", "runs/scan", "runs/right")
    found = shown_comparison()
    assert found["hides_errors"]
    assert [row[-2:] for row in found["rows"]] == [["not comparable"] * 2] * 3
    assert [sentence.split(":")[0] for sentence in found["sentences"]] == [
        "wine (before) and scan (after)",
        "wine (before) and right (after)",
    ]
    assert "Left out" not in found["sentences"][0]
    assert "with another label" in found["sentences"][1]


def test_repeated_runs_need_the_same_parts_for_every_method():
    noisy_wine()
    for method, seed in (("wtc", 0), ("wtc", 1), ("scan", 0), ("scan", 1), ("scan", 2)):
        options = ("--method", method, "--seed", seed, "--out", f"{method}{seed}")
        train("--csv", "wine.csv", "--target", "target", *options)
    command.run("report", "wtc0", "scan0", "wtc1", "scan1")
    assert "hides_errors" not in shown_comparison()
    command.run("report", "wtc0", "scan1", "wtc1", "scan2")
    found = shown_comparison()
    assert found["hides_errors"]
    assert [row[-2:] for row in found["means"]["rows"]] == [["not comparable"] * 2] * 2
    assert "Train all methods with the same seeds" in found["sentences"][0]


def test_what_the_sentences_say():
    found = BeforeAfter(**COUNTS, wrong_before=60, wrong_after=30, fixed=35, broken=5, better=35, worse=5)
    assert found.sentences("rows") == [
        "On the 300 rows that both validate on, with the same label, 20.0 % were predicted wrong before and "
        "10.0 % after: 35 fixed, 5 broken.",
        "The second run is better (sign test, p = 1.4e-06). These are two trainings: other seeds give other "
        "differences.",
    ]
    same = BeforeAfter(**COUNTS, wrong_before=60, wrong_after=59, fixed=5, broken=4, better=5, worse=4)
    assert same.sentences("rows")[1] == "No difference is seen (sign test, p = 1.00)."
    worse = BeforeAfter(**COUNTS, wrong_before=10, wrong_after=20, fixed=0, broken=10, better=0, worse=10)
    assert "The second run is worse" in worse.sentences("rows")[1]
    nothing = {"num_common": 0, "wrong_before": 0, "wrong_after": 0, "better": 0, "worse": 0}
    none = BeforeAfter(**COUNTS | nothing, fixed=0, broken=0)
    assert "no validation rows with the same label in common" in none.sentences("rows")[0]


def test_words_of_one_sentence_are_no_independent_evidence():
    """Twelve fixed words of two sentences show less than twelve sentences would."""
    counts = {**COUNTS, "wrong_before": 20, "wrong_after": 8, "fixed": 12, "broken": 0}
    two, twelve = (BeforeAfter(**counts, better=number, worse=0) for number in (2, 12))
    assert two.sentences("words")[1] == "No difference is seen (sign test over sentences, p = 0.50)."
    assert twelve.sentences("words")[1].startswith("The second run is better (sign test over sentences, p = ")


def test_runs_that_do_not_know_their_inputs_are_not_compared(tmp_path):
    old = write(tmp_path / "old", images())
    assert compare_before_after(old, old) is None
