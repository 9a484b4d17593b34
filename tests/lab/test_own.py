"""A user's own model, data and method."""

import numpy as np
import pytest
import torch
from torch import nn

import activebias as ab
from activebias import lab
from activebias.lab.trainer import Run


def made_up_data(seed=0, count=120):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 6, generator=generator)
    return inputs, (inputs[:, 0] + 0.3 * torch.randn(count, generator=generator) > 0).long()


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


SHORT = {"trials": 2, "epochs": 4, "burn_in": 2, "batch_size": 20}


def test_own_model_data_and_method(tmp_path):
    entropy = ab.Method("went", statistic=lambda e: e.mean * (1 - e.mean) ** 2, weights="emphasis")
    results = lab.compare(
        net, made_up_data(0), made_up_data(1), methods=["scan", "wpv", entropy], out=tmp_path, **SHORT
    )
    assert len(results) == 6
    assert {result.method for result in results} == {"scan", "wpv", "went"}
    text = lab.comparison_table(results).to_text()
    assert "went" in text
    assert "2 trials" in text


def test_arrays_do_and_trials_can_be_repeated(tmp_path):
    train, test = (tuple(each.numpy() for each in made_up_data(seed)) for seed in (0, 1))
    torch.manual_seed(3)
    first = lab.compare(net, train, test, out=tmp_path / "a", **SHORT)
    torch.manual_seed(4)
    second = lab.compare(net, made_up_data(0), made_up_data(1), out=tmp_path / "b", **SHORT)
    # nn.Dropout draws from torch's global state, and still every trial comes out the same.
    assert [result.test_error for result in first] == [result.test_error for result in second]


def test_other_data_or_models_are_other_results(tmp_path):
    lab.compare(net, made_up_data(0), made_up_data(1), methods=["scan"], out=tmp_path, **SHORT)
    lab.compare(net, made_up_data(2), made_up_data(1), methods=["scan"], out=tmp_path, **SHORT)
    lab.compare(
        lambda: nn.Linear(6, 2), made_up_data(0), made_up_data(1), methods=["scan"], out=tmp_path, **SHORT
    )
    assert len({result.key.config_hash for result in lab.ResultStore(tmp_path).load("own")}) == 3


def test_own_tagging(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 7, 6, generator=generator)
    labels = (inputs[..., 0] > 0).long()
    labels[:, 5:] = -100
    data = (inputs, labels)
    results = lab.compare(lambda: nn.Linear(6, 2), data, data, methods=["scan", "wtc"], out=tmp_path, **SHORT)
    assert all(result.best_test_error < 40 for result in results)
    with pytest.raises(ValueError, match="draws single instances"):
        lab.compare(lambda: nn.Linear(6, 2), data, data, methods=["sd"], out=tmp_path, **SHORT)


def test_the_models_own_regulariser_counts(tmp_path, monkeypatch):
    class Regularised(nn.Linear):
        def regulariser(self):
            return 10 * self.weight.square().sum()

    norms = []
    original = Run.train_epoch

    def watched(self):
        original(self)
        norms.append(float(self.model.weight.detach().norm()))

    monkeypatch.setattr(Run, "train_epoch", watched)
    optimiser = lab.Optimiser("sgd", 0.02)
    for model in (Regularised, nn.Linear):
        lab.compare(
            lambda model=model: model(6, 2),
            made_up_data(0),
            made_up_data(1),
            methods=["scan"],
            out=tmp_path,
            optimiser=optimiser,
            **SHORT,
        )
    assert max(norms[2:8]) < 0.5 * min(norms[8:])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": nn.Linear(6, 2)}, TypeError, "`model` must be a function that builds a new model"),
        ({"model": lambda: 3}, TypeError, "`model` must build a torch.nn.Module"),
        ({"train": 3}, TypeError, r"`train` must be a pair \(inputs, labels\)"),
        ({"train": (np.zeros((3, 6)), np.zeros(3))}, TypeError, "integer labels"),
        ({"methods": ["wvp"]}, ValueError, "Did you mean 'wpv'"),
        ({"epochs": 0}, ValueError, "`epochs` must be at least 1"),
    ],
)
def test_refusals(tmp_path, change, error, message):
    arguments = {"model": net, "train": made_up_data(0), "test": made_up_data(1), **SHORT} | change
    model, train, test = (arguments.pop(name) for name in ("model", "train", "test"))
    with pytest.raises(error, match=message):
        lab.compare(model, train, test, out=tmp_path, **arguments)
