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
from skorch.callbacks import Checkpoint, EpochScoring, LoadInitState
from skorch.dataset import ValidSplit
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from activebias.integrations.sklearn import ActiveBiasClassifier
from old_skorch import needs_unpickling

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
    fixed = {
        "module": Network,
        "train_split": None,
        "verbose": 0,
        "max_epochs": 3,
        "batch_size": 8,
        "lr": 0.1,
    }
    return ActiveBiasClassifier(**{**fixed, **options})


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


@needs_unpickling
def test_a_pickled_classifier_predicts_and_goes_on():
    model = classifier().fit(X, Y)
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        one.partial_fit(X, Y)
    assert np.array_equal(model.predict_proba(X), other.predict_proba(X))
    assert torch.equal(model.bias_.history.values()[0], other.bias_.history.values()[0])


@pytest.mark.parametrize("criterion", [nn.CrossEntropyLoss, nn.NLLLoss])
def test_class_weights_of_the_criterion_are_taken_over(criterion):
    """Under scan the classifier trains as skorch's own loss does on the same batches."""
    weight, probabilities = torch.tensor([0.3, 2.0]), criterion is nn.NLLLoss
    model = classifier(
        method="scan", criterion=criterion, criterion__weight=weight, module__probabilities=probabilities
    ).fit(X, Y)
    bias, network = ab.ActiveBias("scan", num_instances=60, num_classes=2), Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sampler = bias.sampler(batch_size=8)
    for epoch in range(3):
        bias.set_epoch(epoch)
        for index in torch.tensor(list(sampler)).split(8):
            loss = nn.functional.cross_entropy(
                network(torch.from_numpy(X)[index]), torch.from_numpy(Y)[index], weight=weight
            )
            bias.record(index, torch.full(index.shape, 0.5))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.testing.assert_close(model.module_.layer.weight, network.layer.weight, rtol=1e-5, atol=1e-6)


def test_sample_weights_come_in_x():
    """A weight of 0 leaves a sample out of the loss, not out of the history."""
    weight = (np.arange(60) % 2).astype("float32")
    wrong = np.where(weight > 0, Y, 1 - Y)
    with_zeros = classifier(method="scan").fit({"x": X, "sample_weight": weight}, wrong)
    right = classifier(method="scan").fit({"x": X, "sample_weight": weight}, Y)
    assert torch.equal(with_zeros.module_.layer.weight, right.module_.layer.weight)
    ones = classifier().fit({"x": X, "sample_weight": np.ones(60, dtype="float32")}, Y)
    torch.testing.assert_close(ones.module_.layer.weight, classifier().fit(X, Y).module_.layer.weight)
    assert with_zeros.bias_.history.values()[1].sum() == 60 * 4
    assert with_zeros.predict({"x": X}).shape == (60,)


class Doubled(nn.CrossEntropyLoss):
    def forward(self, logits, targets):
        return 2 * super().forward(logits, targets)


class Smoothed(nn.CrossEntropyLoss):
    def __init__(self):
        super().__init__(label_smoothing=0.1)


def test_a_criterion_with_a_constructor_of_its_own():
    mine = classifier(criterion=Smoothed).fit(X, Y)
    theirs = classifier(criterion__label_smoothing=0.1).fit(X, Y)
    assert torch.equal(mine.module_.layer.weight, theirs.module_.layer.weight)


class TakesAnything(Network):
    def forward(self, x, **options):
        return super().forward(x)


