"""The curve of the method `auto`: from alignments to scores and weights, and in words."""

import math

import numpy as np
import pytest
import torch

import activebias as ab
from activebias import curve as curves
from activebias import evidence as evidences
from activebias.curve import Curve
from activebias.emphasis import weights
from activebias.evidence import NUM_KNOTS, Evidence, place_of

EVERYWHERE = [1 / NUM_KNOTS] * NUM_KNOTS


@pytest.mark.parametrize(
    ("weight", "share", "text"),
    [
        ([1.0] * 13, EVERYWHERE, "Emphasises nothing: all instances weigh about the same."),
        ([1.03] * 6 + [0.97] * 7, EVERYWHERE, "Emphasises nothing: all instances weigh about the same."),
        ([0.0] * 13, EVERYWHERE, "Emphasises nothing: all instances weigh about the same."),
        (
            [9.0] * 5 + [1.0] + [0.1] * 7,
            [0] * 5 + [1] + [0] * 7,
            "Emphasises nothing: all instances weigh ab",
        ),
        (
            [0.7] * 3 + [1.04] * 10,
            EVERYWHERE,
            "Emphasises p̄ from 0.12 to 1, most of all p̄ near 0.12 (weight 1.04).",
        ),
        ([0.6] * 5 + [3.0] + [0.9] * 7, EVERYWHERE, "Emphasises p̄ near 0.5 (weight 3.0)."),
        (  # knots without instances have the mean weight: they neither end nor hide a range
            [1, 1, 0.1, 0.1, 0.9, 1.3, 0.9, 1.4, 1, 0.7, 1, 1, 1],
            [0, 0, 0.1, 0.1, 0, 0.3, 0, 0.3, 0, 0.2, 0, 0, 0],
            "Emphasises p̄ from 0.5 to 0.88, most of all p̄ near 0.88 (weight 1.4). Instances with p̄ below "
            "0.18 count for little and may be mislabelled: 20 % of all.",
        ),
        (
            [0.1] * 3 + [0.8, 1.4, 2.0, 1.6, 0.9, 0.6, 0.8, 1.2, 1.3, 1.1],
            [0.1] * 3 + [0.07] * 10,
            "Emphasises p̄ from 0.27 to 0.73, most of all p̄ near 0.5 (weight 2.0). Also emphasises p̄ from "
            "0.99 to 1 (weight up to 1.3). Instances with p̄ below 0.08 count for little and may be "
            "mislabelled: 30 % of all.",
        ),
        (  # two more ranges: one knot each
            [1.2] + [0.8] * 4 + [2.0] + [0.8] * 4 + [1.4, 0.9, 0.9],
            EVERYWHERE,
            "Emphasises p̄ near 0.5 (weight 2.0). Also emphasises p̄ near 0.0067 (weight 1.2). Also "
            "emphasises p̄ near 0.99 (weight 1.4).",
        ),
        (  # a second range with few instances, and another that weighs about 1
            [1.5] + [0.8] * 4 + [2.0] + [0.8] * 4 + [1.04, 1.01, 0.9],
            [0.009] + [0.05] * 4 + [0.191] + [0.1] * 6,
            "Emphasises p̄ near 0.5 (weight 2.0).",
        ),
    ],
)
def test_sentences_about_curves(weight, share, text):
    found = curves.in_words(torch.tensor(weight), torch.tensor(share))
    assert found.startswith(text)
    assert len(found) == len(text) or "nothing" in found


def test_alignments_become_scores():
    share = torch.zeros(NUM_KNOTS, dtype=torch.float64)
    share[[2, 5, 8]] = torch.tensor([0.1, 0.5, 0.4], dtype=torch.float64)
    aligned = torch.zeros(NUM_KNOTS, dtype=torch.float64)
    aligned[[2, 5, 8]] = torch.tensor([-3.0, 1.0, 2.0], dtype=torch.float64)
    known = (share > 0).double()
    evidence = Evidence.none().with_new(aligned, share, known)
    scores = evidence.scores(share)
    assert scores[2] == 0  # training there would raise the validation loss
    assert scores[8] == pytest.approx(2 * scores[5].item())
    assert (share * scores).sum() == pytest.approx(1)
    many = evidence
    for _ in range(60):
        many = many.with_new(1e-6 * aligned, share, known)  # gradients shrink, the curve does not
    torch.testing.assert_close(many.scores(share), scores)
    assert Evidence.none().with_new(-aligned.abs(), share, known).scores(share).abs().sum() == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_alignments_that_are_not_finite_are_not_known(value):
    share = torch.full((NUM_KNOTS,), 1 / NUM_KNOTS, dtype=torch.float64)
    aligned = torch.linspace(-1, 2, NUM_KNOTS, dtype=torch.float64)
    known = torch.ones(NUM_KNOTS, dtype=torch.float64)
    one_bad, all_bad = aligned.clone(), torch.full_like(aligned, value)
    one_bad[9] = value
    found = Evidence.none().with_new(one_bad, share, known)
    without = known.clone()
    without[9] = 0
    expected = Evidence.none().with_new(aligned.where(without > 0, 0), share, without)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
    assert found.weight[9] == found.total[9] == 0
    # In a stack, every curve is the one that it would be alone.
    stack = Evidence.none(3).with_new(
        torch.stack([aligned, one_bad, all_bad]), share.expand(3, -1), known.expand(3, -1)
    )
    alone = [Evidence.none().with_new(each, share, known) for each in (aligned, one_bad, all_bad)]
    for lane, evidence in enumerate(alone):
        assert torch.equal(stack.total[lane], evidence.total)
        assert torch.equal(stack.scores(share.expand(3, -1))[lane], evidence.scores(share))
    assert evidences.is_usable(torch.stack([aligned, one_bad, all_bad])).tolist() == [True, True, False]
    assert not alone[2].scores(share).any()


