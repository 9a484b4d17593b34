"""The tables of a search and its trials: settings, budgets, paired tests, failed trials."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from activebias.lab import Place
from activebias.lab.experiment.results import TrialResult
from activebias.lab.peer_table import COLUMNS, num_failed, protocol_json, protocol_table, side_title
from activebias.lab.protocol import Protocol, candidates
from activebias.lab.searched_table import searched
from side_by_side_cases import digits


def test_the_table_has_settings_errors_and_budgets(trained):
    protocol, place, _ = trained
    rows = {row[0].text: [cell.text for cell in row] for row in protocol_table(protocol, place.store).rows}
    assert list(rows) == ["Scan", "WTC", "GCE"]
    assert [row[COLUMNS.index("searched")] for row in rows.values()] == ["4×2", "4×2", "12×2"]
    assert [row[COLUMNS.index("n")] for row in rows.values()] == ["3", "3", "3"]
    table = searched(protocol, place.store).json["methods"]
    for name, group in protocol.results(place.store).items():
        assert table[name]["test_error"] == [result.chosen_test_error for result in group]
        shown = rows[side_title(name)][COLUMNS.index("against Scan")]
        assert (
            table[name]["difference"] is None
            if shown == "–"
            else f"{table[name]['difference']:+.2f}" in shown
        )
    wider = replace(protocol, names=("scan", "elr"))
    assert protocol_table(wider, place.store).rows[1][1].text == "not searched yet"


def test_a_user_reads_rates_as_numbers_budgets_seeds_and_a_conclusion(trained):
    protocol, place, _ = trained
    table, notes, conclusion, whole = searched(protocol, place.store)
    rows = {row[0].text: [cell.text for cell in row] for row in table.rows}
    assert list(rows) == ["scan", "wtc", "gce"], "names as they are typed"
    rate = protocol.recipe.optimiser.learning_rate
    for name, chosen in protocol.chosen(place.store).items():
        assert rows[name][1].endswith(f"rate {rate * chosen.side.setting.rate:.3g}")
    assert [row[-1] for row in rows.values()] == ["4×2", "4×2", "12×2"]
    text = table.to_text(100)
    assert all(re.search(rf"^{name} .* \d+×2$", text, re.MULTILINE) for name in rows), "a line is broken"
    said = " ".join(notes)
    assert f"the learning rates {rate / 3:.3g}, {rate:.3g}, {3 * rate:.3g} and {10 * rate:.3g}," in said
    assert "Seed 1000, 2 epochs." in said
    assert "Trials: seeds 0 to 2, 5 epochs" in said
    assert conclusion.startswith("Against scan (")
    assert (whole["conclusion"], list(whole["methods"])) == (conclusion, list(rows))
    assert "best test error" not in conclusion


def test_a_search_without_scan_says_what_is_not_compared(trained):
    protocol, place, _ = trained
    found = searched(replace(protocol, names=("wtc", "gce")), place.store)
    assert found.conclusion == (
        "There is nothing to compare: wtc and gce have no baseline. Add scan to the methods."
    )
    assert [row[0].text for row in found.table.rows] == ["wtc", "gce"]


def test_a_search_says_what_it_measures_and_marks_the_median_of_a_failed_side(trained, monkeypatch):
    protocol, place, _ = trained
    chosen, results = protocol.chosen(place.store), protocol.results(place.store)
    first, *others = results["gce"]
    results["gce"] = [replace(first, test_error=[99.0] * 5), *others]
    monkeypatch.setattr(Protocol, "chosen", lambda *_: chosen)
    monkeypatch.setattr(Protocol, "results", lambda *_: results)
    tagging = replace(protocol, recipe=replace(protocol.recipe, metric="entity F1"))
    table, notes, conclusion, _ = searched(tagging, place.store)
    assert table.columns[3] == "100 - F1 %"
    assert "% 100 - F1, mean of 3 trials" in conclusion
    differences = {row[0].text: row[4].text for row in table.rows}
    assert re.fullmatch(r"med [+-][\d.]+", differences["gce"])
    assert re.fullmatch(r"[+-][\d.]+ ± [\d.]+", differences["wtc"])
    assert any(note.startswith("Failed trials: gce 1 of 3") for note in notes)


def test_the_tests_of_a_column_are_paired_and_corrected_together(trained):
    protocol, place, _ = trained
    results = protocol.results(place.store)
    rows = {row[0].text: row for row in protocol_table(protocol, place.store).rows}
    errors = {
        name: np.array([result.chosen_test_error for result in sorted(group, key=lambda each: each.seed)])
        for name, group in results.items()
    }
    found = {name: stats.ttest_rel(errors[name], errors["scan"]).pvalue for name in ("wtc", "gce")}
    smaller, larger = sorted(found, key=found.get)
    corrected = {smaller: min(1, 2 * found[smaller])}
    corrected[larger] = max(corrected[smaller], found[larger])
    for name, p_value in corrected.items():
        cell = rows[name.upper()][COLUMNS.index("against Scan")]
        difference, shown = cell.text.rstrip(")").split(" (")
        assert float(difference) == pytest.approx((errors[name] - errors["scan"]).mean(), abs=0.006)
        assert float(shown.removeprefix("< ")) == pytest.approx(p_value, abs=0.006)
    # A pair is tested once, and a side not against itself.
    assert [rows[name][COLUMNS.index("against WTC")].text for name in ("Scan", "WTC")] == ["–", "–"]
    assert rows["GCE"][COLUMNS.index("against WTC")].text != "–"


def test_a_failed_trial_is_counted_and_its_side_has_a_median(tmp_path):
    """Trials that are stored as the search and the trials of a row; one never learns."""
    protocol = Protocol.of(digits(), ["scan", "gce"])
    place = Place(tmp_path)

    def store(side, recipe, seed, error):
        curve = [error] * recipe.epochs
        place.store.append(
            TrialResult(
                recipe=recipe.name, method=side.name, seed=seed, rule=side.rule, config=recipe.config(),
                device="cpu", seconds=1.0, test_error=curve, train_error=curve, validation_error=curve,
            )
        )  # fmt: skip

    for name in protocol.names:
        for side in candidates(name):
            store(side, protocol.searched, 1000, 5.0 if side.setting.rate == 1 else 6.0)
    for name, chosen in protocol.chosen(place.store).items():
        for seed in range(3):
            store(chosen.side, protocol.recipe, seed, 90.0 if (name, seed) == ("gce", 1) else 4.0 + seed)
    assert num_failed(protocol.results(place.store)) == {"scan": 0, "gce": 1}
    table = protocol_table(protocol, place.store)
    cells = {
        row[0].text: [
            row[COLUMNS.index(column)].text for column in ("test error %", "median %", "against Scan")
        ]
        for row in table.rows
    }
    # The differences are 0, 85 and 0: their median, and ranks of one difference that is not 0.
    assert cells == {
        "Scan": ["5.00 ± 0.58", "5.00", "–"],
        "GCE": ["33.33 ± 28.34", "6.00 (1 failed)", "med +0.00 (1.00)"],
    }
    assert table.notes[-1].startswith("Failed trials: GCE 1 of 3 (median of the test error 6.00).")
    assert protocol_json(protocol, place.store)["gce"]["failed"] == 1