def test_sample_weights_as_a_keyword_are_refused():
    """skorch hands keywords of `fit` to the module, which may ignore them."""
    with pytest.raises(TypeError, match="pass sample weights in X"):
        classifier(module=TakesAnything).fit(X, Y, sample_weight=np.ones(60))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": nn.MSELoss}, "CrossEntropyLoss, NLLLoss or BCEWithLogitsLoss"),
        ({"criterion": Doubled}, "but got Doubled, whose `forward` would not be called"),
        (
            {"criterion": nn.BCEWithLogitsLoss, "criterion__pos_weight": torch.ones(1)},
            "criterion__pos_weight",
        ),
        ({"method": "wvp"}, "Did you mean 'wpv'"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        classifier(**options).fit(X, Y)


@pytest.mark.parametrize(
    "names", [np.array(["no", "yes"]), np.array([1, 2]), np.array([-1, 1]), np.array([False, True])]
)
def test_labels_of_any_kind_are_encoded(names):
    split = ValidSplit(5, stratified=True)
    plain = classifier(train_split=split).fit(X, Y)
    named = classifier(train_split=split).fit(X, names[Y])
    assert np.array_equal(named.classes_, names)
    assert np.array_equal(named.predict(X), names[plain.predict(X)])
    assert named.score(X, names[Y]) == plain.score(X, Y)
    assert named.history[:, "valid_acc"] == plain.history[:, "valid_acc"]
    assert torch.equal(named.bias_.scores, plain.bias_.scores)
    named.partial_fit(X, names[Y])


def test_a_fold_that_lacks_a_class():
    class Three(Network):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

    lacks = np.where(Y == 1, 2, 0)
    model = classifier(module=Three).fit(X, lacks)
    assert model.bias_.num_classes == 3
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(X, lacks) > 0.7
    names = np.array(["a", "b", "c"])
    with pytest.raises(ValueError, match=r"outputs for 3 classes, but y has 2: .*`classes=\[…\]`"):
        classifier(module=Three).fit(X, names[lacks])
    named = classifier(module=Three, classes=list(names)).fit(X, names[lacks])
    assert np.array_equal(named.predict(X), names[model.predict(X)])
    with pytest.raises(ValueError, match="but got 'd'"):
        classifier(module=Three, classes=list(names)).fit(X, np.where(Y == 1, "d", "a"))


class OneLogit(Network):
    def forward(self, x):
        logits = super().forward(x)
        return logits[:, 1:] - logits[:, :1]


def test_one_logit_for_two_classes():
    split = ValidSplit(5, stratified=True)
    two = classifier(train_split=split).fit(X, Y)
    one = classifier(module=OneLogit, criterion=nn.BCEWithLogitsLoss, train_split=split).fit(X, Y)
    assert np.allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-5)
    assert np.allclose(one.history[:, "valid_loss"], two.history[:, "valid_loss"], atol=1e-5)
    assert torch.allclose(one.bias_.scores, two.bias_.scores, atol=1e-5)
    with pytest.raises(ValueError, match=r"criterion=torch\.nn\.BCEWithLogitsLoss"):
        classifier(module=OneLogit).fit(X, Y)


def test_other_parameters_after_a_fit():
    model = classifier(method="wtc").fit(X, Y)
    model.set_params(method="we")
    with pytest.raises(ValueError, match="`method` is 'we' now, but the bias was made with 'wtc'"):
        model.partial_fit(X, Y)
    assert model.fit(X, Y).bias_.method.name == "we"
    before = model.bias_
    model.set_params(criterion__label_smoothing=0.1)  # a new criterion
    assert model.bias_ is before


def test_saved_parameters_hold_the_bias(tmp_path):
    files = {f"f_{name}": str(tmp_path / name) for name in ("params", "optimizer", "criterion", "history")}
    whole = classifier(max_epochs=4, optimizer__momentum=0.9).fit(X, Y)
    first = classifier(max_epochs=2, optimizer__momentum=0.9).fit(X, Y)
    first.save_params(**files)
    second = classifier(max_epochs=2, optimizer__momentum=0.9).initialize()
    second.load_params(**files)
    second.partial_fit(X, Y)
    assert torch.equal(whole.module_.layer.weight, second.module_.layer.weight)
    assert torch.equal(whole.bias_.history.values()[0], second.bias_.history.values()[0])


@pytest.mark.parametrize("num_epochs", [1, 2])
def test_saved_parameters_without_the_history_of_skorch(num_epochs, tmp_path):
    """The epochs of the bias go on: none is passed over, and the burn-in does not begin again."""
    files = {f"f_{name}": str(tmp_path / name) for name in ("params", "optimizer", "criterion")}
    whole = classifier(max_epochs=2 * num_epochs, burn_in=1).fit(X, Y)
    classifier(max_epochs=num_epochs, burn_in=1).fit(X, Y).save_params(**files)
    second = classifier(max_epochs=num_epochs, burn_in=1).initialize()
    second.load_params(**files)
    second.partial_fit(X, Y)
    assert second.bias_.epoch == 2 * num_epochs - 1
    assert torch.equal(whole.module_.layer.weight, second.module_.layer.weight)
    assert torch.equal(whole.bias_.history.values()[0], second.bias_.history.values()[0])


def test_a_checkpoint_holds_the_bias(tmp_path):
    whole = classifier(max_epochs=4).fit(X, Y)
    checkpoint = Checkpoint(dirname=str(tmp_path), monitor=None)
    classifier(max_epochs=2, callbacks=[checkpoint]).fit(X, Y)
    second = classifier(max_epochs=2, callbacks=[LoadInitState(checkpoint)]).fit(X, Y)
    assert torch.equal(whole.module_.layer.weight, second.module_.layer.weight)
    assert torch.equal(whole.bias_.history.values()[0], second.bias_.history.values()[0])


def test_example(run_example, plain_accuracy):
    assert run_example("skorch_classifier.py", "--search") == pytest.approx(plain_accuracy, abs=0.03)
