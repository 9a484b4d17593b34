"""Label noise: how much, which labels, from which seed."""

import pytest
import torch

from activebias.lab.data import (
    DataError,
    Dataset,
    Examples,
    class_dependent,
    flip_matrix,
    load,
    uniform,
    uniform_other,
    with_noise,
)

LABELS = torch.arange(20_000) % 10


def test_uniform_redraws_over_all_classes():
    noisy = uniform(LABELS, 10, 0.1, seed=3)
    wrong = float((noisy != LABELS).float().mean())
    # One redrawn label in ten comes out as it was: 9 % wrong, with a standard deviation of 0.07 % here.
    assert wrong == pytest.approx(0.09, abs=0.003)
    changed = noisy[noisy != LABELS]
    assert torch.bincount(changed, minlength=10).min() > 130


def test_uniform_other_makes_every_redrawn_label_wrong():
    noisy = uniform_other(LABELS, 10, 0.25, seed=3)
    assert int((noisy != LABELS).sum()) == 5000
    shift = (noisy - LABELS)[noisy != LABELS] % 10
    assert torch.bincount(shift, minlength=10)[1:].min() > 450


@pytest.mark.parametrize("draw", [uniform, uniform_other])
def test_fraction_zero_and_one(draw):
    assert torch.equal(draw(LABELS, 10, 0.0, seed=0), LABELS)
    wrong = float((draw(LABELS, 10, 1.0, seed=0) != LABELS).float().mean())
    assert wrong == pytest.approx(0.9 if draw is uniform else 1.0, abs=0.01)


@pytest.mark.parametrize("draw", [uniform, uniform_other])
def test_seed_decides_and_global_state_is_left_alone(draw):
    before = torch.random.get_rng_state()
    first, same, other = (draw(LABELS, 10, 0.2, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_generator_goes_on_where_it_stopped():
    generator = torch.Generator().manual_seed(5)
    first = uniform(LABELS, 10, 0.2, seed=generator)
    second = uniform(LABELS, 10, 0.2, seed=generator)
    assert torch.equal(first, uniform(LABELS, 10, 0.2, seed=5))
    assert not torch.equal(first, second)


def test_given_labels_are_not_changed():
    labels = LABELS.clone()
    uniform(labels, 10, 1.0, seed=0)
    class_dependent(labels, 10, pairs={0: 1}, fraction=1.0, seed=0)
    assert torch.equal(labels, LABELS)


def test_class_dependent_follows_the_matrix():
    matrix = torch.full((10, 10), 0.02)
    matrix.fill_diagonal_(0.82)
    noisy = class_dependent(LABELS, 10, transition=matrix, seed=1)
    counts = torch.zeros(10, 10)
    counts.index_put_((LABELS, noisy), torch.ones(len(LABELS)), accumulate=True)
    assert torch.allclose(counts / 2000, matrix, atol=0.03)


def test_a_class_without_probability_is_never_drawn():
    matrix = torch.zeros(10, 10)
    matrix[:, 3], matrix[:, 7] = 1 / 3, 2 / 3
    assert set(class_dependent(LABELS, 10, transition=matrix, seed=1).tolist()) == {3, 7}


def test_pairs_flip_one_way():
    noisy = class_dependent(LABELS, 10, pairs={3: 5}, fraction=0.4, seed=1)
    assert torch.equal(noisy[LABELS != 3], LABELS[LABELS != 3])
    flipped = noisy[LABELS == 3]
    assert set(flipped.tolist()) == {3, 5}
    assert float((flipped == 5).float().mean()) == pytest.approx(0.4, abs=0.04)


def test_padding_stays():
    targets = torch.tensor([[0, 1, -100], [2, -100, -100]])
    for noisy in (
        uniform_other(targets, 3, 1.0, seed=0),
        class_dependent(targets, 3, pairs={0: 1, 1: 2, 2: 0}, fraction=1.0, seed=0),
    ):
        assert torch.equal(noisy == -100, targets == -100)
        assert bool((noisy != targets)[targets != -100].all())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: uniform(LABELS, 10, 1.5, seed=0), "`fraction` to lie in"),
        (lambda: uniform(LABELS, 5, 0.5, seed=0), "`labels` to lie in 0 to 4"),
        (lambda: uniform_other(LABELS * 0, 1, 0.5, seed=0), "at least 2"),
        (lambda: class_dependent(LABELS, 10, seed=0), "exactly one"),
        (lambda: class_dependent(LABELS, 10, pairs={0: 1}, seed=0), "needs `fraction`"),
        (
            lambda: class_dependent(LABELS, 10, transition=torch.eye(10), fraction=0.1, seed=0),
            "belongs to `pairs`",
        ),
        (lambda: class_dependent(LABELS, 10, transition=torch.eye(3), seed=0), r"to be \(10, 10\)"),
        (lambda: class_dependent(LABELS, 10, transition=torch.ones(10, 10), seed=0), "every row sums to 1"),
        (lambda: flip_matrix(3, {0: 3}, 0.1), "classes 0 to 2"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def toy(name="toy"):
    examples = Examples((torch.zeros(len(LABELS), 1),), LABELS)
    return Dataset(name, examples, examples, 10, tuple("0123456789"))


def test_with_noise_keeps_the_truth_and_the_test_set():
    dataset = load("digits")
    noisy = with_noise(dataset, "uniform", fraction=0.3, seed=1)
    assert torch.equal(noisy.clean_targets, dataset.train.targets)
    assert torch.equal(noisy.test.targets, dataset.test.targets)
    assert noisy.train.inputs[0] is dataset.train.inputs[0]
    again = with_noise(noisy, "uniform", fraction=0.3, seed=1)
    assert torch.equal(again.train.targets, noisy.train.targets)


def test_with_noise_class_dependent_defaults():
    mnist = with_noise(toy("mnist"), "class_dependent", fraction=1.0)
    assert set(mnist.train.targets[LABELS == 7].tolist()) == {1}
    assert torch.equal(mnist.train.targets[LABELS == 4], LABELS[LABELS == 4])
    other = with_noise(toy(), "class_dependent", fraction=1.0)
    assert torch.equal(other.train.targets, (LABELS + 1) % 10)


def test_with_noise_refusals():
    with pytest.raises(ValueError, match="one of uniform, uniform_other"):
        with_noise(toy(), "gaussian", fraction=0.1)
    with pytest.raises(ValueError, match="`fraction` is needed"):
        with_noise(toy(), "uniform")
    with pytest.raises(DataError, match="cifar10 and cifar100, not for toy"):
        with_noise(toy(), "human")
