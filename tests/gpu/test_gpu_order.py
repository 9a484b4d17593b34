"""Batches that come back on a CUDA device, compared with those handed out."""

import pytest
import torch

import activebias as ab

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("method", ["wpv", "spv"])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("index_device", ["cpu", "cuda"])
def test_an_epoch_in_the_samplers_order_is_the_cpus_and_does_not_wait(method, accumulate, index_device):
    made = [
        ab.ActiveBias(method, num_instances=512, num_classes=10, window=2, device=device)
        for device in ("cpu", "cuda")
    ]
    generator = torch.Generator().manual_seed(0)
    for epoch in range(3):
        for bias in made:
            bias.set_epoch(epoch)
        orders = [torch.tensor(list(bias.sampler(batch_size=64))).split(64 // accumulate) for bias in made]
        for parts in zip(*orders, strict=True):
            values = torch.randn(len(parts[0]), 10, generator=generator)
            targets = torch.randint(10, (len(parts[0]),), generator=generator)
            losses = []
            for bias, part in zip(made, parts, strict=True):
                there = bias.device if index_device == "cuda" else torch.device("cpu")
                batch = values.to(bias.device), targets.to(bias.device), part.to(there)
                torch.cuda.synchronize()
                torch.cuda.set_sync_debug_mode("error" if bias.device.type == "cuda" else "default")
                losses.append(bias.loss(*batch))
                torch.cuda.set_sync_debug_mode("default")
            assert torch.equal(*parts)
            torch.testing.assert_close(losses[1].cpu(), losses[0], atol=1e-5, rtol=1e-5)
    assert made[1].sampler(batch_size=64).num_remaining == 0
    torch.testing.assert_close(made[1].scores.cpu(), made[0].scores, atol=1e-5, rtol=1e-5)


def test_an_index_on_the_gpu_that_was_not_handed_out_is_warned_of_once():
    bias = ab.ActiveBias("wpv", num_instances=512, num_classes=10, device="cuda")
    prob = torch.full((64,), 0.5, device="cuda")
    bias.set_epoch(0)
    for index in torch.tensor(list(bias.sampler(batch_size=64))).split(64):
        bias.record(index.cuda(), prob)
    bias.set_epoch(1)  # as handed out
    for index in torch.tensor(list(bias.sampler(batch_size=64))).split(64):
        bias.record(index.cuda().flip(0), prob)
    with pytest.warns(UserWarning, match=r"came back on the GPU were not those handed out"):
        bias.set_epoch(2)
    for index in torch.tensor(list(bias.sampler(batch_size=64))).split(64):
        bias.record(index.cuda().flip(0), prob)
    bias.set_epoch(3)  # said once
    index = torch.arange(64)
    next(iter(bias.sampler(batch_size=64)))
    with pytest.raises(ValueError, match="was handed out"):
        bias.record(index, prob)  # an index on the CPU is compared at once
