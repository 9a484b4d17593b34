"""Out-of-sample probabilities of every row, and the way to cleanlab and back."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import TensorDataset

import activebias as ab
from activebias.own import cross_fit, folds
from activebias.own.forms import data_in_ram
from activebias.own.judges import fold_masks
from activebias.training.examples import joined

WRONG = (20, 100)


@pytest.fixture(scope="module")
def wine():
    values, kinds = load_wine(return_X_y=True)
    for row in WRONG:
        kinds[row] = (kinds[row] + 1) % 3
    return values, kinds


@pytest.fixture(scope="module")
def found(wine):
    return cross_fit(*wine, folds=2, epochs=10)


def test_every_row_in_the_order_of_the_data(found, wine):
    assert found.pred_probs.shape == (178, 3)
    np.testing.assert_allclose(found.pred_probs.sum(1), 1, rtol=1e-5)
    assert found.labels.tolist() == wine[1].tolist()
    assert found.rows.tolist() == list(range(178))
    assert (found.pred_probs.argmax(1) == load_wine().target).mean() > 0.95


def test_the_audit_of_the_probabilities_finds_the_wrong_labels(found):
    audit = ab.audit(pred_probs=found.pred_probs, labels=found.labels)
    assert sorted(audit.order[:2].tolist()) == list(WRONG)
    assert audit.suspected[list(WRONG)].all()


def test_a_row_has_no_influence_on_its_own_probabilities(wine, monkeypatch):
    """The labels of a fold change nothing in the fold's probabilities, and all others."""
    own = data_in_ram(*wine, None, None, 0.2, 0)
    examples = joined(own.train, own.validation)
    mask = fold_masks(examples, 2, 0)[0]
    targets = torch.where(torch.from_numpy(mask), 2 - examples.targets, examples.targets)
    parts = targets.split([len(own.train), len(own.validation)])
    other = replace(
        own,
        train=replace(own.train, targets=parts[0]),
        validation=replace(own.validation, targets=parts[1]),
    )
    monkeypatch.setattr(folds, "fold_masks", lambda *_: [mask, ~mask])
    found = []
    for data in (own, other):
        monkeypatch.setattr(folds, "data_in_ram", lambda *_, data=data: data)
        found.append(cross_fit(*wine, folds=2, epochs=1, method="scan", burn_in=0).pred_probs)
    position = np.concatenate([own.train_position, own.validation_position])
    changed = (found[0] != found[1]).any(1)[position]
    assert changed.tolist() == (~mask).tolist()


def test_copies_are_in_one_fold_and_rows_without_a_label_are_left_out(wine):
    values, kinds = wine
    frame = pd.DataFrame(values).assign(kind=[f"kind {k}" for k in kinds])
    frame = pd.concat([frame, frame.iloc[:30]])
    frame.iloc[5, -1] = None
    own = data_in_ram(frame, None, "kind", None, 0.2, 0)
    position = np.concatenate([own.train_position, own.validation_position])
    for mask in fold_masks(joined(own.train, own.validation), 4, 0):
        rows = set(position[mask].tolist())
        assert all((row in rows) == (row + 178 in rows) for row in range(30) if row != 5)
    found = cross_fit(frame, target="kind", folds=4, epochs=1)
    assert found.rows.tolist() == [k for k in range(208) if k != 5]
    assert found.class_names == ("kind 0", "kind 1", "kind 2")


def test_a_model_of_ones_own(wine):
    data = TensorDataset(torch.tensor(wine[0]), torch.tensor(wine[1]))
    found = cross_fit(data, model=lambda: nn.Linear(13, 3), learning_rate=0.01, folds=2, epochs=1)
    assert found.pred_probs.shape == (178, 3)


def test_folds_that_do_not_fit(wine):
    with pytest.raises(ValueError, match=r"`folds` to be from 2 to \d+, the size of the largest class"):
        cross_fit(*wine, folds=1)
    names = ["rare" if k in (3, 4) else f"kind {kind}" for k, kind in enumerate(wine[1])]
    with pytest.warns(UserWarning, match=r"fewer rows than the 3 folds: rare \(2\)"):
        cross_fit(wine[0], names, folds=3, epochs=1)


@pytest.mark.filterwarnings("ignore::Warning")  # of pandas, about cleanlab's own code
def test_datalab_takes_the_probabilities(found, wine):
    cleanlab = pytest.importorskip("cleanlab", reason="cleanlab is not installed")
    pytest.importorskip("datasets", reason="Datalab needs Hugging Face's datasets")
    lab = cleanlab.Datalab({"label": found.labels.tolist()}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=found.pred_probs, issue_types={"label": {}})
    issues = lab.get_issues("label")
    assert len(issues) == 178
    assert sorted(issues["label_score"].argsort()[:2].tolist()) == list(WRONG)
    assert issues["is_label_issue"].iloc[list(WRONG)].all()
