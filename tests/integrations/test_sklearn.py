"""The scikit-learn classifier: like the plain loop, and a good citizen of pipelines and searches."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("skorch", reason="skorch is not installed: pip install 'activebias[sklearn]'")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import EpochScoring
from skorch.dataset import ValidSplit
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from activebias.integrations.sklearn import ActiveBiasClassifier

generator = np.random.default_rng(0)
X = generator.normal(size=(60, 4)).astype("float32")
Y = (X[:, 0] + 0.3 * generator.normal(size=60) > 0).astype("int64")


class Network(nn.Module):
    def __init__(self, probabilities: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.probabilities = nn.Linear(4, 2), probabilities

    def forward(self, x):
        return self.layer(x).softmax(-1) if self.probabilities else self.layer(x)


def classifier(**options) -> ActiveBiasClassifier:
    return ActiveBiasClassifier(
        Network, **{"train_split": None, "verbose": 0, "max_epochs": 3, "batch_size": 8, "lr": 0.1, **options}
    )


@pytest.mark.parametrize("method", ["wpv", "spv"])
def test_same_bits_as_the_plain_loop(method):
    model = classifier(method=method, burn_in=1).fit(X, Y)
    bias, network = ab.ActiveBias(method, num_instances=60, num_classes=2, burn_in=1), Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    data = ab.with_index(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)))
    loader = DataLoader(data, batch_size=8, sampler=bias.sampler(batch_size=8))
    for epoch in range(3):
        bias.set_epoch(epoch)
        for index, (x, y) in loader:
            loss = bias.loss(network(x), y, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert torch.equal(model.module_.layer.weight, network.layer.weight)
    assert torch.equal(model.bias_.history.values()[0], bias.history.values()[0])


def test_probabilities_and_negative_log_likelihood_train_alike():
    logits = classifier().fit(X, Y)
    probabilities = classifier(module__probabilities=True, criterion=nn.NLLLoss).fit(X, Y)
    assert np.allclose(logits.predict_proba(X), probabilities.predict_proba(X), atol=1e-4)


def test_predictions_have_the_shapes_of_scikit_learn():
    model = classifier().fit(X, Y)
    assert model.predict_proba(X).shape == (60, 2)
    assert np.allclose(model.predict_proba(X).sum(-1), 1, atol=1e-6)
    assert set(model.predict(X)) <= {0, 1}
    assert model.score(X, Y) > 0.7


def test_grid_search_in_a_pipeline_chooses_method_and_burn_in():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier()),
        {"activebiasclassifier__method": ["scan", "wtc"], "activebiasclassifier__burn_in": [0, 2]},
        cv=2,
        error_score="raise",
    ).fit(X, Y)
    assert len(search.cv_results_["params"]) == 4
    best = search.best_estimator_[-1]
    assert best.bias_.method.name == search.best_params_["activebiasclassifier__method"]
    assert best.bias_.burn_in == search.best_params_["activebiasclassifier__burn_in"]


def test_clones_keep_the_parameters_and_refits_begin_anew():
    model = classifier(method="wd", window=2, seed=3)
    copied = clone(model)
    assert (copied.method, copied.window, copied.seed) == ("wd", 2, 3)
    first = model.fit(X, Y).predict_proba(X)
    assert np.array_equal(first, model.fit(X, Y).predict_proba(X))
    assert cross_val_score(copied, X, Y, cv=2).shape == (2,)


def test_validation_split_and_training_scores():
    model = ActiveBiasClassifier(
        Network,
        verbose=0,
        max_epochs=2,
        batch_size=-1,
        callbacks=[EpochScoring("accuracy", name="train_acc", on_train=True, lower_is_better=False)],
    ).fit(X, Y)
    assert model.bias_.num_instances == 48
    assert len(model.history[:, "train_acc"]) == len(model.history[:, "valid_acc"]) == 2


def test_an_automatic_burn_in_follows_the_validation_split():
    split = ValidSplit(5, stratified=True)
    net = classifier(burn_in="auto", max_epochs=6, lr=0.0, train_split=split)  # nothing improves
    net.fit(X, Y)
    assert net.bias_.burn_in_end == 4


def test_partial_fit_goes_on_and_wants_the_same_data():
    whole = classifier(max_epochs=4).fit(X, Y)
    parts = classifier(max_epochs=2).fit(X, Y)
    parts.partial_fit(X, Y)
    assert torch.equal(whole.module_.layer.weight, parts.module_.layer.weight)
    with pytest.raises(ValueError, match="same training set"):
        parts.partial_fit(X[:30], Y[:30])


def test_a_pickled_classifier_predicts_and_goes_on():
    model = classifier().fit(X, Y)
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        one.partial_fit(X, Y)
    assert np.array_equal(model.predict_proba(X), other.predict_proba(X))
    assert torch.equal(model.bias_.history.values()[0], other.bias_.history.values()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": nn.MSELoss}, "CrossEntropyLoss or NLLLoss"),
        ({"criterion__weight": torch.ones(2)}, "criterion__weight"),
        ({"method": "wvp"}, "Did you mean 'wpv'"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        classifier(**options).fit(X, Y)


def test_example(run_example, plain_accuracy):
    assert run_example("skorch_classifier.py", "--search") == pytest.approx(plain_accuracy, abs=0.03)
