"""A user's own model, data and method."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

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


def three_classes():
    inputs, labels = made_up_data()
    return inputs, labels + (inputs[:, 1] > 0)


TWO_OF_ONE_NAME = [
    ab.Method("mine", statistic=lambda e: e.mean, weights=how) for how in ("equal", "emphasis")
]
SHORT = {"splits": 2, "epochs": 4, "burn_in": 2, "batch_size": 20}


def test_own_model_data_and_method(tmp_path):
    entropy = ab.Method("went", statistic=lambda e: e.mean * (1 - e.mean) ** 2, weights="emphasis")
    found = lab.compare(net, made_up_data(0), methods=["scan", "wpv", entropy], out=tmp_path, **SHORT)
    assert [(each.method, each.seed) for each in found.results] == [
        (name, split) for split in (0, 1) for name in ("scan", "wpv", "went")
    ]
    assert found.sizes == (72, 24, 24)
    assert "went" in str(found)
    assert "2 splits" in found.verdict


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.output = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, inputs):
        return self.output(self.net(inputs.view(-1, 3, 2))[0][:, -1])


def stackable():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def at_once(found):
    return max(result.details.get("side_by_side", 1) for result in found.results)


@pytest.mark.parametrize(("model", "together"), [(stackable, True), (Recurrent, False)])
def test_auto_learns_on_a_model_of_ones_own(model, together, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as: nothing to learn from
        found = ab.compare(model, made_up_data(), methods="scan,wtc,auto", out=tmp_path, quiet=True, **SHORT)
    assert [each.method for each in found.results] == ["scan", "wtc", "auto"] * 2
    assert (at_once(found) > 1) is together


@pytest.mark.filterwarnings("ignore:Gradients in `bias.learn` are NaN")
def test_models_that_break_away_are_compared(tmp_path):
    """At such a rate every model is NaN in its burn-in."""
    rate = lab.Optimiser("sgd", 1e30)
    options = {"methods": "scan,wtc,auto", "optimiser": rate, "out": tmp_path, "quiet": True}
    found = ab.compare(stackable, made_up_data(), **options, **SHORT)
    assert at_once(found) > 1
    assert found.verdict.startswith("No difference seen")


def test_arrays_do_and_trials_can_be_repeated(tmp_path):
    torch.manual_seed(3)
    arrays = tuple(each.numpy() for each in made_up_data(0))
    first = lab.compare(net, arrays, out=tmp_path / "a", **SHORT)
    torch.manual_seed(4)
    second = lab.compare(net, made_up_data(0), out=tmp_path / "b", **SHORT)
    # nn.Dropout draws from torch's global state, and still every trial comes out the same.
    assert [result.test_error for result in first.results] == [result.test_error for result in second.results]


def test_other_data_or_models_are_other_results(tmp_path):
    lab.compare(net, made_up_data(0), methods=["scan"], out=tmp_path, **SHORT)
    lab.compare(net, made_up_data(2), methods=["scan"], out=tmp_path, **SHORT)
    lab.compare(lambda: nn.Linear(6, 2), made_up_data(0), methods=["scan"], out=tmp_path, **SHORT)
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
    results = [lab.compare(model, made_up_data(0), **arguments, **SHORT) for model in (before, after, before)]
    assert str(before()) == str(after())
    assert results[0] == results[2]
    assert results[0].results[0].key != results[1].results[0].key
    # The third asks for the model of the first.
    assert [text for text in messages if "read from" in text] == [
        f"2 of 2 splits are read from {tmp_path / 'own.jsonl'}, not trained again."
    ]


def test_results_from_the_store_are_announced_without_a_listener_too(tmp_path, capsys):
    for _ in range(2):
        lab.compare(net, made_up_data(0), methods="scan", out=tmp_path, **SHORT)
    assert capsys.readouterr().err.endswith("own.jsonl, not trained again.\n")


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
        lab.compare(net, made_up_data(0), methods=["scan", method], **arguments).results
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
    results = lab.compare(net, made_up_data(0), **arguments).results
    assert [result.method for result in results] == ["scan", "wpv"] * 2
    assert results[0].details["wrong_labels"] == 14  # a fifth of 72
    (result, _) = lab.compare(
        net, made_up_data(0), **arguments | {"methods": ab.METHODS["wd"], "noise": 0.5}
    ).results
    assert result.method == "wd"
    assert result.config["noise"]["kind"] == "uniform"


def test_own_tagging(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 7, 6, generator=generator)
    labels = (inputs[..., 0] > 0).long()
    labels[:, 5:] = -100
    data = (inputs, labels)
    settings = SHORT | {"batch_size": 4, "optimiser": lab.Optimiser("sgd", 0.5)}
    found = lab.compare(lambda: nn.Linear(6, 2), data, methods=["scan", "wtc"], out=tmp_path, **settings)
    assert all(result.best_test_error < 40 for result in found.results)
    with pytest.raises(ValueError, match="draws single instances"):
        lab.compare(lambda: nn.Linear(6, 2), data, methods=["sd"], out=tmp_path, **SHORT)


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
        lab.compare(net, made_up_data(0), out=tmp_path / "afile", **SHORT)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": nn.Linear(6, 2)}, TypeError, "Expected `model` to be a function that builds a new model"),
        ({"model": lambda: 3}, TypeError, "Expected `model` to build a torch.nn.Module"),
        ({"data": 3}, TypeError, r"Expected `data` to be a pair \(inputs, labels\)"),
        ({"data": (np.zeros((3, 6)), np.full(3, 0.5))}, TypeError, "classes, but got fractions"),
        ({"data": (np.zeros((3, 6)), [1, 2])}, ValueError, "got 3 inputs and 2 labels"),
        ({"data": (np.full((3, 6), np.nan), [0, 1, 1])}, ValueError, "3 of 3 examples have NaN"),
        ({"data": ([["a"], ["b"]], [0, 1])}, TypeError, "encode words and categories as numbers"),
        ({"data": (np.zeros((2, 6)), ["a", None])}, ValueError, "1 are missing"),
        ({"data": (np.zeros((4, 6)), [0, 0, 1, 1])}, ValueError, "4 examples are too few"),
        ({"data": (np.zeros((9, 5)), [0, 1, 2] * 3)}, ValueError, "it raised RuntimeError"),
        ({"data": (np.zeros((9, 6), int), [0, 1, 2] * 3)}, ValueError, "give float inputs"),
        ({"splits": 0}, ValueError, "Expected `splits` to be at least 1"),
        ({"minutes": 0}, ValueError, "Expected `minutes` to be above 0"),
        ({"test": 0.9}, ValueError, "their sum must be below 1"),
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
        ({"data": three_classes()}, ValueError, "every class of `data`, 3, but it has 2: give the model 3"),
        ({"data": (torch.zeros(0, 6), [])}, (TypeError, ValueError), "Expected `data` to hold at least one"),
        (
            {"model": lambda: nn.LSTM(6, 2)},
            TypeError,
            "Expected `model` to give a tensor .* got tuple: wrap",
        ),
        ({"model": lambda: nn.Flatten(0)}, ValueError, r"a tensor \(8, classes\), but got \(48,\)"),
    ],
)
def test_refusals(tmp_path, change, error, message):
    arguments = {"model": net, "data": made_up_data(0), **SHORT} | change
    with pytest.raises(error, match=message):
        lab.compare(**arguments, out=tmp_path, quiet=True)


def as_words(labels):
    return [("no", "yes")[label] for label in labels]


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: (x.double().numpy(), y.numpy()),
        lambda x, y: (x.tolist(), as_words(y)),
        lambda x, y: (pd.DataFrame(x.double().numpy()), pd.Series(as_words(y))),
        lambda x, y: (x, 7 + 2 * y),
        lambda x, y: (x, y.bool().numpy()),
        lambda x, y: (x.numpy(), y.double().numpy()[:, None]),
        lambda x, y: TensorDataset(x, y),
    ],
    ids=["float64", "lists and words", "pandas", "other numbers", "booleans", "a column", "a data set"],
)
def test_inputs_and_labels_of_many_types_are_the_same_data(tmp_path, change):
    first, second = (
        lab.compare(net, data, methods="scan,wtc", out=tmp_path / name, quiet=True, **SHORT)
        for name, data in (("a", made_up_data()), ("b", change(*made_up_data())))
    )
    assert [each.test_error for each in first.results] == [each.test_error for each in second.results]


def test_a_model_in_float64_gets_float64(tmp_path):
    inputs, labels = made_up_data()
    found = ab.compare(
        lambda: net().double(),
        (inputs.numpy(), labels),
        methods="scan,wtc",
        out=tmp_path,
        quiet=True,
        **SHORT,
    )
    assert len(found.results) == 4


def test_a_model_that_memorises_is_warned_of_once(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(60, 100, generator=generator), torch.arange(60) % 2

    def large():
        return nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 2))

    optimiser = lab.Optimiser("adam", 0.01)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = lab.compare(
            large, (inputs, labels), splits=3, epochs=14, optimiser=optimiser, out=tmp_path, quiet=True
        )
    found_warnings = [each for each in caught if issubclass(each.category, ab.MemorisationWarning)]
    assert len(found_warnings) == 1
    assert "3 of 3 splits" in found.warnings[0]
