"""The reproduction page is what the store says, and says it right."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from activebias.lab import Place, ResultStore, TrialResult, get_recipe, run_trials
from activebias.lab import reproduction as module
from activebias.lab.experiment.results import config_hash
from activebias.lab.trials import missing_runs

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_docs_is_made_from_the_store():
    page = module.page(ResultStore(ROOT / "results"), ROOT / "results" / "notes", "figures")
    written = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert written == page, "run `make reproduction`"
    for figure in re.findall(r"\]\((figures/[^)]+)\)", page):
        assert (ROOT / "docs" / figure).exists()


@pytest.mark.parametrize("folder", ["results", "results/one-by-one"])
def test_no_stored_result_would_be_trained_again(folder):
    store = ResultStore(ROOT / folder)
    names = [path.stem for path in sorted(store.folder.glob("*.jsonl"))]
    assert "mnist-fc" in names
    for name in names:
        recipe, results = get_recipe(name), store.load(name)
        assert {config_hash(result.config) for result in results} == {config_hash(recipe.config())}, name
        methods, seeds = (dict.fromkeys(getattr(each, key) for each in results) for key in ("method", "seed"))
        missing = missing_runs(recipe, methods, seeds, Place(store.folder))
        stored = {(result.seed, result.method) for result in results}
        assert stored.isdisjoint((seed, side.name) for seed, group in missing.items() for side in group)


def test_the_stored_trials_side_by_side_are_those_trained_one_by_one():
    recipe = get_recipe("mnist-fc")
    side_by_side, one_by_one = (
        {
            (result.method, result.seed): result
            for result in ResultStore(folder).load("mnist-fc", recipe.config())
        }
        for folder in (ROOT / "results", ROOT / "results" / "one-by-one")
    )
    # Uni and the methods that scan; in SD's draws rounding errors choose other instances.
    same = [key for key in one_by_one if key[0] != "sd"]
    assert len(same) == 60
    assert all(one_by_one[key].device == "cpu" != side_by_side[key].device for key in same)
    for key in same:
        assert side_by_side[key].best_test_error == one_by_one[key].best_test_error


def test_the_stored_trials_on_a_gpu_are_those_on_a_cpu():
    recipe = get_recipe("cifar10-lr-wide-start")
    gpu, cpu = (
        {
            (result.method, result.seed): result
            for result in ResultStore(folder).load(recipe.name, recipe.config())
        }
        for folder in (ROOT / "results", ROOT / "results" / "one-by-one")
    )
    same = [key for key in cpu if key[0] in ("uni", "scan", "wd", "we", "wpv", "wtc")]
    differences = [abs(gpu[key].best_test_error - cpu[key].best_test_error) for key in same]
    assert len(same) == 30
    assert max(differences) < 0.011  # one test image
    assert sum(difference > 0 for difference in differences) == 1


def test_a_stored_trial_that_is_trained_again_has_its_errors(real_data, tmp_path):
    """Two of 60 epochs of the burn-in, which knows no method."""
    real_data("mnist")
    recipe = get_recipe("mnist-fc")
    (before,) = [
        result
        for result in ResultStore(ROOT / "results" / "one-by-one").load("mnist-fc", recipe.config())
        if (result.method, result.seed) == ("scan", 0)
    ]
    (again,) = run_trials(
        replace(recipe, epochs=2), methods=["scan"], seeds=[0], place=Place(tmp_path, side_by_side=1)
    )
    assert again.test_error == pytest.approx(before.test_error[:2], abs=0.011)  # one test image


def stored(folder, differences, row="mnist-fc", seconds=2.0):
    """Store two trials of a row whose methods differ from Scan by so much."""
    recipe = get_recipe(row)
    store = ResultStore(folder)
    for method, difference in {"scan": 0.0, **differences}.items():
        for seed, noise in enumerate((0.0, 0.01, -0.01)):
            curve = [3.0 + difference + noise * (1 if method == "scan" else 1.01)] * 12
            store.append(
                TrialResult(
                    recipe=row,
                    method=method,
                    seed=seed,
                    config=recipe.config(),
                    test_error=curve,
                    train_error=curve,
                    device="cpu",
                    seconds=seconds,
                )
            )
    return store


def unwrapped(page):
    return " ".join(page.split())


def test_what_holds_is_counted(tmp_path):
    # The paper: WD, WPV and WTC better than Scan, WE worse.
    page = module.page(
        stored(tmp_path, {"wd": -1.0, "we": -1.0, "wpv": -1.0, "wtc": 1.0}), tmp_path, "figures"
    )
    assert (
        "**2 of 4 comparisons hold** in 1 row. Of the others, 0 are significant only here, 0 only in the "
        "paper, 2 have opposite findings. 2 comparisons have the paper's sign"
    ) in unwrapped(page)
    assert "| [mnist-fc](#mnist-fc) | 3 | 10 | 2 of 4 | CPU | 2 |" in page
    assert "| mnist-cnn | 0 | 20 | open: not run yet |" in page
    assert "OntoNotes 5.0 is licensed" in page


def test_a_difference_that_only_one_side_sees_is_counted_apart(tmp_path):
    # The paper: no difference between WD and Scan on TREC, WPV better.
    page = module.page(stored(tmp_path, {"wd": -1.0, "wpv": 0.0}, row="qt-cnn"), tmp_path, "figures")
    assert (
        "- Best test error %: **0 of 2 comparisons hold** in 1 row. Of the others, 1 is significant only "
        "here, 1 only in the paper, 0 have opposite findings."
    ) in unwrapped(page)


def test_the_last_epochs_are_judged_by_the_other_standard_errors_too(tmp_path):
    # The paper, on TREC: Scan 18.59 ± 0.01 and WD 18.52 ± 0.01 in the last ten epochs, ± 0.08 in the best.
    page = module.page(stored(tmp_path, {"wd": 0.0}, row="qt-cnn"), tmp_path, "figures")
    assert "- Last 10 epochs %: **0 of 1 comparisons hold**" in page
    assert "standard errors of the best error instead, 1 of 1 comparisons hold" in unwrapped(page)


def test_seconds_of_parts_are_marked(tmp_path):
    assert "| CPU | 2* |" in module.page(stored(tmp_path, {"wd": 0.0}, row="qt-cnn"), tmp_path, "figures")


def test_a_variant_of_a_row_is_shown_but_not_counted_again(tmp_path):
    store = stored(tmp_path, {"wd": -1.0, "we": 1.0}, row="cifar10-lr")
    once = module.page(store, tmp_path, "figures")
    stored(tmp_path, {"wd": -1.0, "we": 1.0}, row="cifar10-lr-as-printed")
    both = module.page(store, tmp_path, "figures")
    assert "## cifar10-lr-as-printed" in both
    summaries = [page.partition("| row |")[0] for page in (once, both)]
    assert "comparisons hold" in summaries[0]
    assert summaries[0] == summaries[1]


def test_long_times_are_readable(tmp_path):
    page = module.page(stored(tmp_path, {"wd": -1.0}, seconds=1234.5), tmp_path, "figures")
    assert "| CPU | 1,234 |" in page


def test_results_of_other_settings_do_not_count(tmp_path):
    store = stored(tmp_path, {"wd": -1.0})
    other = replace(get_recipe("mnist-fc"), batch_size=7)
    assert store.load("mnist-fc", other.config()) == []
    assert "**1 of 1 comparisons hold**" in module.page(store, tmp_path, "figures")


def test_the_notes_of_a_row_stand_in_its_section(tmp_path):
    store = stored(tmp_path, {"wd": -1.0})
    (tmp_path / "mnist-fc.md").write_text("What was tried.")
    assert "What was tried." in module.page(store, tmp_path, "figures")


def test_main_writes_page_and_figures(tmp_path):
    stored(tmp_path / "results", {"wd": -1.0})
    out = tmp_path / "docs" / "reproduction.md"
    out.parent.mkdir()
    module.main(tmp_path / "results", out)
    assert out.read_text(encoding="utf-8").startswith("# Reproduction")
    assert [path.name for path in (tmp_path / "docs" / "figures").iterdir()] == ["mnist-fc.png"]


def test_an_empty_store_claims_nothing(tmp_path):
    page = module.page(ResultStore(tmp_path), tmp_path, "figures")
    assert "**0 of 0 comparisons hold** in 0 rows" in page
    assert "## mnist-fc" not in page
