"""A batch that is computed twice (activation checkpointing), or without gradients."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from training import digits, make_bias, make_model


@pytest.fixture
def bias():
    """Return a bias in whose first epoch every instance was visited."""
    bias = make_bias("wpv", num_instances=64)
    bias.set_epoch(0)
    bias.record(torch.arange(64), torch.full((64,), 0.25))
    bias.set_epoch(1)
    return bias


def visits(bias):
    """How many visits the histories hold."""
    return int(bias.history.values()[1].sum()) - bias.num_instances


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_around_the_loss_is_refused(bias, reentrant):
    model = make_model()
    inputs, targets = digits(8)
    inputs.requires_grad_()
    index = torch.arange(8)

    def train():
        loss = checkpoint(lambda x: bias.loss(model(x), targets, index), inputs, use_reentrant=reentrant)
        loss.backward()

    with pytest.raises(RuntimeError, match=r"compute the loss outside of the checkpointed block"):
        train()
    assert visits(bias) <= 64 + 8
    # Around the model it is fine.
    before = visits(bias)
    bias.loss(checkpoint(model, inputs, use_reentrant=reentrant), targets, index).backward()
    assert visits(bias) == before + 8


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_around_record_is_refused(bias, reentrant):
    model = make_model()
    inputs, targets = digits(8)
    inputs.requires_grad_()
    index = torch.arange(8)

    def block(x):
        logits = model(x)
        bias.record(index, (logits.detach(), targets))
        return torch.nn.functional.cross_entropy(logits, targets)

    before = visits(bias)
    loss = checkpoint(block, inputs, use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match=r"`bias\.record` outside of the checkpointed block"):
        loss.backward()
    assert visits(bias) == before + 8


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_loss_without_gradients_is_refused_and_record_is_not(bias, mode):
    with mode():
        for call in (
            lambda: bias.loss(torch.randn(2, 10), torch.tensor([0, 1]), [0, 1]),
            lambda: bias.weigh(torch.ones(2), torch.ones(2), [0, 1]),
        ):
            with pytest.raises(RuntimeError, match=r"without gradients.*torch's own loss.*bias\.record"):
                call()
        assert visits(bias) == 64
        bias.record([0, 1], [0.5, 0.5])
    assert visits(bias) == 66
