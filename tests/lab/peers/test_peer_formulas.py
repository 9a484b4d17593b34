"""Every peer's formula against a plain reading of its paper, one instance at a time."""

import math

import numpy as np
import pytest
import torch

from activebias.lab.peers import PEERS, Batch, Epoch

LOGITS = torch.tensor(
    [[2.0, 0.5, -1.0], [0.1, 0.2, 0.3], [-3.0, 4.0, 0.0], [0.0, 0.0, 9.0]], dtype=torch.float64
)
TARGETS = torch.tensor([0, 2, 0, 2])


def batch_of(logits, targets=TARGETS, *, epoch=0, epochs=20, rows=None, chance=None):
    log_prob = logits.log_softmax(-1)
    losses = -log_prob.gather(-1, targets[..., None]).squeeze(-1)
    return Batch(losses, log_prob, torch.tensor(float(epoch)), epochs, rows, chance)


def probabilities(logits):
    """Return the class probabilities of every instance as lists of floats."""
    rows = [[math.exp(value) for value in row] for row in logits.tolist()]
    return [[value / sum(row) for value in row] for row in rows]


def focal(prob, label, gamma):
    return (1 - prob[label]) ** gamma * -math.log(prob[label])


def label_smoothing(prob, label, epsilon):
    target = [epsilon / len(prob) + (1 - epsilon) * (k == label) for k in range(len(prob))]
    return -sum(t * math.log(p) for t, p in zip(target, prob, strict=True))


def gce(prob, label, q):
    return (1 - prob[label] ** q) / q


def sce(prob, label, alpha):
    log_label = [0.0 if k == label else math.log(1e-4) for k in range(len(prob))]
    reverse = -sum(p * log for p, log in zip(prob, log_label, strict=True))
    return alpha * -math.log(prob[label]) + reverse


