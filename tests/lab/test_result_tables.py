"""Tables: what they say, in the terminal, in Markdown and as JSON."""

import json
import random

import pytest

from activebias.lab.experiment.results import TrialResult
from activebias.lab.result_tables import comparison_table, paper_findings, reproduction_table, summary
from activebias.lab.significance import against_baselines

ALL = ("uni", "sd", "isd", "se", "spv", "stc", "scan", "wd", "we", "wpv", "wtc")
# The order of the paper's row, with WPV on the wrong side of Scan.
MNIST_FC = {"scan": 2.9, "wd": 2.2, "we": 3.1, "wpv": 3.4, "wtc": 2.4}


def trials(means, n, recipe="mnist-fc", noise=0.03, base=0):
    results = []
    for method, mean in means.items():
        for seed in range(n):
            shared = random.Random(seed + base).gauss(0, noise)
            own = random.Random(f"{method} {seed}").gauss(0, noise)
            error = mean + shared + own
            results.append(
                TrialResult(
                    recipe=recipe,
                    method=method,
                    seed=seed,
                    config={},
                    device="cpu",
                    seconds=1.0,
                    test_error=[error + 1, error],
                    train_error=[error / 2],
                )
            )
    return results


def markdown_rows(table):
    lines = [line for line in table.to_markdown().splitlines() if line.startswith("|")]
    return {cells[0]: cells for cells in ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)}


def test_summary_is_the_promised_object():
    results = trials({"scan": 3.0, "wpv": 2.5}, 4)
    found = summary(results)
    assert list(found) == ["recipe", "trials", "methods"]
    assert (found["recipe"], found["trials"]) == ("mnist-fc", 4)
    assert list(found["methods"]) == ["scan", "wpv"]
    metrics = found["methods"]["wpv"]
    assert list(metrics) == ["best_test_error", "last10_test_error", "best_train_error"]
    values = [result.best_test_error for result in results if result.method == "wpv"]
    mean = sum(values) / 4
    stderr = (sum((value - mean) ** 2 for value in values) / 3 / 4) ** 0.5
    best = metrics["best_test_error"]
    assert (best["mean"], best["stderr"]) == pytest.approx((mean, stderr))
    item = against_baselines(results)[1]
    assert (best["baseline"], best["finding"]) == ("scan", "better")
    assert best["difference"] == item.test.difference < 0
    assert (best["p_value"], best["p_holm"]) == (item.test.p_value, item.p_holm)
    assert found["methods"]["scan"]["best_test_error"]["difference"] is None
    one = json.loads(json.dumps(summary(trials({"scan": 3.0}, 1))))
    assert one["methods"]["scan"]["best_test_error"]["stderr"] is None


def test_bold_marks_what_is_significant_and_not_what_is_smallest():
    # WTC is lowest but has one trial; WE is clearly worse than Scan.
    results = trials({"scan": 3.0, "we": 3.5}, 5) + trials({"wtc": 1.0}, 1)
    rows = markdown_rows(comparison_table(results))
    assert rows["Scan"][1] == "5"
    assert "**" not in "".join(rows["Scan"])
    assert rows["WE"][2].startswith("**3.5")
    assert rows["WE"][3].startswith("**+0.")
    assert "**" not in "".join(rows["WTC"])
    assert rows["WTC"][4] == "–"


def test_comparison_says_how_it_was_made():
    table = comparison_table(trials(dict.fromkeys(ALL, 3.0), 3))
    assert table.title == "mnist-fc, 3 trials, 2 epochs"
    assert "SD, ISD, SE, SPV, STC against Uni; WD, WE, WPV, WTC against Scan" in table.notes[0]
    assert "Holm-corrected over 9 tests" in table.notes[1]
    assert table.breaks == (6,)
    assert "Bold: p < 0.05" in table.to_markdown()


def test_titles_say_when_methods_have_different_numbers_of_trials():
    results = trials({"uni": 3.0}, 2) + trials({"scan": 3.0}, 5)
    assert comparison_table(results).title == "mnist-fc, 2 to 5 trials, 2 epochs"
    assert comparison_table(results[:1]).title == "mnist-fc, 1 trial, 2 epochs"


def test_fewer_pairs_and_no_baseline_are_said():
    results = trials({"scan": 3.0}, 3) + trials({"wpv": 2.5}, 5)
    assert "Fewer pairs than trials: WPV 3." in comparison_table(results).notes
    assert "no baseline" in comparison_table(trials({"wpv": 2.5}, 5)).notes[0]
    one = comparison_table(trials({"scan": 3.0, "wpv": 2.5}, 1))
    assert "No test is possible" in one.notes[1]
    assert "±" not in "".join(cell.text for row in one.rows for cell in row)


def test_minus_zero_is_not_printed():
    results = trials({"scan": 3.0}, 3) + [
        TrialResult(
            recipe="mnist-fc",
            method="wpv",
            seed=result.seed,
            config={},
            device="cpu",
            seconds=1.0,
            test_error=[value - 1e-6 * (1 + result.seed) for value in result.test_error],
            train_error=result.train_error,
        )
        for result in trials({"scan": 3.0}, 3)
    ]
    assert markdown_rows(comparison_table(results))["WPV"][3].strip("*").startswith("+0.00")


@pytest.mark.parametrize("make", [comparison_table, reproduction_table])
def test_plain_text_fits_eighty_columns_and_cuts_nothing(make):
    table = make(trials(dict.fromkeys(ALL, 12.0) | {"wd": 11.5}, 20, "mnist-cnn", noise=0.02))
    text = table.to_text(80)
    assert "\x1b" not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for row in table.rows:
        shown = [cell.text.replace(" ± ", "±") + "*" * cell.bold for cell in row]
        assert any(line.split() == shown for line in text.splitlines())


def test_reproduction_beside_the_paper():
    results = trials(MNIST_FC, 10)
    table = reproduction_table(results)
    rows = markdown_rows(table)
    assert rows["WD"][3] == "2.17 ± 0.01"
    assert rows["WD"][7] == "-0.68"
    assert [rows[name][8] for name in ("Scan", "WD", "WE", "WPV", "WTC")] == ["–", "yes", "yes", "no", "yes"]
    notes = " ".join(table.notes)
    assert "Findings: 3 of 4 hold" in notes
    assert "Order of 10 pairs of methods: 8 as in the paper, 0 undecided, 2 opposite" in notes
    assert "Opposite order in the paper: WPV < Scan, WPV < WE." in notes
    assert paper_findings(results) == [
        ("wd", "better", "better"),
        ("we", "worse", "worse"),
        ("wpv", "worse", "better"),
        ("wtc", "better", "better"),
    ]


def test_reproduction_of_methods_the_paper_does_not_have():
    table = reproduction_table(trials({"scan": 2.9, "mine": 2.5}, 3))
    rows = markdown_rows(table)
    assert rows["mine"][3:5] == ["–", "–"]
    assert rows["mine"][8] == "–"


def test_reproduction_of_another_row():
    results = trials({"scan": 62.0, "wpv": 60.0}, 3, recipe="cifar10-lr-calibrated")
    with pytest.raises(
        ValueError, match=r"Expected `row` to be a row of the paper, mnist-cnn.*'cifar10-lr-calibrated'"
    ):
        reproduction_table(results)
    assert markdown_rows(reproduction_table(results, row="cifar10-lr"))["Scan"][3].startswith("62.4")


def test_names_cannot_break_the_table():
    results = trials({"scan": 3.0, "a|b[bold]": 2.5}, 2)
    table = comparison_table(results)
    assert "a\\|b[bold]" in table.to_markdown()
    assert "a|b[bold]" in table.to_text()
