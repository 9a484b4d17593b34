"""The toy example shows what the paper's figure 2 shows."""

import numpy as np
import pytest
import torch

from activebias.lab.toy import (
    X_WEIGHT,
    boundary_height,
    clean_parameters,
    draw_toy,
    toy_probabilities,
    train_toy,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def nothing(index, prob):
    return None


def ones(index):
    return torch.ones(len(index))


class Emphasis:
    """The method of the paper in NumPy, as slow and plain as the rules: the core has its own tests."""

    def __init__(self, statistic, size, epochs, burn_in=5):
        self.statistic, self.burn_in, self.epoch = statistic, burn_in, 0
        self.history = np.full((size, epochs + 1), np.nan)
        self.history[:, 0] = 0.5
        self.visits = np.ones(size, int)
        self.scores = np.full(size, 0.5 if statistic == "difficulty" else 0.0)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def weights(self):
        return 0.5 * (1 + self.scores / self.scores.mean())

    def weight(self, index):
        return ones(index) if self.epoch < self.burn_in else torch.from_numpy(self.weights()[index])

    def record(self, index, prob):
        index = index.numpy()
        self.history[index, self.visits[index]] = prob.numpy()
        self.visits[index] += 1
        rows = self.history[index, : self.visits.max()]
        distance = np.abs(rows - np.nanmean(rows, axis=1, keepdims=True))
        kept = distance <= 2 * np.nanmedian(distance, axis=1, keepdims=True) + 1e-6
        rows = np.where(kept, rows, np.nan)
        if self.statistic == "difficulty":
            self.scores[index] = 1 - np.nanmean(rows, axis=1)
        else:
            n = kept.sum(axis=1)
            variance = np.nansum((rows - np.nanmean(rows, axis=1, keepdims=True)) ** 2, axis=1) / (n - 1)
            self.scores[index] = np.sqrt(variance + variance**2 / (n - 1))


@pytest.fixture(scope="module")
def runs():
    data, epochs = draw_toy(generator(0)), 40
    paths, weights = {}, {}
    for method, statistic in (("scan", None), ("wd", "difficulty"), ("wpv", "variance")):
        if statistic is None:
            callbacks = {"weights_of": ones, "record": nothing}
        else:
            emphasis = Emphasis(statistic, len(data), epochs)
            callbacks = {
                "weights_of": emphasis.weight,
                "record": emphasis.record,
                "on_epoch": emphasis.set_epoch,
            }
        path = train_toy(**callbacks, data=data, generator=generator(1), num_epochs=epochs)
        paths[method] = path[-220:]  # ten epochs
        if statistic is not None:
            weights[method] = torch.from_numpy(emphasis.weights())
    return data, paths, weights


def test_variance_ends_nearest_to_the_clean_boundary_and_difficulty_farthest(runs):
    data, paths, _ = runs
    clean = clean_parameters(data)
    distance = {method: float((path - clean).norm(dim=1).mean()) for method, path in paths.items()}
    assert distance["wpv"] < 0.75 * distance["scan"]
    assert distance["wd"] > 1.25 * distance["scan"]
    right = {method: toy_probabilities(data, path) > 0.5 for method, path in paths.items()}
    accuracy = {method: float(each[..., ~data.is_outlier].double().mean()) for method, each in right.items()}
    assert accuracy["wd"] < accuracy["scan"] < accuracy["wpv"]


def test_difficulty_scatters_the_boundaries(runs):
    _, paths, _ = runs
    angle = {method: torch.atan2(path[:, 0], torch.tensor(X_WEIGHT)).std() for method, path in paths.items()}
    assert angle["wpv"] < angle["scan"] < angle["wd"]


def test_difficulty_emphasises_the_outliers_and_variance_the_boundary(runs):
    data, _, weights = runs
    outlier = data.is_outlier
    assert weights["wd"][outlier].mean() > 1.5 * weights["wd"][~outlier].mean()
    assert weights["wpv"][outlier].mean() < 0.7 * weights["wpv"][~outlier].mean()
    near = ~outlier & ((toy_probabilities(data, clean_parameters(data)) - 0.5).abs() < 0.3)
    assert weights["wpv"][near].mean() > 1.2 * weights["wpv"][~outlier & ~near].mean()


def test_the_data_are_as_described():
    data = draw_toy(generator(3), num_clean=40, num_outliers=6)
    assert data.points.shape == (46, 2)
    assert int(data.is_outlier.sum()) == 6
    assert sorted(set(data.labels.tolist())) == [-1.0, 1.0]
    outliers = data.points[data.is_outlier]
    # Far on the side where the other class is.
    assert bool((outliers[:, 0] * data.labels[data.is_outlier] < -5).all())


def test_the_clean_optimum_is_where_the_generator_puts_it():
    data = draw_toy(generator(0), num_clean=100_000, num_outliers=2)
    torch.testing.assert_close(
        clean_parameters(data), torch.tensor([1.0, 0.0], dtype=torch.float64), atol=0.03, rtol=0
    )


def test_the_update_is_the_gradient_of_the_weighted_mean_loss():
    data = draw_toy(generator(0), num_clean=8, num_outliers=2)
    seen = []
    weights = torch.linspace(0.5, 2, 10, dtype=torch.float64)
    path = train_toy(
        lambda index: weights[index],
        lambda index, prob: seen.append((index, prob)),
        data=data,
        generator=generator(),
        num_epochs=2,
        batch_size=4,
        learning_rate=0.2,
        start=(0.3, -0.1),
    )
    assert path.shape == (7, 2)
    assert [len(index) for index, _ in seen] == [4, 4, 2] * 2
    assert sorted(torch.cat([index for index, _ in seen[:3]]).tolist()) == list(range(10))
    for step, (index, prob) in enumerate(seen):
        parameters = path[step].clone().requires_grad_()
        before = toy_probabilities(data, parameters)[index]
        torch.testing.assert_close(prob, before.detach())
        (slope,) = torch.autograd.grad(-(weights[index] * before.log()).mean(), parameters)
        torch.testing.assert_close(path[step + 1], path[step] - 0.2 * slope)


def test_same_seed_same_path_and_the_global_state_stays():
    before = torch.get_rng_state()
    first, second = (
        train_toy(ones, nothing, data=draw_toy(generator(2)), generator=generator(5), num_epochs=2)
        for _ in range(2)
    )
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_callbacks_come_in_order():
    events = []
    data = draw_toy(generator(0), num_clean=4, num_outliers=0)

    def weights_of(index):
        events.append("weights")
        return torch.ones(len(index))

    train_toy(
        weights_of,
        lambda index, prob: events.append("record"),
        data=data,
        generator=generator(),
        num_epochs=2,
        batch_size=4,
        on_epoch=lambda epoch: events.append(epoch),
    )
    assert events == [0, "weights", "record", 1, "weights", "record"]


def test_the_boundary_is_where_both_classes_are_equally_likely():
    parameters = torch.tensor([[0.7, 0.2], [1.5, -1.0]], dtype=torch.float64)
    x = torch.tensor([-3.0, 0.0, 4.0], dtype=torch.float64)
    y = boundary_height(parameters, x)
    assert y.shape == (2, 3)
    torch.testing.assert_close(
        X_WEIGHT * x + parameters[:, :1] * y + parameters[:, 1:], torch.zeros(2, 3, dtype=torch.float64)
    )


def test_wrong_inputs_are_refused():
    data = draw_toy(generator())
    with pytest.raises(ValueError, match=r"`num_outliers` to be even .* but got 3"):
        draw_toy(generator(), num_outliers=3)
    with pytest.raises(ValueError, match="`num_epochs` to be at least 1, but got 0"):
        train_toy(ones, nothing, data=data, generator=generator(), num_epochs=0)
    with pytest.raises(ValueError, match=r"`weights_of` to give weights of shape \(10,\), but got \(3,\)"):
        train_toy(lambda index: torch.ones(3), nothing, data=data, generator=generator())
    with pytest.raises(RuntimeError, match="can be separated"):
        clean_parameters(draw_toy(generator(), num_clean=2))
