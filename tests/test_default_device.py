"""A default device or dtype of torch's changes nothing: the bias is where its `device` says."""

import pytest
import torch
from torch.utils.data import TensorDataset

import activebias as ab
from training import digits, make_model


@pytest.fixture
def elsewhere():
    """A default device that has no values: whatever is made there by mistake cannot be read."""
    yield lambda: torch.set_default_device("meta")
    torch.set_default_device(None)


def trained(method, *, prepare, **options):
    """Train two epochs; return everything that a user may ask for, on the CPU."""
    inputs, targets = digits(64)
    train, held_out = TensorDataset(inputs[:48], targets[:48]), TensorDataset(inputs[48:], targets[48:])
    model = make_model()
    prepare()
    bias = ab.ActiveBias(method, num_instances=48, num_classes=10, **options)
    sampler = bias.sampler(batch_size=16)
    for epoch in range(2):
        bias.set_epoch(epoch)
        order = list(sampler)
        for first in range(0, 48, 16):
            index = torch.tensor(order[first : first + 16], device="cpu")
            bias.loss(model(inputs[index]), targets[index], index).backward()
        bias.learn(model, train, held_out)
    found = [bias.scores, bias.weights(), bias.probabilities(), *bias.history.values(), bias.metrics()]
    bias.load_state_dict(bias.state_dict())
    bias.set_epoch(2)
    bias.grow(64)
    return [*found, bias.rows(["a", "b"]), bias.scores], bias.explain() if method == "auto" else ""


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("sd", {}),
        ("isd", {"window": 2}),
        ("wpv", {"storage": "float16"}),
        ("wtc", {"max_weight": 1.2}),
        ("auto", {"max_weight": 1.2}),
    ],
)
def test_a_default_device_changes_nothing(method, options, elsewhere):
    expected, sentence = trained(method, prepare=lambda: None, **options)
    found, same_sentence = trained(method, prepare=elsewhere, **options)
    assert same_sentence == sentence
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", ["auto", "wtc", "sd"])
def test_a_default_dtype_changes_nothing(method, dtype):
    try:
        ours = trained(method, prepare=lambda: torch.set_default_dtype(dtype))
    finally:
        torch.set_default_dtype(torch.float32)
    theirs = trained(method, prepare=lambda: None)
    for one, other in zip(ours[0], theirs[0], strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other)
        else:
            assert one == other
    assert ours[1] == theirs[1]
