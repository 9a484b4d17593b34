"""The factor with which `auto` limits the steps: Σ v (1 - p̄) is at most 1.5 times that of plain training."""

import pytest
import torch

import activebias as ab
from activebias import learning
from activebias.evidence import LARGEST_STEPS
from activebias.learning import means_of
from learning_run import NUM_TRAINING, Training

EVERY = torch.arange(NUM_TRAINING)


def steps(bias):
    """Return Σ v (1 - p̄), as a multiple of that of plain training."""
    plain = 1 - means_of(bias._memory)
    return float((bias.weight(EVERY).double() * plain).sum() / plain.sum())


@pytest.mark.parametrize("method", ["auto", "sauto"])
def test_with_clean_labels_steps_are_limited(method):
    bias = Training(method, share_wrong=0, rate=0.2).epochs(0, 40).bias
    factor = bias.metrics()["step_factor"]
    assert 0.1 < factor < 0.95
    emphasis = bias.probabilities() * NUM_TRAINING if method == "sauto" else bias.weight(EVERY) / factor
    assert emphasis.mean() == pytest.approx(1, abs=1e-4)
    plain = 1 - means_of(bias._memory)
    assert factor * (emphasis * plain).sum() / plain.sum() == pytest.approx(LARGEST_STEPS, rel=1e-4)
    if method == "sauto":
        assert torch.equal(bias.weight(EVERY), torch.full((NUM_TRAINING,), factor))
    assert f"All weights are multiplied by {factor:.2g}" in bias.explain()


def test_with_wrong_labels_steps_need_no_limit():
    bias = Training(share_wrong=0.4).epochs(0, 20).bias
    assert bias.metrics()["step_factor"] == 1
    assert steps(bias) < LARGEST_STEPS
    assert "multiplied" not in bias.explain()


def test_steps_are_limited_after_epochs_without_a_round(monkeypatch):
    monkeypatch.setattr(learning, "PART", 0.05)
    run = Training(share_wrong=0).epochs(0, 3)
    learnt = run.curve.num_learnt
    run.epochs(3, 20)
    assert run.curve.num_learnt == learnt
    assert steps(run.bias) == pytest.approx(LARGEST_STEPS, rel=1e-4)


def test_the_first_epoch_after_an_automatic_burn_in_has_limited_steps():
    """Only the beginning of this epoch tells that the burn-in is over; in it the rule p̄ (1 - p̄) holds."""
    run = Training(share_wrong=0, rate=0.3, burn_in="auto")
    for epoch in range(16):
        run.epochs(epoch, epoch + 1)
        run.bias.report_validation_error(0.5 - 0.01 * min(epoch, 12))
        assert run.bias.metrics()["step_factor"] == run.bias.metrics()["weight_max"] == 1
    run.bias.set_epoch(16)
    assert run.bias.emphasises
    assert run.curve.num_learnt == 0
    assert run.bias.metrics()["step_factor"] < 0.9
    assert steps(run.bias) == pytest.approx(LARGEST_STEPS, rel=1e-4)
    run.bias.grow(NUM_TRAINING + 200)  # plain steps are larger with the new instances
    assert run.bias.metrics()["step_factor"] > 0.95


def test_the_factor_holds_for_a_whole_epoch_and_is_stored(tmp_path):
    run = Training(share_wrong=0).epochs(0, 20)
    factor = run.bias.metrics()["step_factor"]
    run.bias.set_epoch(20)
    for index, (inputs, targets) in run.loader:
        run.bias.loss(run.model(inputs), targets, index)
        assert run.bias.metrics()["step_factor"] == factor
    run.bias.save(tmp_path / "bias.pt")
    again = Training(share_wrong=0).bias
    again.load(tmp_path / "bias.pt")
    again.set_epoch(20)
    assert torch.equal(again.weight(EVERY), run.bias.weight(EVERY))


def test_a_bound_of_the_weights_holds_beside_the_factor():
    bias = Training(share_wrong=0, max_weight=3).epochs(0, 20).bias
    factor = bias.metrics()["step_factor"]
    assert factor < 1
    assert steps(bias) == pytest.approx(LARGEST_STEPS, rel=1e-4)
    assert bias.weight(EVERY).max() <= 3 * factor * (1 + 1e-6)


def test_new_instances_count_in_the_limit_at_once():
    """Plain steps are larger with them, so the steps need no limit."""
    bias = Training(share_wrong=0, rate=0.2, window=5).epochs(0, 20).bias
    assert bias.metrics()["step_factor"] < 0.9
    bias.set_epoch(20)
    bias.grow(NUM_TRAINING + 200)
    assert bias.metrics()["step_factor"] == 1
    unlearnt = ab.ActiveBias("auto", num_instances=40, num_classes=10, burn_in=5, window=1)
    unlearnt.set_epoch(0)
    unlearnt.record(range(40), [0.5] + [0.999] * 39)
    unlearnt.set_epoch(1)
    unlearnt.grow(41)
    assert unlearnt.metrics()["step_factor"] == 1


def test_a_model_that_a_large_rate_would_ruin_keeps_learning(monkeypatch):
    """At this rate plain training works; steps as large as the emphasis makes them do not."""

    def last_error(most):
        monkeypatch.setattr("activebias.evidence.LARGEST_STEPS", most)
        runs = [Training(seed=seed, share_wrong=0, rate=0.3).epochs(0, 25) for seed in range(4)]
        return sum(run.error() for run in runs) / 4

    assert last_error(LARGEST_STEPS) < last_error(float("inf")) - 0.02


def test_other_methods_have_no_factor():
    bias = ab.ActiveBias("wtc", num_instances=4, num_classes=2)
    bias.set_epoch(0)
    assert "step_factor" not in bias.metrics()