def test_no_score_outgrows_its_bound():
    share = torch.full((NUM_KNOTS,), 1e-4, dtype=torch.float64)
    share[12] = 1 - share[:12].sum()
    aligned = torch.zeros(NUM_KNOTS, dtype=torch.float64)
    aligned[5] = 1.0
    scores = Evidence.none().with_new(aligned, share, torch.ones(NUM_KNOTS)).scores(share)
    assert evidences.UNIFORM + (1 - evidences.UNIFORM) * scores.max() == pytest.approx(evidences.MOST)


def test_the_curve_is_linear_between_its_knots():
    curve = Curve(torch.device("cpu"), 10)
    curve.scores[:] = np.arange(NUM_KNOTS, dtype=np.float64)
    means = np.array([0.0, 0.3, 0.5, 0.9999999])
    found = curve(ab.Estimate(means, means, means))
    np.testing.assert_allclose(found, place_of(means))
    np.testing.assert_allclose(found, [0, math.log(3 / 7) + 5, 5, 12])


@pytest.mark.parametrize("rule_share", [0.9, 0.73, 0.0])
def test_if_every_knot_harms_the_scores_are_those_of_the_rule(rule_share):
    rule_share = torch.tensor(rule_share, dtype=torch.float64)
    share = torch.full((NUM_KNOTS,), 1 / NUM_KNOTS, dtype=torch.float64)
    known = torch.ones(NUM_KNOTS, dtype=torch.float64)
    harmful, helpful = (Evidence.none().with_new(sign * known, share, known) for sign in (-1, 1))
    rule = evidences.rule_scores() / evidences.rule_scores().mean()
    torch.testing.assert_close(harmful.mixed(share, rule_share), rule)
    stack = Evidence(*(torch.stack(pair) for pair in zip(harmful, helpful, strict=True)))
    found = stack.mixed(share.expand(2, -1), rule_share.expand(2))
    torch.testing.assert_close(found[0], rule)
    torch.testing.assert_close(found[1], helpful.mixed(share, rule_share))


def test_a_curve_begins_as_the_rule():
    share = torch.full((NUM_KNOTS,), 1 / NUM_KNOTS, dtype=torch.float64)
    evidence = Evidence.none().with_new(share.new_ones(NUM_KNOTS), share, share.new_ones(NUM_KNOTS))
    learnt = evidence.scores(share)
    torch.testing.assert_close(learnt, torch.ones_like(learnt))
    rule = evidences.rule_scores() / evidences.rule_scores().mean()
    early = evidence.mixed(share, torch.tensor(0.729, dtype=torch.float64))
    torch.testing.assert_close(early, 0.271 * learnt + 0.729 * rule)


def learnt_every(epochs, harmful):
    """Return a curve after rounds in epochs 0 (three), `epochs`, 2 · `epochs`; half of the instances harm."""
    curve = Curve(torch.device("cpu"), 10)
    share = torch.full((NUM_KNOTS,), 1 / (NUM_KNOTS - 1), dtype=torch.float64)
    share[NUM_KNOTS // 2] = 0
    known = torch.ones(NUM_KNOTS, dtype=torch.float64)
    aligned = known.clone()
    if harmful:
        aligned[: NUM_KNOTS // 2] = -1
    for epoch in (0, 0, 0, epochs, 2 * epochs):
        curve.learn(
            torch.stack([aligned, aligned]), torch.zeros(11, dtype=torch.float64), share, known, epoch
        )
    return curve


def test_the_share_of_the_rule_falls_with_the_rounds_if_no_instance_harms():
    for epochs in (1, 10):
        assert learnt_every(epochs, harmful=False).rule_share == pytest.approx(0.9**5)


def test_the_share_of_the_rule_falls_with_the_epochs_as_far_as_instances_harm():
    assert learnt_every(1, harmful=True).rule_share == pytest.approx(0.9**5)
    harmless = 0.5**10
    a_round = harmless * 0.9 + (1 - harmless) * 0.9**10
    assert learnt_every(10, harmful=True).rule_share == pytest.approx(0.9**3 * a_round**2)


def test_the_share_of_the_rule_falls_by_a_round_if_the_epochs_begin_again():
    curve = learnt_every(10, harmful=True)
    before = curve.rule_share
    share = torch.full((NUM_KNOTS,), 1 / NUM_KNOTS, dtype=torch.float64)
    curve.learn(torch.ones(2, NUM_KNOTS).double(), torch.zeros(11).double(), share, torch.ones(NUM_KNOTS), 0)
    assert curve.rule_share == pytest.approx(0.9 * before)


def test_uniform_part_of_weights():
    scores = torch.tensor([0.0, 1.0, 3.0])
    torch.testing.assert_close(weights(scores, scores.mean(), 0.1), torch.tensor([0.1, 0.775, 2.125]))