@pytest.mark.parametrize("value", [1.0, 0.5, 0.1])
@pytest.mark.parametrize(
    ("name", "reference"),
    [("focal", focal), ("label-smoothing", label_smoothing), ("gce", gce), ("sce", sce)],
)
def test_a_loss_is_the_papers(name, reference, value):
    peer = PEERS[name]
    if name == "focal":
        value = 10 * value
    expected = [
        reference(prob, label, value)
        for prob, label in zip(probabilities(LOGITS), TARGETS.tolist(), strict=True)
    ]
    found = peer.loss(batch_of(LOGITS), torch.tensor(value, dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", ["focal", "label-smoothing", "gce", "sce", "elr"])
def test_a_gradient_is_the_slope(name):
    peer = PEERS[name]
    value = torch.tensor(peer.default, dtype=torch.float64)
    rows = torch.full_like(LOGITS, 0.2)

    def losses(logits):
        return peer.loss(batch_of(logits, rows=rows), value)

    # Near certainty ELR clamps the probability, where its slope is 0.
    logits = (LOGITS / 2).requires_grad_()
    assert torch.autograd.gradcheck(losses, (logits,))


@pytest.mark.parametrize("name", ["focal", "label-smoothing", "gce", "sce", "elr"])
def test_a_gradient_is_finite_for_certain_predictions(name):
    logits = torch.tensor([[200.0, 0.0, 0.0], [0.0, 200.0, 0.0]], requires_grad=True)
    peer = PEERS[name]
    rows = torch.full((2, 3), 0.3)
    batch = batch_of(logits, torch.tensor([0, 0]), rows=rows)
    for value in peer.values:
        peer.loss(batch, torch.tensor(value)).sum().backward(retain_graph=True)
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", PEERS)
def test_the_values_of_many_models_are_those_of_each(name):
    """What the side-by-side engine relies on: a leading dimension changes nothing."""
    peer = PEERS[name]
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 8, 5, generator=generator)
    targets = torch.randint(5, (3, 8), generator=generator)
    chance = torch.rand(3, 8, generator=generator)
    rows = torch.rand(3, 8, 5, generator=generator)
    values = torch.tensor([[peer.values[0]], [peer.values[1]], [peer.default]])
    batch = batch_of(logits, targets, epoch=11, rows=rows, chance=chance)
    for function in filter(None, (peer.loss, peer.weights, peer.remember)):
        together = function(batch, values)
        for k in range(3):
            alone = batch_of(logits[k], targets[k], epoch=11, rows=rows[k], chance=chance[k])
            torch.testing.assert_close(together[k], function(alone, values[k, 0]))


def test_elr_is_the_papers():
    """Two visits of an instance: the target is an average of its predictions, then the loss follows it."""
    peer, strength = PEERS["elr"], 3.0
    prob = [max(min(p, 1 - 1e-4), 1e-4) for p in probabilities(LOGITS)[2]]
    target = [0.0, 0.0, 0.0]
    rows = peer.first_row(3).double()[None]
    for _ in range(2):
        target = [0.7 * t + 0.3 * p / sum(prob) for t, p in zip(target, prob, strict=True)]
        agreement = sum(t * p for t, p in zip(target, prob, strict=True))
        expected = -math.log(probabilities(LOGITS)[2][0]) + strength * math.log(1 - agreement)
        batch = batch_of(LOGITS[2:3], TARGETS[2:3], rows=rows)
        rows = peer.remember(batch, torch.tensor(strength))
        found = peer.loss(batch._replace(rows=rows), torch.tensor(strength))
        torch.testing.assert_close(rows[0], torch.tensor(target, dtype=torch.float64))
        torch.testing.assert_close(found[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("epoch", "kept"), [(0, 10), (5, 8), (10, 6), (19, 6)])
def test_small_loss_keeps_the_smallest(epoch, kept):
    losses = torch.tensor([5.0, 0.1, 3.0, 0.2, 4.0, 0.3, 0.4, 0.5, 2.0, 1.0])
    batch = Batch(losses, losses[:, None], torch.tensor(float(epoch)), 20)
    weights = PEERS["small-loss"].weights(batch, torch.tensor(0.4))
    chosen = losses.sort().values[:kept]
    assert sorted(losses[weights > 0].tolist()) == chosen.tolist()
    torch.testing.assert_close((weights * losses).mean(), chosen.mean())


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_selective_backprop_draws_by_the_power_of_the_percentile(share):
    """How often each instance is kept, beside NumPy's draws without replacement."""
    number, draws = 8, 20_000
    losses = torch.tensor([0.3, 4.0, 0.1, 2.0, 1.0, 0.5, 3.0, 0.2])
    chance = torch.rand(draws, number, generator=torch.Generator().manual_seed(2))
    batch = Batch(losses.expand(draws, -1), losses[:, None], torch.tensor(12.0), 20, chance=chance)
    weights = PEERS["selective-backprop"].weights(batch, torch.tensor(share))
    kept = round(share * number)
    assert ((weights > 0).sum(-1) == kept).all()
    assert weights.unique().tolist() == pytest.approx([0.0, number / kept])
    percentiles = [(sorted(losses.tolist()).index(loss) + 0.5) / number for loss in losses.tolist()]
    chances = np.array(percentiles) ** (1 / share - 1)
    generator = np.random.default_rng(0)
    expected = np.zeros(number)
    for _ in range(draws // 4):
        expected[generator.choice(number, kept, replace=False, p=chances / chances.sum())] += 4 / draws
    np.testing.assert_allclose((weights > 0).float().mean(0).numpy(), expected, atol=0.03)


@pytest.mark.parametrize("epoch", [0, 9, 18, 19])
def test_selective_backprop_trains_in_full_before_half_and_at_the_end(epoch):
    losses, chance = torch.rand(8), torch.rand(8)
    batch = Batch(losses, losses[:, None], torch.tensor(float(epoch)), 20, chance=chance)
    assert PEERS["selective-backprop"].weights(batch, torch.tensor(0.5)).tolist() == [1.0] * 8


def test_infobatch_drops_small_losses_and_keeps_the_expected_gradient():
    peer, dropped = PEERS["infobatch"], torch.tensor(0.5)
    rows = torch.cat([torch.full((600, 1), 0.1), torch.full((400, 1), 2.0)])
    generator = torch.Generator().manual_seed(0)
    plan = peer.plan(rows, dropped, Epoch(3, 20, 1000), generator)
    visits = plan.order.bincount(minlength=1000)
    assert len(plan.order) == 1000
    assert plan.weights[:600].tolist() == [2.0] * 600
    assert plan.weights[600:].tolist() == [1.0] * 400
    # A pass drops about 300 of 1000. The steps it saves begin another pass.
    assert (visits[:600] == 0).sum() > 150
    assert (visits[600:] >= 1).all()
    per_instance = visits * plan.weights
    torch.testing.assert_close(per_instance[:600].mean(), per_instance[600:].mean(), atol=0.15, rtol=0)


@pytest.mark.parametrize(("epoch", "whole"), [(17, False), (18, True), (19, True)])
def test_infobatch_ends_in_full(epoch, whole):
    """The last eighth, also where it is no whole number of epochs."""
    rows = torch.arange(100.0)[:, None]
    plan = PEERS["infobatch"].plan(rows, torch.tensor(0.5), Epoch(epoch, 20, 100), torch.Generator())
    assert (sorted(plan.order.tolist()) == list(range(100))) is whole
    assert (plan.weights == 1).all().item() is whole


def test_infobatch_begins_in_full():
    peer = PEERS["infobatch"]
    rows = peer.first_row(10).repeat(50, 1)
    plan = peer.plan(rows, torch.tensor(0.7), Epoch(0, 20, 50), torch.Generator())
    assert sorted(plan.order.tolist()) == list(range(50))


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_importance_draws_by_loss_without_bias(power):
    peer = PEERS["importance"]
    losses = torch.tensor([0.1, 1.0, 4.0, 0.01])
    number = 200_000
    plan = peer.plan(losses[:, None], torch.tensor(power), Epoch(1, 20, number), torch.Generator())
    share = plan.order.bincount(minlength=4) / number
    scores = losses**power
    expected = 0.5 * (0.25 + scores / scores.sum())
    torch.testing.assert_close(share, expected, atol=0.005, rtol=0)
    torch.testing.assert_close(plan.weights, 1 / (4 * expected))


def test_importance_weighs_all_instances_alike_if_all_losses_are_0():
    plan = PEERS["importance"].plan(
        torch.zeros(5, 1), torch.tensor(1.0), Epoch(1, 20, 40), torch.Generator().manual_seed(0)
    )
    assert plan.weights.tolist() == [1.0] * 5
    assert set(plan.order.tolist()) == set(range(5))


@pytest.mark.parametrize("name", ["infobatch", "importance"])
def test_the_expected_gradient_of_a_planned_epoch_is_that_of_plain_training(name):
    """Over many epochs the weighted visits of every instance have the mean of plain training: 1 an epoch."""
    peer, number, epochs = PEERS[name], 20, 600
    rows = torch.rand(number, 1, generator=torch.Generator().manual_seed(3)) ** 3
    generator = torch.Generator().manual_seed(4)
    visits = torch.zeros(number)
    for _ in range(epochs):
        plan = peer.plan(rows, torch.tensor(0.5), Epoch(3, 20, number), generator)
        visits += plan.order.bincount(minlength=number) * plan.weights
    # InfoBatch's epoch is longer than a pass: its visits are in proportion.
    visits *= number / visits.sum()
    torch.testing.assert_close(visits, torch.ones(number), atol=0.2, rtol=0)


def test_a_diverged_model_can_still_be_drawn_from():
    rows = torch.tensor([[math.nan], [math.inf], [1.0]])
    for name in ("importance", "infobatch"):
        plan = PEERS[name].plan(rows, torch.tensor(0.5), Epoch(1, 20, 30), torch.Generator())
        assert set(plan.order.tolist()) <= {0, 1, 2}
        assert len(plan.order) == 30
