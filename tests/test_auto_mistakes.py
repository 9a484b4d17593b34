"""The method `auto` in the hands of users: mistakes are named, and NaN does not reach the curve."""

import copy
import math
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

import activebias as ab
from activebias import learning
from activebias.curve import NUM_KNOTS
from learning_run import NUM_TRAINING, NUM_VALIDATION, Training


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Learn in every epoch: the data set is so small that it would be every 20th."""
    monkeypatch.setattr(learning, "PART", 10.0)


ROWS = TensorDataset(torch.zeros(NUM_TRAINING, 64), torch.zeros(NUM_TRAINING, dtype=torch.int64))


class Altered(nn.Linear):
    def __init__(self, change):
        super().__init__(64, 10)
        self.change = change

    def forward(self, inputs):
        return self.change(super().forward(inputs))


class NextForCausalLM(nn.Linear):
    """A class name as Hugging Face gives it."""


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(64), 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"training": "shorter"},
            ValueError,
            r"600 examples in the order .* but got 300; in tagging",
        ),
        ({"validation": Stream()}, TypeError, r"Expected `validation` to be a map-style data set .* Stream"),
        ({"validation": []}, ValueError, r"Expected `validation` to have at least one example"),
        (
            {"training": Subset(ab.with_index(ROWS), range(NUM_TRAINING))},
            TypeError,
            r"samples of `training` to have no index, but got a Subset",
        ),
        (
            {"validation": ConcatDataset([ab.with_index(ROWS), ROWS])},
            TypeError,
            r"samples of `validation` to have no index, but got a ConcatDataset",
        ),
        (
            {"validation": ROWS.tensors},
            TypeError,
            r"got a tuple of arrays: give `TensorDataset\(inputs, targets",
        ),
        ({"validation": DataLoader(ROWS, batch_size=None)}, TypeError, r"but its `batch_size` is None"),
        ({"model": nn.functional.softmax}, TypeError, r"`model` to be a torch.nn.Module, but got function"),
        ({"model": nn.Linear(64, 10).requires_grad_(False)}, ValueError, r"none requires a gradient"),
        (
            {"model": nn.Linear(64, 10).bfloat16()},
            RuntimeError,
            r"another dtype for example, give `bias.learn",
        ),
        (
            {"model": nn.Linear(65, 10)},
            RuntimeError,
            r"does not take a batch as the data set gives it \(mat1",
        ),
        ({"model": Altered(torch.Tensor.detach)}, RuntimeError, r"they depend on no parameter: let neither"),
        (
            {"model": Altered(lambda logits: (logits, None))},
            TypeError,
            r"to return logits, but got tuple: give",
        ),
        ({"model": NextForCausalLM(64, 10)}, TypeError, r"returns logits\[:, :-1\] and labels\[:, 1:\]"),
        (
            {"validation": [torch.zeros(64)] * 3},
            TypeError,
            r"a tuple \(\*inputs, targets\) .* `bias.learn\(…, forw",
        ),
    ],
)
def test_mistakes_are_named(change, error, message):
    run = Training(burn_in=0)
    run.bias.set_epoch(0)
    options = {"model": run.model, "training": run.loader, "validation": run.validation} | change
    if options["training"] == "shorter":
        options["training"] = run.validation
    with pytest.raises(error, match=message):
        run.bias.learn(**options)


@pytest.mark.parametrize("part", ["validation", "training", "model"])
def test_nan_does_not_reach_the_curve(part):
    run = Training().epochs(0, 3)
    before = run.bias.weights()
    run.bias.set_epoch(3)
    model, train, validation = run.model, run.train, run.validation
    if part == "model":
        model = copy.deepcopy(model)
        nn.init.constant_(model[0].bias, math.nan)
    else:
        data = copy.deepcopy(getattr(run, "train" if part == "training" else "validation"))
        data.tensors[0][3] = math.nan
        train, validation = (data, validation) if part == "training" else (train, data)
        # Few enough that the drawn members of a knot hold the row.
        run.bias.record([3], [0.001] if part == "training" else [0.5])
    with pytest.warns(
        UserWarning, match=r"in `bias\.learn` are NaN or infinite, so parts of the curve"
    ) as seen:
        run.bias.learn(model, train, validation)
    assert seen[0].filename == __file__, "the warning points at the line that calls `bias.learn`"
    assert np.isfinite(run.curve.scores).all()
    assert run.curve.evidence.total.isfinite().all()
    assert run.curve.last_epoch == 3
    assert run.bias.weights().isfinite().all()
    if part == "training":  # the other knots are learnt
        assert run.curve.num_learnt == learning.FIRST_ROUNDS + 2
    else:
        torch.testing.assert_close(run.bias.weights()[4:], before[4:], atol=0.01, rtol=0)
    run.bias.load_state_dict(run.bias.state_dict())


@pytest.mark.parametrize("reason", ["ignored", "constant", "improbable"])
def test_a_validation_loss_without_a_gradient_is_told(reason):
    run = Training(burn_in=0)
    run.bias.set_epoch(0)
    model, validation = run.model, run.validation
    if reason == "ignored":
        validation = TensorDataset(validation.tensors[0], torch.full((NUM_VALIDATION,), -100))
    elif reason == "constant":
        model = Altered(lambda logits: torch.zeros_like(logits).requires_grad_())
    else:
        model = Altered(lambda logits: logits - 50 * torch.eye(10)[9])
        validation = TensorDataset(validation.tensors[0], torch.full((NUM_VALIDATION,), 9))
    with pytest.warns(UserWarning, match=r"has learnt nothing: the validation loss has no gradient\. Check"):
        run.bias.learn(model, run.train, validation)
    # The loss 1 - p of the first round has a gradient at any p, however small.
    assert run.curve.num_learnt == (reason == "improbable")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.bias.set_epoch(1)  # `bias.learn` was called


def test_a_run_resumed_without_a_learnt_curve_is_warned():
    run = Training(burn_in=1)
    for epoch in range(2):
        run.bias.set_epoch(epoch)
    resumed = Training(burn_in=1)
    resumed.bias.load_state_dict(run.bias.state_dict())
    with pytest.warns(UserWarning, match="has learnt nothing, so it emphasises by the rule"):
        resumed.bias.set_epoch(5)


def test_epochs_without_learning_on_are_told_once():
    """The curve and the limit of the steps would stay those of an earlier epoch, without a word."""
    run = Training(burn_in=1).epochs(0, 3)
    for epoch in (3, 4, 5):
        if epoch == 5:
            run.bias.grow(NUM_TRAINING + 1)
        told = pytest.warns(UserWarning, match=r"as it did after epoch 2, .* `bias\.learn\(model, training_s")
        with told if epoch == 4 else nullcontext():
            run.bias.set_epoch(epoch)
        run.bias.record([0], [0.5])
    resumed = Training(burn_in=1)
    resumed.epochs(0, 3).bias.load_state_dict(Training(burn_in=1).epochs(0, 6).bias.state_dict())
    resumed.bias.record([0], [0.5])
    resumed.bias.set_epoch(6)  # `bias.learn` was called before the state was saved


def test_a_warning_stays_the_only_one_when_the_data_set_grows():
    bias = ab.ActiveBias("auto", num_instances=4, num_classes=2)
    bias.set_epoch(0)
    for epoch in (1, 2):
        with pytest.warns(UserWarning, match="has learnt nothing") if epoch == 1 else nullcontext():
            bias.set_epoch(epoch)
        bias.grow(4 + epoch)


def test_the_training_set_as_validation_set_is_told():
    run = Training(burn_in=0)
    run.bias.set_epoch(0)
    picked = DataLoader(run.train, 7, sampler=SubsetRandomSampler(range(9)))
    both = run.train + run.validation
    first = Subset(both, range(NUM_TRAINING))
    part, leaked = Subset(run.train, range(9)), Subset(both, range(NUM_TRAINING - 1, NUM_TRAINING + 100))
    for training, validation in (
        (run.loader, DataLoader(run.train, 7)),
        (run.loader, picked),
        (run.loader, part),
        (first, both),
        (first, leaked),
        (first, DataLoader(Subset(leaked, [5, 0]), 7)),
    ):
        with pytest.warns(UserWarning, match="`validation` has examples of the training set, and"):
            run.bias.learn(run.model, training, validation)
    run.bias.learn(run.model, first, Subset(leaked, range(1, 90)))


def test_epochs_that_begin_again_learn():
    run = Training().epochs(0, 5)
    learnt = run.curve.num_learnt
    run.epochs(1, 3)
    assert run.curve.num_learnt == learnt + 2
    assert (run.curve.scores >= 0).all()


def test_sparse_gradients_and_inference_mode():
    model = nn.EmbeddingBag(10, 4, sparse=True)
    data = TensorDataset(torch.arange(60).view(20, 3) % 10, torch.arange(20) % 4)
    curves_of = []
    for sparse in (True, False):
        bias = ab.ActiveBias("auto", num_instances=20, num_classes=4)
        bias.set_epoch(0)
        bias.record(range(20), torch.linspace(0, 1, 20))
        model.sparse = sparse
        with torch.inference_mode(sparse):
            bias.learn(model, data, TensorDataset(*data.tensors))
        curves_of.append(bias.curve()[1])
    torch.testing.assert_close(*curves_of)


def test_several_labels_are_refused():
    with pytest.raises(ValueError, match="one label, but `multi_label` is True: use 'wtc'"):
        ab.ActiveBias("auto", num_instances=3, num_classes=3, multi_label=True)


def test_a_damaged_curve_is_refused():
    run = Training().epochs(0, 4)
    state = run.bias.state_dict()
    state["curve"]["scores"] = torch.full((NUM_KNOTS,), math.nan, dtype=torch.float64)
    with pytest.raises(ValueError, match="stored `curve scores` holds a value that is not finite"):
        run.bias.load_state_dict(state)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
@pytest.mark.parametrize("name", ["rule_share", "factor"])
def test_a_stored_number_that_is_no_share_is_refused(name, share):
    run = Training().epochs(0, 3)
    state = run.bias.state_dict()
    state["curve"][name].fill_(share)
    with pytest.raises(ValueError, match=f"`curve {name}` (to be from 0 to 1|holds a value that is not)"):
        run.bias.load_state_dict(state)


@pytest.mark.parametrize("name", ["weight", "robust_weight", "labels"])
def test_a_curve_with_negative_numbers_is_refused(name):
    run = Training().epochs(0, 3)
    state = run.bias.state_dict()
    state["curve"][name][0] = -5
    with pytest.raises(ValueError, match=f"stored `curve {name}` holds a negative value"):
        run.bias.load_state_dict(state)
