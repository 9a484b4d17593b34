"""The method `auto` on the command line: own data and recipes, alone and compared, audited and reported."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("PIL")
import pandas as pd

import activebias as ab
from activebias import learning
from activebias.lab import Place, get_recipe, run_trials
from activebias.lab.experiment.store import ResultStore
from activebias.lab.trials import UnlearntWarning
from activebias.own.tables import read_table
from activebias.own.train import LEARNT_FROM_VALIDATION, build_run, train_own
from activebias.runs.folder import read_run
from activebias.training.checkpoints import Checkpoint
from command import run, words
from own_data import made_up, write_digits, write_wine


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learning, "PART", 100.0)  # on data this small it would learn once in many epochs


def sources():
    write_wine(Path("wine.csv"))
    write_digits(Path("photos"), 100)
    Path("tweets.conll").write_text(made_up(60))
    return {
        "wine": ("--csv", "wine.csv", "--target", "target"),
        "photos": ("--images", "photos"),
        "tweets": ("--conll", "tweets.conll"),
    }


@pytest.mark.parametrize("name", ["wine", "photos", "tweets"])
def test_own_data_teaches(name):
    options = ("--method", "auto", "--epochs", 4, "--burn-in", 1, "--quiet")
    result = run("train", *sources()[name], *options)
    folder = read_run(f"runs/{name}")
    info, emphasis = folder.info, folder.emphasis()
    assert "It learnt from the validation part, whose error is a little optimistic." in words(result.stdout)
    assert words(info.explanation) in words(result.stdout)
    assert info.explanation.startswith("Emphasises")
    assert info.notes[-1] == LEARNT_FROM_VALIDATION
    assert emphasis.epochs.tolist() == [1, 2, 3, 4]
    assert emphasis.weights.shape == (4, 13)
    assert np.diff(emphasis.means).min() > 0
    assert folder.bias_state()["curve"]["num_learnt"] == learning.FIRST_ROUNDS + 3
    assert json.loads(run("audit", f"runs/{name}", "--json").stdout)
    assert words(info.explanation) in words(run("report", f"runs/{name}").stdout)


def test_a_stopped_run_has_the_curves_of_all_epochs(monkeypatch):
    data = read_table(write_wine(Path("wine.csv")), target="target", validation=0.2, seed=0)
    options = {"method": "auto", "epochs": 6, "burn_in": 2}
    whole = train_own(data, Path("whole"), **options)

    class StoppedError(Exception):
        pass

    def stop(seen):
        if seen.epoch == 4:
            raise StoppedError

    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    with pytest.raises(StoppedError):
        train_own(data, Path("stopped"), **options, on_epoch=stop)
    resumed = train_own(data, Path("stopped"), **options)
    assert resumed.emphasis().epochs.tolist() == [2, 3, 4, 5, 6]  # after the burn-in's last epoch
    np.testing.assert_array_equal(resumed.emphasis().weights, whole.emphasis().weights)
    assert resumed.info.explanation == whole.info.explanation


def test_other_methods_have_no_curve_and_do_not_learn():
    run("train", *sources()["wine"], "--epochs", 2, "--quiet")
    folder = read_run("runs/wine")
    assert folder.emphasis() is None
    assert folder.info.explanation == ""
    assert not (folder.path / "emphasis.csv").exists()
    data = read_table(Path("wine.csv"), target="target", validation=0.2, seed=0)
    options = {"model": None, "burn_in": 1, "seed": 0, "device": "cpu"}
    assert build_run(data, method="wtc", **options).task.validation is None
    assert build_run(data, method="auto", **options).task.validation is not None


def test_a_damaged_curve_is_named():
    run("train", *sources()["wine"], "--method", "auto", "--epochs", 2, "--burn-in", 0, "--quiet")
    Path("runs/wine/emphasis.csv").write_text("epoch,0.1,0.2\n1,1.0\n")
    assert "emphasis.csv is damaged" in run("report", "runs/wine", code=1).stderr


def test_issues_are_found():
    frame = pd.read_csv(write_wine(Path("wine.csv")))
    frame.loc[100, "target"] = 2
    table, folder = ab.find_issues(frame, target="target", method="auto", epochs=15, burn_in=5)
    assert table["row"].iloc[0] == 100
    assert folder.emphasis() is not None


def test_a_recipe_without_a_validation_part_says_that_it_follows_a_rule(recwarn):
    options = ("--epochs", 6, "--quiet")
    auto = json.loads(run("train", "digits", "--method", "auto", *options, "--out", "a", "--json").stdout)
    assert "The method auto learnt nothing, because this training has no validation" in auto["warnings"][0]
    assert auto["explanation"] == ""
    result = run("compare", "digits", "--methods", "scan,auto", "--trials", 1, *options)
    assert "Warning: digits has no validation part to learn from, so auto emphasises by the" in result.stderr
    assert "digits has no validation part to learn from, so auto emphasises by the" in words(result.stdout)
    assert not [each for each in recwarn if issubclass(each.category, UserWarning)]
    with pytest.warns(UnlearntWarning, match="digits has no validation part"):
        run_trials(get_recipe("digits").shortened(6), methods=["auto"], seeds=[0], place=Place(Path("runs")))


@pytest.mark.parametrize("at_once", [1, 8])
def test_a_part_that_a_recipe_holds_out_teaches(at_once):
    recipe = replace(get_recipe("digits").shortened(6), validation=0.2)
    place = Place(Path("runs"), side_by_side=at_once)
    auto, wtc = run_trials(recipe, methods=["auto", "wtc"], seeds=[0], place=place)
    assert auto.train_error[: recipe.burn_in] == wtc.train_error[: recipe.burn_in]
    assert auto.train_error != wtc.train_error


@pytest.mark.parametrize("name", ["wine", "tweets"])
def test_compared_over_splits(name):
    """Side by side and one by one, auto is trained on what the other methods are, and differs from wtc."""
    arguments = ("compare", *sources()[name], "--methods", "scan,wtc,auto", "--splits", 2, "--epochs", 4)
    errors = {}
    for at_once in (1, 6):
        place = ("--side-by-side", at_once, "--out", f"runs-{at_once}", "--burn-in", 1, "--json")
        facts = json.loads(run(*arguments, *place).stdout)
        assert facts["methods"]["auto"]["baseline"] == "scan"
        stored = ResultStore(Path(f"runs-{at_once}")).load(f"own-{name}")
        errors[at_once] = {(each.method, each.seed): each.train_error for each in stored}
    assert errors[1].keys() == errors[6].keys() == {(m, s) for m in ("scan", "wtc", "auto") for s in (0, 1)}
    for key, values in errors[1].items():
        assert errors[6][key] == pytest.approx(values, abs=3.0)


def test_a_search_lets_it_learn_and_a_typo_is_noticed():
    result = run("compare", "digits", "--methods", "scan,atuo", code=2)
    assert "Did you mean 'auto'?" in words(result.output)
    arguments = ("--methods", "scan,auto", "--search", "--trials", 2, "--epochs", 6, "--json")
    found = run("compare", "digits", *arguments)
    assert "no validation part" not in found.stderr
    assert "auto" in found.stdout


def test_tags_are_not_drawn():
    result = run("train", *sources()["tweets"], "--method", "sauto", code=2)
    assert "use scan, wd, we, wpv, wtc or auto, not sauto" in words(result.output)
