"""Before anything is recorded every variance is 0: the first draws, through the tree of sums, are uniform."""

import pytest
import torch

import activebias as ab


@pytest.mark.parametrize("num_instances", [10_000, 100_000, 20_000_000])
def test_all_scores_zero(num_instances):
    bias = ab.ActiveBias("spv", num_instances=num_instances, num_classes=10, window=2, storage="float16")
    bias.set_epoch(0)
    order = iter(bias.sampler(batch_size=64))
    drawn = torch.tensor([next(order) for _ in range(64 * 20)])
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < num_instances
    assert abs(float(drawn.double().mean()) / num_instances - 0.5) < 0.05
