"""A bound on the weights: no instance weighs more, and the mean stays 1."""

import pytest
import torch

import activebias as ab

pytestmark = pytest.mark.usefixtures("both_devices")


@pytest.mark.parametrize("max_weight", [1.2, 2, 10.0])
def test_no_instance_weighs_more_than_allowed(max_weight):
    bias = ab.ActiveBias("wpv", num_instances=400, num_classes=2, max_weight=max_weight)
    free = ab.ActiveBias("wpv", num_instances=400, num_classes=2)
    for each in (bias, free):
        each.set_epoch(0)
        each.record([7], [0.9])  # the only score above 0
    assert free.weights().max() > 100
    torch.testing.assert_close(bias.weights().max().item(), float(max_weight), rtol=1e-5, atol=0)
    torch.testing.assert_close(bias.weights().mean().item(), 1.0, rtol=1e-5, atol=0)
    for each in (bias, free):
        each.record(torch.arange(400), torch.rand(400, generator=torch.Generator().manual_seed(0)))
    assert bias.weights().max() <= max_weight + 1e-5
    torch.testing.assert_close(bias.weights().mean().item(), 1.0, rtol=1e-5, atol=0)
    assert (bias.weights().argsort() == free.weights().argsort())[:100].all()


@pytest.mark.parametrize("max_weight", [1, 0.5, float("nan"), float("inf"), "2", True])
def test_a_largest_weight_that_cannot_be(max_weight):
    with pytest.raises(ValueError, match="above 1"):
        ab.ActiveBias("wpv", num_instances=24, num_classes=5, max_weight=max_weight)


def test_a_largest_weight_needs_weights():
    with pytest.raises(ValueError, match=r"'spv' does not emphasise by weights"):
        ab.ActiveBias("spv", num_instances=24, num_classes=5, max_weight=2)
