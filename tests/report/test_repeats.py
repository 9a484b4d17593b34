"""Several runs of one method with other seeds: mean and standard error in place of a line a run."""

import json

import numpy as np
import pytest

import command
import report_runs
from activebias.report import page
from activebias.report.page import write_report
from activebias.report.repeats import repeated, repeats
from activebias.report.view import view_run
from activebias.runs.contents import Inputs
from own_data import write_wine

IMAGES = np.zeros((6, 4, 4), dtype=np.uint8)


def views_of(tmp_path, *runs):
    settings = {"num": 6, "class_names": ["cat", "dog"], "inputs": Inputs(images=IMAGES)}
    return [
        view_run(report_runs.make_run(tmp_path / f"run{number}", **settings, **changes))
        for number, changes in enumerate(runs)
    ]


def run(method, seed, *errors):
    curves = {"validation_error": errors, "train_error": errors}
    return {"method": method, "seed": seed, "epochs": len(errors), "curves": curves}


def test_runs_with_other_seeds_are_one_curve_and_one_row(tmp_path):
    views = views_of(
        tmp_path,
        run("scan", 0, 10.0, 6.0),
        run("wtc", 0, 9.0, 5.0),
        run("scan", 1, 12.0, 7.0),
        run("wtc", 1, 8.0, 5.5),
        run("scan", 2, 11.0, 9.0),
    )
    assert repeated(views) == [[0, 2, 4], [1, 3]]
    found = repeats(views, page.distinct_names(views))
    assert [curve["name"] for curve in found["curves"]] == ["scan, mean of 3 runs", "wtc, mean of 2 runs"]
    assert found["curves"][0]["mean"] == pytest.approx([11, 22 / 3])
    assert found["curves"][0]["stderr"] == pytest.approx([1 / 3**0.5, np.std([6, 7, 9], ddof=1) / 3**0.5])
    rows = {row[0]: row[1:] for row in found["means"]["rows"]}
    assert rows["wtc, mean of 2 runs"] == ["2", "5.25 ± 0.25 %", "5.25 ± 0.25 %"]


def test_equal_seeds_or_other_methods_are_no_repetition(tmp_path):
    views = views_of(tmp_path, run("scan", 0, 10.0), run("wtc", 0, 9.0), run("wtc", 0, 8.0))
    found = repeats(views, ["before", "wtc", "after"])
    assert found["means"] is None
    assert [curve["name"] for curve in found["curves"]] == ["before", "wtc", "after"]
    assert [curve["stderr"] for curve in found["curves"]] == [None] * 3


def test_other_data_is_named(tmp_path):
    sources = ("a.csv", "a.csv", "b.csv", "b.csv")
    runs = [run("wtc", number % 2, 9.0, 8.0) | {"source": name} for number, name in enumerate(sources)]
    found = repeats(views_of(tmp_path, *runs), ["1", "2", "3", "4"])
    assert [curve["name"] for curve in found["curves"]] == [
        "wtc, a.csv, mean of 2 runs",
        "wtc, b.csv, mean of 2 runs",
    ]


def test_the_page_shows_the_means_first_and_every_run_on_demand(page, tmp_path):
    runs = [run(method, seed, 9.0 + seed, 8.0) for method in ("scan", "wtc") for seed in range(3)]
    settings = {"num": 6, "class_names": ["cat", "dog"], "inputs": Inputs(images=IMAGES)}
    folders = [
        report_runs.make_run(tmp_path / f"run{number}", **settings, **changes)
        for number, changes in enumerate(runs)
    ]
    page.open(write_report(folders, tmp_path / "report.html"))
    rows = [row.text for row in page.all("#means-table tbody tr")]
    assert rows == [f"{name}, mean of 3 runs 3 8.00 ± 0.00 % 8.00 ± 0.00 %" for name in ("scan", "wtc")]
    assert not page.find("#comparison-table").is_displayed()
    page.click("#every-run summary")
    assert page.find("#comparison-table").is_displayed()
    assert len(page.all("#comparison-table tbody tr")) == 6
    names = page.js("return document.getElementById('comparison-plot').data.map(t => t.name ?? 'band')")
    assert names == ["band", "band", "scan, mean of 3 runs", "wtc, mean of 3 runs"]
    assert page.errors() == []


def test_the_terminal_says_that_the_parts_of_three_runs_differ(tmp_path, monkeypatch):
    """Three methods with three seeds have three splits; with one seed they have the same."""
    monkeypatch.chdir(tmp_path)
    write_wine("wine.csv")
    for method, seed in (("scan", 0), ("wtc", 1), ("we", 2), ("wtc", 0), ("we", 0)):
        options = ("--csv", "wine.csv", "--target", "target", "--epochs", 1, "--burn-in", 0, "--quiet")
        command.run("train", *options, "--method", method, "--seed", seed, "--out", f"{method}-{seed}")
    different = command.run("report", "scan-0", "wtc-1", "we-2")
    note = "The runs were validated on different rows, or with other labels: their validation errors are"
    assert note in " ".join(different.stdout.split())
    assert (
        "not comparable"
        in json.loads(command.run("report", "scan-0", "wtc-1", "we-2", "--json").stdout)["note"]
    )
    assert "validated on different" not in command.run("report", "scan-0", "wtc-0", "we-0").stdout
