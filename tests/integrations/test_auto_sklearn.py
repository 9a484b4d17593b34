"""The method `auto` in the scikit-learn classifier: it learns from skorch's validation split."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

import activebias as ab
from activebias import learning

pytest.importorskip("skorch", reason="skorch is not installed: pip install 'activebias[sklearn]'")

from skorch.callbacks import Checkpoint, LoadInitState
from skorch.helper import predefined_split

from activebias.integrations.sklearn import ActiveBiasClassifier
from old_skorch import needs_unpickling

generator = np.random.default_rng(0)
X = generator.normal(size=(60, 4)).astype("float32")
Y = (X[:, 0] + 0.3 * generator.normal(size=60) > 0).astype("int64")
HELD_OUT = X[40:], Y[40:]


class Network(nn.Module):
    def __init__(self, outputs: int = 2, probabilities: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.probabilities = nn.Linear(4, outputs), probabilities

    def forward(self, x, scale=1.0):
        logits = scale * self.layer(x)
        return logits.softmax(-1) if self.probabilities else logits


def classifier(**options) -> ActiveBiasClassifier:
    validation = TensorDataset(*map(torch.from_numpy, HELD_OUT))
    fixed = {"module": Network, "train_split": predefined_split(validation), "verbose": 0, "max_epochs": 4}
    return ActiveBiasClassifier(**{**fixed, "batch_size": 8, "lr": 0.1, "method": "auto", **options})


@pytest.fixture(autouse=True)
def learning_in_every_epoch(monkeypatch):
    """On 40 instances it would learn in every hundredth epoch only."""
    monkeypatch.setattr(learning, "PART", 100.0)


def test_same_as_a_plain_loop_that_learns():
    model = classifier().fit(X[:40], Y[:40])
    bias, network = ab.ActiveBias("auto", num_instances=40, num_classes=2), Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    train, validation = (
        TensorDataset(torch.from_numpy(X[part]), torch.from_numpy(Y[part]))
        for part in (slice(40), slice(40, None))
    )
    loader = bias.loader(train, 8)
    for epoch in range(4):
        bias.set_epoch(epoch)
        for index, (x, y) in loader:
            loss = bias.loss(network(x), y, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        bias.learn(network, loader, validation)
    assert model.bias_._memory.curve.num_learnt == learning.FIRST_ROUNDS + 3
    torch.testing.assert_close(model.bias_.curve(), bias.curve())
    torch.testing.assert_close(model.module_.layer.weight, network.layer.weight)


@pytest.mark.parametrize(
    "options",
    [
        {"criterion": nn.NLLLoss, "module__probabilities": True},
        {"criterion": nn.BCEWithLogitsLoss, "module__outputs": 1},
    ],
)
def test_criteria(options):
    model = classifier(max_epochs=2, **options).fit(X[:40], Y[:40])
    assert model.bias_._memory.curve.num_learnt == learning.FIRST_ROUNDS + 1


def test_labels_of_any_kind_and_the_split_of_skorch():
    model = ActiveBiasClassifier(Network, method="sauto", verbose=0, max_epochs=2)
    model.fit(X, np.array(["no", "yes"])[Y])
    assert model.bias_.num_instances == 48
    assert model.bias_._memory.curve.num_learnt == learning.FIRST_ROUNDS + 1


def test_weights_in_x_and_parameters_of_fit_reach_the_module_as_in_training():
    seen = []

    class Noted(Network):
        def forward(self, x, scale=1.0):
            seen.append((scale, self.training))
            return super().forward(x, scale)

    def halves(dataset, y, scale):
        return Subset(dataset, range(30)), Subset(dataset, range(30, 60))

    inputs = {"x": X, "sample_weight": np.ones(60, dtype="float32")}
    classifier(module=Noted, max_epochs=1, train_split=halves).fit(inputs, Y, scale=2.0)
    in_validation = sum(not training for _, training in seen)
    assert {scale for scale, _ in seen} == {2.0}
    assert in_validation > 2 * 30 / 8 + 1  # also in learning


@needs_unpickling
def test_a_resumed_training_is_the_whole_one(tmp_path):
    whole = classifier(max_epochs=4).fit(X[:40], Y[:40])
    saver = Checkpoint(dirname=tmp_path, f_criterion="criterion.pt", monitor=None)
    classifier(max_epochs=2, callbacks=[saver]).fit(X[:40], Y[:40])
    resumed = classifier(max_epochs=2, callbacks=[LoadInitState(saver)]).fit(X[:40], Y[:40])
    assert resumed.bias_._memory.curve.num_learnt == whole.bias_._memory.curve.num_learnt
    assert torch.equal(resumed.bias_.weights(), whole.bias_.weights())
    again = pickle.loads(pickle.dumps(resumed))
    assert torch.equal(again.bias_.curve()[1], whole.bias_.curve()[1])


def test_without_a_split_it_is_wtc_and_says_so():
    with pytest.warns(UserWarning, match="emphasises by the rule"):
        model = classifier(train_split=None).fit(X, Y)
    assert model.bias_._memory.curve.num_learnt == 0
