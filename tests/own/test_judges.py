"""Several judges: every example is held out by one of them, and their beliefs are averaged."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

import activebias
import command
from activebias.own import train
from activebias.own.data import OwnData
from activebias.own.forms import data_in_ram
from activebias.own.judges import average_judges, epochs_that_count, fold_masks
from activebias.own.tagged import read_tagged
from activebias.own.train import build_run, train_own
from activebias.runs import audit_run, read_run
from activebias.runs.suspects import at_least, judges_note, weak_judge
from activebias.training.checkpoints import Checkpoint
from activebias.training.evaluation import predict
from activebias.training.examples import joined
from own_data import write_wine

WRONG = 100


@pytest.fixture(scope="module")
def wine():
    values, kinds = load_wine(return_X_y=True)
    kinds[WRONG] = 2
    values[51], values[52] = values[50], values[50]  # copies of one input
    return values, kinds


@pytest.fixture(scope="module")
def own(wine):
    return data_in_ram(*wine, None, None, 0.2, 0)


def train_judge(data, judge, epochs=3):
    run = build_run(data, model=None, method="scan", burn_in=1, seed=judge, device=torch.device("cpu"))
    for observer in run.observers:
        observer.keep_epochs()
    for _ in range(epochs):
        run.train_epoch()
    return run


def test_every_example_is_held_out_once(own):
    """The parts that the judges get, found again by their inputs."""
    parts: list[OwnData] = []

    def observed(part, judge):
        parts.append(part)
        return train_judge(part, judge, epochs=1)

    first = train_judge(own, 0, epochs=1)
    average_judges(own, first, 4, observed, seed=0)
    rows = {bytes(row.numpy()) for row in joined(own.train, own.validation).inputs[0]}
    outside = [{bytes(row.numpy()) for row in part.validation.inputs[0]} for part in (own, *parts)]
    assert set.union(*outside) == rows
    assert sum(len(each) for each in outside) == len(rows)  # copies are never in two parts
    for part in parts:
        inside = {bytes(row.numpy()) for row in part.train.inputs[0]}
        assert inside == rows - {bytes(row.numpy()) for row in part.validation.inputs[0]}


def test_the_average_counts_the_judge_outside_as_much_as_the_others_together(own):
    runs = [train_judge(own, 0)]
    held_out = [np.arange(178) >= len(own.train)]

    def kept(part, judge):
        runs.append(train_judge(part, judge))
        return runs[-1]

    judged = average_judges(own, runs[0], 3, kept, seed=0)
    for fold in fold_masks(own.train, 2, 0):
        held_out.append(np.append(fold, np.zeros(len(own.validation), bool)))
    examples = joined(own.train, own.validation)
    assert 3 in judged.epochs  # the last epoch, whose models are still here
    now = [predict(run.model, examples).softmax(1).numpy() for run in runs]
    outside = sum(prob * mask[:, None] for prob, mask in zip(now, held_out, strict=True))
    inside = sum(prob * ~mask[:, None] for prob, mask in zip(now, held_out, strict=True)) / 2
    expected = np.take_along_axis((outside + inside) / 2, examples.targets.numpy()[:, None], 1)[:, 0]
    values, valid = judged.history.values()
    assert valid.all()
    assert values.shape == (178, 1 + len(judged.epochs))  # the first entry is 1/C
    np.testing.assert_allclose(values[:, -1], expected, atol=1e-3)  # kept in half precision
    np.testing.assert_allclose(judged.beliefs.sum(1), 1, atol=3e-3)


def test_epochs_that_count():
    """While a model learns, the last epochs count; when it memorises, the epochs before."""
    noise = np.random.default_rng(0).normal(0, 0.02, (6, 500))
    learning = np.clip(np.linspace(0.2, 0.8, 6)[:, None] + noise, 0.01, 0.99)
    assert epochs_that_count(learning) == [5]
    assert epochs_that_count(learning[::-1]) == [0]
    level = np.clip(0.7 + noise, 0.01, 0.99)
    assert len(epochs_that_count(level)) >= 4
    assert epochs_that_count(np.ones((3, 10))) == [0, 1, 2]


def test_in_one_call(wine, tmp_path):
    table, run = activebias.find_issues(*wine, judges=3, epochs=12, out=tmp_path / "three")
    assert table["row"].iloc[0] == WRONG
    assert run.info.judges["number"] == 3
    assert set(run.info.judges["epochs"]) <= set(range(1, 13))
    assert len(audit_run(run)) == 178
    assert [path.name for path in tmp_path.iterdir()] == ["three"]  # no checkpoint is left
    alone = activebias.find_issues(*wine, epochs=12, out=tmp_path / "alone").run
    assert alone.info.judges == {}
    assert at_least(run.info, 1_234).startswith(
        "Expect at least about 1,234 wrong labels: the judges are sure"
    )
    assert at_least(run.info, 0) == at_least(alone.info, 1_234) == ""  # one model is too often sure and wrong
    weak = {"validation_error": [40.0] * 12}
    assert "the judges are weak, and many suspects are their" in weak_judge(replace(run.info, curves=weak))
    assert "the model is a weak judge, and many" in weak_judge(replace(alone.info, curves=weak))
    for name, weights in alone.model_state().items():  # the first judge trains as it would alone
        assert torch.equal(weights, run.model_state()[name])
    (tmp_path / "three" / "judges.pt").unlink()
    with pytest.raises(ValueError, match=r"it lacks judges\.pt: train again"):
        read_run(tmp_path / "three")


def test_a_stopped_run_resumes(own, tmp_path, monkeypatch):
    """Stopped in the second judge: it goes on there, and ends as if nothing had happened."""
    monkeypatch.setattr(
        train,
        "checkpoint_beside",
        lambda path, digest: Checkpoint(path.with_name(f".{path.name}.pt"), interval=0.0, fingerprint=digest),
    )
    whole = train_own(own, tmp_path / "whole", epochs=3, judges=3)
    told = []

    def stop(seen):
        told.append(seen.epoch)
        if len(told) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_own(own, tmp_path / "stopped", epochs=3, judges=3, on_epoch=stop)
    told.clear()
    stopped = train_own(
        own,
        tmp_path / "stopped",
        epochs=3,
        judges=3,
        on_epoch=lambda seen: told.append(seen.epoch),
        on_message=told.append,
    )
    resuming = [f"Judge {judge} of 3: resuming after epoch 2." for judge in (1, 2)]
    assert told == [resuming[0], 3, resuming[1], 3, 1, 2, 3]
    for mine, others in zip(stopped.history(), whole.history(), strict=True):
        np.testing.assert_array_equal(mine, others)
    np.testing.assert_array_equal(stopped.instances().rival_prob, whole.instances().rival_prob)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped", "whole"]


@pytest.mark.parametrize("judges", [0, 2, 1000])
def test_numbers_that_do_not_fit(wine, judges):
    with pytest.raises(ValueError, match=rf"`judges` to be 1, or from 3 to \d+, but got {judges}: .* 5 is a"):
        activebias.find_issues(*wine, judges=judges, epochs=1)


@pytest.mark.parametrize(
    ("epochs", "named"),
    [([4], "epoch 4"), ([4, 5, 6], "epochs 4 to 6"), ([4, 6], "2 of the epochs 4 to 6")],
)
def test_the_epochs_that_count_are_named(epochs, named):
    info = SimpleNamespace(num_judges=3, judges={"epochs": epochs})
    assert f"are averaged over {named}, in which" in judges_note(info)


def test_by_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_wine("wine.csv")
    options = ("--csv", "wine.csv", "--target", "target", "--epochs", 2, "--burn-in", 1)
    said = command.run("train", *options, "--judges", 3)
    assert "These numbers are those of the first of 3 judges." in " ".join(said.stdout.split())
    assert "wine.csv, judge 3 of 3: epoch 2 of 2" in said.stderr
    command.run("train", "--csv", "wine.csv", "--like", "runs/wine", "--out", "b", "--quiet")
    assert read_run("b").info.num_judges == 3  # as all settings that are not given
    audited = " ".join(command.run("audit", "b").stdout.split())
    sure = json.loads(command.run("audit", "b", "--json").stdout)["num_sure"]
    assert sure == (audit_run(read_run("b")).score >= 0.9).sum()
    assert "3 models judged every label, and one of them had not trained on it." in audited
    assert "their number is no estimate of the number of wrong labels" in audited
    command.run("export", "b", "--format", "npz", "--out", "b.npz")
    refused = command.run("train", "digits", "--judges", 3, code=2)
    assert "`--judges` is for own data" in command.words(refused.stderr)


def test_words(tmp_path):
    """Sentences of different lengths: the words of both parts stand in their own order."""
    lines = []
    for number in range(40):
        lines += [f"w{number}\tO", *[f"Rome\t{'B' if number else 'O'}"] * (1 + number % 3), "is\tO", ""]
    Path(tmp_path / "text.conll").write_text("\n".join(lines), encoding="utf-8")
    data = read_tagged(tmp_path / "text.conll", validation=0.2, seed=0)
    run = train_own(data, tmp_path / "run", epochs=12, burn_in=10, judges=3)
    instances, found = run.instances(), audit_run(run)
    assert len(found) == len(run.history()[0]) == len(instances)
    worst = found.order[0]
    assert (instances.sentence[worst], instances.word[worst]) == (0, 1)
