"""`bias.metrics()`: flat, plain floats, and the numbers they claim to be."""

import pytest
import torch

import activebias as ab

NAMES = {
    "effective_sample_size",
    "weight_min",
    "weight_max",
    "weight_std",
    "score_mean",
    "confidence_mean",
    "variability_mean",
    "share_unvisited",
    "num_skipped",
}


def bias_with_visits(method: str, **options) -> ab.ActiveBias:
    bias = ab.ActiveBias(method, num_instances=4, num_classes=2, **options)
    bias.set_epoch(0)
    bias.record([0, 1], [0.9, 0.6])
    return bias


@pytest.mark.parametrize("method", ab.METHODS)
def test_flat_dict_of_finite_floats(method):
    metrics = bias_with_visits(method).metrics()
    assert set(metrics) == NAMES
    assert all(type(value) is float and value == value for value in metrics.values())


def test_numbers_by_hand():
    bias = bias_with_visits("wtc", remove_outliers=False)
    metrics = bias.metrics()
    weights = bias.weights().double()
    assert metrics["effective_sample_size"] == pytest.approx(float(weights.sum() ** 2 / (weights**2).sum()))
    assert metrics["weight_max"] == pytest.approx(float(weights.max()))
    assert metrics["confidence_mean"] == pytest.approx((0.7 + 0.55 + 0.5 + 0.5) / 4)
    # Two entries at a distance d have the standard deviation d / √2.
    assert metrics["variability_mean"] == pytest.approx((0.4 + 0.1) / 2**0.5 / 4, abs=1e-6)
    assert metrics["share_unvisited"] == 0.5


def test_equal_emphasis_has_the_whole_data_set_as_its_effective_size():
    assert bias_with_visits("uni").metrics()["effective_sample_size"] == pytest.approx(4)


@pytest.mark.parametrize("method", ["sd", "sauto"])
def test_drawing_methods_report_the_effective_size_of_their_draws(method):
    bias = bias_with_visits(method)
    probabilities = bias.probabilities()
    assert bias.metrics()["effective_sample_size"] == pytest.approx(float(1 / (probabilities**2).sum()))


def test_unvisited_with_a_window_of_one():
    assert bias_with_visits("wtc", window=1).metrics()["share_unvisited"] == 0.5
    # 0.1 is not a float16.
    bias = ab.ActiveBias("wtc", num_instances=4, num_classes=10, window=1, storage="float16")
    bias.set_epoch(0)
    bias.record([0], [0.5])
    assert bias.metrics()["share_unvisited"] == 0.75


def test_chunks_add_up(monkeypatch):
    bias = ab.ActiveBias("wpv", num_instances=50, num_classes=3)
    bias.set_epoch(0)
    bias.record(torch.arange(30), torch.linspace(0, 1, 30))
    whole = bias.metrics()
    monkeypatch.setattr("activebias.history.CHUNK", 7)
    assert bias.metrics() == pytest.approx(whole)
