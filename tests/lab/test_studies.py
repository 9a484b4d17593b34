"""The lab's scripts of benchmarks/: other readings of Uni, other word vectors, and seconds of a trial."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import made_up
from activebias.lab import Optimiser, Place, get_recipe, run_trials
from activebias.lab.experiment.prepared import load_data

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture
def study(monkeypatch):
    """Return a function that imports a script of benchmarks/, as its own folder's programs do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for name in ("uni", "embeddings", "trials"):
        sys.modules.pop(name, None)


@pytest.fixture
def small(tmp_path):
    """Return a recipe with momentum and a short burn-in, and its data: batches do not divide the images."""
    made_up.write("mnist", tmp_path, 100)
    optimiser = Optimiser("sgd", 0.1, momentum=0.9, factor=0.5, every=1)
    recipe = replace(get_recipe("mnist-fc"), batch_size=16, epochs=3, burn_in=1, optimiser=optimiser)
    recipe = replace(recipe, data_options={"verify": False})
    return recipe, load_data(recipe, tmp_path)


def trained(study, recipe, dataset, lanes):
    group = study("uni").Readings(recipe, dataset, lanes, CPU)
    for _ in range(recipe.epochs):
        group.train_epoch()
    return dict(zip(lanes, group.curves(), strict=True))


def test_uni_and_scan_among_other_readings_are_those_of_the_lab(study, small, tmp_path):
    recipe, dataset = small
    lanes = [(reading, seed) for seed in (3, 4) for reading in study("uni").READINGS]
    curves = trained(study, recipe, dataset, lanes)
    place = Place(tmp_path / "results", tmp_path, "cpu")
    for result in run_trials(recipe, methods=["uni", "scan"], seeds=[3, 4], place=place, dataset=dataset):
        assert curves[result.method, result.seed] == pytest.approx(list(result.test_error), abs=1e-5)
    assert len({tuple(curve) for curve in curves.values()}) > len(lanes) / 2


def test_a_shorter_epoch_does_not_depend_on_the_models_beside_it(study, small):
    recipe, dataset = small
    lanes = [("uni", 3), ("ceiling", 3), ("55000", 3)]
    together = trained(study, recipe, dataset, lanes)
    for lane in lanes:
        assert together[lane] == pytest.approx(trained(study, recipe, dataset, [lane])[lane], abs=1e-5)


def test_orders(study):
    orders = {
        (name, burns_in): reading(1000, 64, burns_in, torch.Generator().manual_seed(0))
        for name, reading in study("uni").READINGS.items()
        for burns_in in (True, False)
    }
    lengths = {name: len(order) // 64 for (name, _), order in orders.items()}
    assert lengths == dict.fromkeys(lengths, 15) | {"ceiling": 16, "55000": 14}
    assert orders["55000", False].min() >= 1000 // 12
    assert all(len(batch.unique()) == 64 for batch in orders["distinct-batches", False].split(64))
    assert any(len(batch.unique()) < 64 for batch in orders["uni", False].split(64))
    assert len(orders["scanned-burn-in", True].unique()) == 15 * 64
    assert torch.equal(orders["scanned-burn-in", False], orders["uni", False])


def run_main(study, name, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
    study(name).main()


def test_the_study_of_uni_goes_on_where_it_stopped(study, tmp_path, real_data, monkeypatch, capsys):
    real_data("mnist")
    out = tmp_path / "uni.jsonl"
    options = ["--epochs", 1, "--limit", 64, "--device", "cpu", "--store", tmp_path, "--out", out]
    run_main(study, "uni", monkeypatch, "--readings", "uni", "--trials", 1, *options)
    assert "| uni | 1 |" in capsys.readouterr().out
    run_main(study, "uni", monkeypatch, "--readings", "uni", "scan", "--trials", 1, *options)
    table = capsys.readouterr().out.split("\n\n")[-1]
    assert len(out.read_text().splitlines()) == 2
    run_main(study, "uni", monkeypatch, "--trials", 0, *options)
    assert capsys.readouterr().out.strip() == table.strip()


def test_the_study_of_word_vectors(study, tmp_path, real_data, monkeypatch, capsys):
    real_data("trec")
    real_data("embeddings")
    options = ["--epochs", 2, "--limit", 64, "--trials", 2, "--device", "cpu", "--out", tmp_path]
    options += ["--embeddings", "random", "pca"]
    run_main(study, "embeddings", monkeypatch, *options, "--store", tmp_path)
    first = capsys.readouterr().out
    assert "moved by" in first
    assert {path.stem for path in tmp_path.glob("*.jsonl")} == {"qt-cnn-random", "qt-cnn-pca"}
    # The trials with random vectors as those with GloVe: they moved by nothing.
    text = (tmp_path / "qt-cnn-random.jsonl").read_text()
    text = text.replace("qt-cnn-random", "qt-cnn").replace("(random vectors)", "")
    (tmp_path / "qt-cnn.jsonl").write_text(text)
    run_main(study, "embeddings", monkeypatch, *options, "--store", tmp_path)
    again = capsys.readouterr().out
    assert "6 of 6 results are read" in again
    lines = [line for line in again.splitlines() if line.startswith("| random")]
    assert all(line.count("+0.000 ± 0.000 (p = 1.000)") >= 2 for line in lines)


def test_vectors(study):
    module = study("embeddings")
    vectors = torch.cat([torch.zeros(1, 50), torch.randn(40, 50, generator=torch.Generator().manual_seed(1))])
    for name, shape in (("random", (41, 50)), ("scaled", (41, 50)), ("pca", (41, 25))):
        made = module.EMBEDDINGS[name](vectors)
        assert tuple(made.shape) == shape
        assert not made[0].any()
    assert module.EMBEDDINGS["random"](vectors).std() == pytest.approx(float(vectors.std()), rel=0.1)


def test_seconds_of_a_trial_are_measured_both_ways(study):
    module = study("trials")
    row = module.compare("digits", CPU, 1, 2)
    assert row["models_at_once"] == 2
    assert min(row["one_by_one_s"], row["side_by_side_s"], row["iteration_us"]) > 0
    evaluated = module.evaluated_examples(get_recipe("cifar100-rn27"), 50_000, 10_000)
    assert evaluated == 150 * 10_000 + (12 + 30) * 50_000
