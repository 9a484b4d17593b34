"""Parameters without a half-precision copy are stepped at once, on any device; tests/gpu has the others."""

import torch

from activebias.lab.side_by_side.momentum import HalfPrecisionSGD


def test_parameters_without_a_copy_are_stepped_as_by_sgd():
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(3, size, generator=generator) for size in (16, 16, 64, 5)]
    ours, theirs = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    groups = [
        [{"params": each[:2], "weight_decay": 0.1}, {"params": each[2:], "weight_decay": 0.0}]
        for each in (ours, theirs)
    ]
    rate = torch.tensor(0.1)
    optimiser = HalfPrecisionSGD(groups[0], {}, rate=rate, momentum=0.9)
    reference = torch.optim.SGD(groups[1], lr=0.1, momentum=0.9)
    for number in range(4):
        rate.fill_(0.1 / (1 + number))
        for group in reference.param_groups:
            group["lr"] = float(rate)
        for own, other in zip(ours[:3], theirs[:3], strict=True):  # the last one has no gradient
            own.grad = torch.randn(own.shape, generator=generator)
            other.grad = own.grad.clone()
        optimiser.step()
        reference.step()
        optimiser.zero_grad()
    for own, other in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(own, other)
        momentum = (
            each.state[value]["momentum_buffer"] for each, value in ((optimiser, own), (reference, other))
        )
        torch.testing.assert_close(*momentum)
    assert torch.equal(ours[3], values[3])
