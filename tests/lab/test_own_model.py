"""A user's own model, data and method."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import activebias as ab
from activebias import lab
from activebias.commands.figures import draw_curves
from activebias.training.fingerprint import probe
from activebias.training.loop import Run


def made_up_data(seed=0, count=120):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 6, generator=generator)
    return inputs, (inputs[:, 0] + 0.3 * torch.randn(count, generator=generator) > 0).long()


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def numbered_from(first):
    inputs, labels = made_up_data()
    return inputs, labels + first


TWO_OF_ONE_NAME = [
    ab.Method("mine", statistic=lambda e: e.mean, weights=how) for how in ("equal", "emphasis")
]
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


class WithActivation(nn.Module):
    """A net whose layers say nothing about what happens between them."""

    def __init__(self, activation, scale=1.0):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 2)
        nn.init.zeros_(self.last.weight)  # hides the activation from who looks at the first outputs only
        self.activation, self.scale = activation, scale

    def forward(self, inputs):
        return self.last(self.activation(self.first(inputs)))

    def regulariser(self):
        return self.scale * self.last.weight.square().sum()


class Dropping(WithActivation):
    def forward(self, inputs):
        return self.last(F.dropout(self.first(inputs), self.scale, self.training))

    def regulariser(self):
        return 0.0


class Masking(WithActivation):
    """A class that must never come, as it is usually ruled out."""

    def forward(self, inputs):
        outputs = super().forward(inputs)
        return outputs.masked_fill(torch.arange(outputs.shape[1]) == 1, -1e9)


class DrawnByNumPy(WithActivation):
    def __init__(self, activation):
        super().__init__(activation)
        with torch.no_grad():
            self.first.weight.copy_(torch.from_numpy(np.random.normal(size=self.first.weight.shape)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda: WithActivation(torch.relu), lambda: WithActivation(torch.tanh)),
        (lambda: WithActivation(torch.relu), lambda: WithActivation(torch.relu, scale=2.0)),
        (lambda: Dropping(None, 0.2), lambda: Dropping(None, 0.5)),
        (lambda: Masking(torch.relu), lambda: Masking(torch.sin)),
        (lambda: DrawnByNumPy(torch.relu), lambda: DrawnByNumPy(torch.sin)),
    ],
    ids=["activation", "regulariser", "functional dropout", "masked class", "weights from NumPy"],
)
def test_a_model_is_known_by_what_it_computes(tmp_path, before, after):
    messages = []
    arguments = {"methods": ["scan"], "out": tmp_path, "listener": lab.Listener(on_message=messages.append)}
    results = [
        lab.compare(model, made_up_data(0), made_up_data(1), **arguments, **SHORT)
        for model in (before, after, before)
    ]
    assert str(before()) == str(after())
    assert results[0] == results[2]
    assert results[0][0].key != results[1][0].key
    # The third asks for the model of the first.
    assert messages == [f"2 of 2 results are read from {tmp_path / 'own.jsonl'}, not trained again."]


def test_results_from_the_store_are_announced_without_a_listener_too(tmp_path, capsys):
    for _ in range(2):
        lab.compare(net, made_up_data(0), made_up_data(1), methods="scan", out=tmp_path, **SHORT)
    assert capsys.readouterr().err.startswith("2 of 2 results are read from ")


def test_a_model_that_cannot_bear_other_weights_is_known_by_its_own():
    class Positive(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1e-6))

        def forward(self, inputs):
            return torch.distributions.Normal(inputs, self.scale).mean

    assert 1 <= len(probe(Positive, [torch.zeros(3, 6)], "cpu")) <= 3


def test_a_model_that_needs_the_device_is_probed_there():
    class OnMeta(nn.Linear):
        def forward(self, inputs):
            if not inputs.is_meta:
                raise RuntimeError("only on its device")
            return super().forward(inputs)

    def model():
        return OnMeta(6, 2)

    assert all(output.is_meta for output in probe(model, [torch.zeros(3, 6)], "meta"))
    with pytest.raises(RuntimeError, match="only on its device"):
        probe(model, [torch.zeros(3, 6)], "cpu")


def test_own_methods_of_one_name_and_another_rule_are_other_results(tmp_path):
    def variance(estimate):
        return estimate.variance

    arguments = {"out": tmp_path, **SHORT}
    weighs = ab.Method("mine", statistic=variance, weights="emphasis")
    draws = ab.Method("mine", statistic=variance, order="emphasis")
    first, second, third = (
        lab.compare(net, made_up_data(0), made_up_data(1), methods=["scan", method], **arguments)
        for method in (weighs, draws, weighs)
    )
    assert first == third
    assert {result.rule for result in first} == {None, "order scan, weights emphasis"}
    assert {result.rule for result in second} == {None, "order emphasis, weights equal"}
    assert [result.test_error for result in first] != [result.test_error for result in second]
    # The paper's methods stay as they were stored ever since.
    assert "rule" not in (tmp_path / "own.jsonl").read_text().splitlines()[0]
    assert len(lab.ResultStore(tmp_path).load("own")) == 6
    assert len(draw_curves(["own"], tmp_path)) == 2


@pytest.mark.parametrize("methods", ["scan, wpv", ("scan", "wpv")])
def test_methods_and_noise_as_on_the_command_line(tmp_path, methods):
    arguments = {"methods": methods, "noise": "uniform_other:0.2", "out": tmp_path, **SHORT}
    results = lab.compare(net, made_up_data(0), made_up_data(1), **arguments)
    assert [result.method for result in results] == ["scan", "wpv"] * 2
    assert results[0].details["wrong_labels"] == 24
    (result, _) = lab.compare(
        net, made_up_data(0), made_up_data(1), **arguments | {"methods": ab.METHODS["wd"], "noise": 0.5}
    )
    assert result.method == "wd"
    assert result.config["noise"]["kind"] == "uniform"


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


def test_results_cannot_go_into_a_file(tmp_path):
    (tmp_path / "afile").write_text("mine")
    with pytest.raises(
        ValueError, match=r"Expected `out` to be a folder, but .*afile is a file: choose another"
    ):
        lab.compare(net, made_up_data(0), made_up_data(1), out=tmp_path / "afile", **SHORT)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": nn.Linear(6, 2)}, TypeError, "Expected `model` to be a function that builds a new model"),
        ({"model": lambda: 3}, TypeError, "Expected `model` to build a torch.nn.Module"),
        ({"train": 3}, TypeError, r"Expected `train` to be a pair \(inputs, labels\)"),
        ({"train": (np.zeros((3, 6)), np.zeros(3))}, TypeError, "integer labels"),
        ({"methods": ["wvp"]}, ValueError, "Did you mean 'wpv'"),
        ({"epochs": 0}, ValueError, "Expected `epochs` to be at least 1"),
        (
            {"epochs": 2},
            ValueError,
            "Expected `burn_in` to be less than `epochs`, 2, but got 2: no instance would be",
        ),
        (
            {"methods": TWO_OF_ONE_NAME},
            ValueError,
            "Expected `methods` to have different names, but got 'mine' twi",
        ),
        ({"methods": ["wpv", "SGD-WPV"]}, ValueError, "but got 'wpv' twice"),
        ({"noise": "lots"}, ValueError, "Expected `noise` to be a share such as 0.1"),
        ({"noise": "human:worst"}, ValueError, "Expected `noise` to be of a kind that is drawn"),
        (
            {"train": numbered_from(1)},
            ValueError,
            r"Expected `train` to have labels .* 0 to 1, but got 2: number",
        ),
        (
            {"test": numbered_from(1)},
            ValueError,
            "Expected `test` to have labels .* give the model 3 outputs",
        ),
        ({"test": numbered_from(-1)}, ValueError, "Expected `test` to have labels from 0 on .* but got -1"),
        ({"train": (torch.zeros(0, 6), [])}, (TypeError, ValueError), "Expected `train` to"),
        (
            {"model": lambda: nn.LSTM(6, 2)},
            TypeError,
            "Expected `model` to give a tensor .* got tuple: wrap",
        ),
        ({"model": lambda: nn.Flatten(0)}, ValueError, r"a tensor \(8, classes\), but got \(48,\)"),
    ],
)
def test_refusals(tmp_path, change, error, message):
    arguments = {"model": net, "train": made_up_data(0), "test": made_up_data(1), **SHORT} | change
    model, train, test = (arguments.pop(name) for name in ("model", "train", "test"))
    with pytest.raises(error, match=message):
        lab.compare(model, train, test, out=tmp_path, **arguments)
