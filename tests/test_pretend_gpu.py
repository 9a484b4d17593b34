"""The code of a GPU computes what the code of a CPU computes. Real GPUs: tests/gpu."""

import pytest
import torch

import activebias as ab
from pretend_gpu import pretend_gpu
from training import digits, make_model

SETTINGS = {"num_instances": 96, "num_classes": 10, "burn_in": 1, "seed": 3}


def run(method, *, window, batch_size, accumulate, ignore, storage="float32", after_each=lambda: None):
    """Train three epochs; return losses, gradients, scores and histories."""
    inputs, targets = digits(96)
    if ignore:
        targets = targets.clone()
        targets[::7] = -100
    bias, model = ab.ActiveBias(method, window=window, storage=storage, **SETTINGS), make_model()
    sampler = bias.sampler(batch_size=batch_size)
    seen = []
    for epoch in range(3):
        bias.set_epoch(epoch)
        order = iter(sampler)
        for _ in range(96 // (batch_size // accumulate)):
            index = torch.tensor([next(order) for _ in range(batch_size // accumulate)])
            loss = bias.loss(model(inputs[index]), targets[index], index)
            after_each()  # before the backward pass
            loss.backward()
            seen.append(loss.item())
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
    values, valid = bias.history.values()
    numbers = [*bias.metrics().values()]
    return seen, [*model.parameters()], bias.scores, bias.weights(), values, valid.long(), numbers


@pytest.mark.parametrize("method", list(ab.METHODS))
@pytest.mark.parametrize(
    ("window", "accumulate", "ignore"), [(None, 1, True), (5, 2, True), (None, 2, False)]
)
def test_a_training_is_the_cpus(method, window, accumulate, ignore, monkeypatch):
    options = {"window": window, "batch_size": 16, "accumulate": accumulate, "ignore": ignore}
    expected = run(method, **options)
    graphs = pretend_gpu(monkeypatch)

    def spoil():
        for graph in graphs:
            graph.spoil()

    found = run(method, **options, after_each=spoil)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert sum(graph.num_replays for graph in graphs) > 10


def test_unusable_visits_go_to_the_row_that_does_not_count(monkeypatch):
    pretend_gpu(monkeypatch)
    bias = ab.ActiveBias("wpv", num_instances=10, num_classes=10)
    bias.set_epoch(0)
    before = bias.scores
    index = torch.tensor([0, 1, 2, 3, -1, 10, 99])
    bias.record(index, torch.tensor([float("nan"), float("inf"), 1.5, 0.5, 0.5, 0.5, 0.5]))
    assert bias.num_skipped == 6
    assert bias.history.values()[1].sum(1).tolist() == [1, 1, 1, 2] + [1] * 6
    torch.testing.assert_close(bias.scores[:3], before[:3])


def test_a_full_history_that_finds_no_room_keeps_the_latest(monkeypatch):
    pretend_gpu(monkeypatch)
    bias = ab.ActiveBias("wpv", num_instances=4, num_classes=10)
    bias.set_epoch(0)
    room = bias.history.capacity
    for visit in range(room + 4):
        bias.record(torch.zeros(1, dtype=torch.int64), torch.full((1,), visit / 1000))
    assert bias.history.num_overwritten == 5
    bias.set_epoch(1)
    values, valid = bias.history.values([0])
    assert valid[0].sum() == room
    torch.testing.assert_close(values[0, :room], torch.arange(4, room + 4) / 1000)


def test_states_move_between_a_cpu_and_a_gpu(monkeypatch):
    bias = ab.ActiveBias("spv", **SETTINGS)
    bias.set_epoch(0)
    bias.record(torch.arange(96), torch.linspace(0, 1, 96))
    here = bias.state_dict()
    pretend_gpu(monkeypatch)
    there = ab.ActiveBias("spv", **SETTINGS)
    there.load_state_dict(here)
    assert torch.equal(there.scores, here["scores"]["values"])
    again = there.state_dict()
    for part in ("values", "count"):
        assert torch.equal(again["history"][part], here["history"][part])
