"""Pairs of a method and a peer against both alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from activebias.lab.experiment.store import ResultStore
from activebias.lab.peer_pairs import pair_table
from activebias.lab.peer_rows import peer_rows

ROOT = Path(__file__).parents[3]


def test_pairs_are_compared_with_both_halves():
    """From the stored trials of digits: by hand with SciPy, and Holm's correction over the column."""
    store = ResultStore(ROOT / "results" / "peers")
    table = pair_table(store)
    lines = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in table.rows}
    assert ("WE+ELR", "digits-40") in lines
    p_values = {}
    for pair, row in lines:
        results = peer_rows()[row].results(store)
        sides = {
            name: {each.seed: each.chosen_test_error for each in results[name]}
            for name in (pair.lower(), *pair.lower().split("+"))
        }
        both, method, peer = (np.array([each[seed] for seed in sorted(each)]) for each in sides.values())
        number, *shown = lines[pair, row]
        assert int(number) == len(both)
        assert shown[:3] == [
            f"{errors.mean():.2f} ± {stats.sem(errors):.2f}" for errors in (both, method, peer)
        ]
        if "med" not in shown[4]:
            assert float(shown[4].split()[0]) == pytest.approx((both - peer).mean(), abs=0.0051)
            p_values[pair, row] = stats.ttest_rel(both, peer).pvalue
    smallest = min(p_values, key=p_values.get)
    assert p_values[smallest] * len(lines) < 0.001
    assert lines[smallest][5].endswith("(< 0.001)")
    assert all(lines[key][5].endswith("(1.00)") for key, value in p_values.items() if value > 0.5)
    bold = [row for row in table.rows if row[-1].bold]
    assert 0 < len(bold) < len(table.rows)


def test_pairs_without_a_trained_half_have_no_difference(tmp_path):
    stored = ROOT / "results" / "peers" / "digits-40.jsonl"
    kept = [
        line for line in stored.read_text().splitlines() if json.loads(line)["method"] in ("elr", "we+elr")
    ]
    (tmp_path / "digits-40.jsonl").write_text("\n".join(kept) + "\n")
    (row,) = pair_table(ResultStore(tmp_path)).rows
    assert [cell.text for cell in row[:2]] == ["WE+ELR", "digits-40"]
    assert row[4].text == row[6].text == "–"
    assert row[5].text != "–"
    assert row[7].text.startswith("-0.25 (")
    assert pair_table(ResultStore(tmp_path / "nothing")).rows == ()


def test_the_page_shows_the_stored_errors_on_unseen_data():
    found = {}
    for line in (ROOT / "results" / "auto" / "unseen-pairs.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        errors = found.setdefault((record["set"], record["noise"]), {})
        errors[record["side"]] = np.array(record["chosen"])
    assert len(found) == 60
    page = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
    shown = {}
    for line in page.split("| side | better than Scan | worse |")[1].split("\n\n")[0].splitlines()[2:]:
        side, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        shown[side.lower()] = [float(cell.rstrip(" %")) for cell in cells]
    assert shown.keys() == next(iter(found.values())).keys() - {"scan"}
    for side, cells in shown.items():
        tests = [stats.ttest_rel(errors[side], errors["scan"]) for errors in found.values()]
        expected = [
            sum(test.pvalue < 0.05 and sign * test.statistic > 0 for test in tests) for sign in (-1, 1)
        ]
        for noise in ("clean", "20 % wrong", "40 % wrong", "30 % flipped"):
            rows = [errors for (_, kind), errors in found.items() if kind == noise]
            changes = [errors[side].mean() / errors["scan"].mean() - 1 for errors in rows]
            expected.append(100 * np.mean(changes))
        assert cells == pytest.approx(expected, abs=0.051), side
    card = (ROOT / "docs" / "methods" / "auto.md").read_text(encoding="utf-8")
    lines = card.split("| method | better than scan | worse |")[1].split("\n\n")[0].splitlines()[2:]
    for line in lines:
        name, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        side = name.split(",")[0].lower().replace(" with ", "+").replace("label smoothing", "label-smoothing")
        assert [float(cell.rstrip(" %")) for cell in cells] == shown[side]
    assert len(lines) == 7
