"""Repeated splits: three parts, classes in proportion, equal inputs together, equal sizes."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine

from activebias.lab.experiment.splitting import Split, equal_inputs, split_rows
from activebias.training.examples import Examples


def examples_of(inputs, labels):
    return Examples((torch.as_tensor(inputs),), torch.as_tensor(labels))


def wine():
    return examples_of(*load_wine(return_X_y=True))


def test_the_parts_are_all_rows_once_and_differ_between_splits():
    splits = [split_rows(wine(), Split(), seed) for seed in range(5)]
    for parts in splits:
        assert sorted(torch.cat(parts).tolist()) == list(range(178))
        assert [len(part) for part in parts] == [106, 36, 36]
    assert len({tuple(parts.test.tolist()) for parts in splits}) == 5
    assert split_rows(wine(), Split(), 3).test.equal(splits[3].test)


def test_every_part_has_the_shares_of_the_classes():
    data = wine()
    share = np.bincount(data.targets) / len(data)
    for part in split_rows(data, Split(), 0):
        assert np.bincount(data.targets[part]) / len(part) == pytest.approx(share, abs=0.02)


def test_equal_inputs_stay_together_and_the_sizes_stay_equal():
    inputs, labels = load_iris(return_X_y=True)
    data = examples_of(np.concatenate([inputs, inputs[:30]]), np.concatenate([labels, labels[:30]]))
    group = equal_inputs(data)
    assert len(set(group)) == 149  # iris itself has two equal flowers
    splits = [split_rows(data, Split(), seed) for seed in range(20)]
    for parts in splits:
        groups = [set(group[part.numpy()]) for part in parts]
        assert sum(map(len, groups)) == len(set.union(*groups)) == 149
    assert {tuple(map(len, parts)) for parts in splits} == {(108, 36, 36)}


def test_small_classes_are_trained_on_first():
    labels = [0] * 20 + [1] * 20 + [2, 2] + [3]
    data = examples_of(np.random.default_rng(0).normal(size=(43, 3)), labels)
    for seed in range(5):
        train, validation, test = (data.targets[part].tolist() for part in split_rows(data, Split(), seed))
        assert (train.count(2), test.count(2), validation.count(2)) == (1, 1, 0)
        assert train.count(3) == 1


def test_one_large_group_of_equal_inputs_is_not_divided():
    data = examples_of(np.array([[0.0]] * 50 + [[float(k)] for k in range(1, 51)]), [0] * 60 + [1] * 40)
    for parts in (split_rows(data, Split(), seed) for seed in range(5)):
        assert sum(bool((data.inputs[0][part] == 0).any()) for part in parts) == 1
        assert min(map(len, parts)) >= 8


def test_sentences_are_divided_by_their_tags():
    targets = torch.zeros(50, 4, dtype=torch.int64)
    targets[:10, 1] = 2
    targets[:, 3] = -100
    data = Examples((torch.arange(200).view(50, 4),), targets, torch.full((50,), 3))
    parts = split_rows(data, Split(), 0)
    assert [int((data.targets[part] == 2).sum()) for part in parts] == [6, 2, 2]


@pytest.mark.parametrize(("validation", "test"), [(0.0, 0.2), (0.2, 1.0), (0.5, 0.5), (-0.1, 0.2)])
def test_impossible_shares(validation, test):
    with pytest.raises(ValueError, match=r"Expected `(validation|test)"):
        Split(validation, test)


def test_too_few_examples():
    with pytest.raises(ValueError, match="2 examples are too few for a training, a validation and a test"):
        split_rows(examples_of([[1.0], [2.0]], [0, 1]), Split(), 0)
