"""Which validation labels `auto` trusts, and its two validation losses."""

import math

import pytest
import torch

from activebias.evidence import NUM_KNOTS, Evidence
from activebias.trust import Trust, number_by_class

SHARE = torch.full((NUM_KNOTS,), 1 / NUM_KNOTS, dtype=torch.float64)


def learnt(aligned, num_classes=4, labels=None):
    """Return the trust after one round with such alignments."""
    labels = torch.zeros(num_classes + 1, dtype=torch.float64) if labels is None else labels
    aligned = torch.as_tensor(aligned, dtype=torch.float64)
    return Trust.none(num_classes).with_new(aligned, labels, SHARE, torch.ones(NUM_KNOTS))


def test_before_anything_is_known_both_losses_are_1_minus_p():
    loss = torch.tensor([0.1, 2.0, 30.0], requires_grad=True)
    first, second = Trust.none(4).judge(SHARE).factors(loss.detach(), torch.tensor([0, 1, 2]))
    (derivative,) = torch.autograd.grad((1 - loss.neg().exp()).sum(), loss)
    torch.testing.assert_close(first, derivative)
    assert torch.equal(first, second)


def test_without_harm_every_label_is_trusted_up_to_the_bound():
    bound = 1 + math.log(4)
    loss = torch.tensor([0.1, 2.0, bound - 0.01, bound + 0.01, 30.0, 0.1])
    judge = learnt(torch.ones(NUM_KNOTS)).judge(SHARE)
    found = judge.factors(loss, torch.tensor([0, 1, 2, 3, 0, -1]))
    # A label that the model is sure is wrong has no gradient; the last label does not count.
    assert found[0].tolist() == [1, 1, 1, 0, 0, 0]
    torch.testing.assert_close(found[1], loss.neg().exp() * torch.tensor([1, 1, 1, 1, 1, 0]))


def test_labels_like_harmful_instances_are_not_trusted():
    aligned = torch.ones(NUM_KNOTS)
    aligned[:5] = -1  # training on instances with p̄ below 0.3 raises the robust loss
    knots = learnt(aligned).at_knots(SHARE)
    assert knots[:4].max() < 0.01
    assert knots[7:].min() == pytest.approx(1)
    # The bound of a rare class is so high that a label with p = 0.02 is below it.
    labels = torch.tensor([1.0, 999, 999, 999, 0])
    prob = torch.tensor([0.02, 0.98])
    judge = learnt(aligned, labels=labels).judge(SHARE)
    trusted, robust = judge.factors(-prob.log(), torch.tensor([0, 0]))
    assert trusted[0] < 0.02
    assert trusted[1] == pytest.approx(1)
    torch.testing.assert_close(robust, prob)


def test_where_few_instances_harm_all_labels_keep_some_trust():
    aligned = torch.ones(NUM_KNOTS)
    aligned[0] = -3
    share = torch.full((NUM_KNOTS,), 0.99 / (NUM_KNOTS - 1), dtype=torch.float64)
    share[0] = 0.01
    assert learnt(aligned).at_knots(share)[0] == pytest.approx(0.99**10, abs=0.1)


def test_if_everything_harms_the_loss_is_1_minus_p():
    loss = torch.tensor([0.1, 2.0])
    first, second = learnt(-torch.ones(NUM_KNOTS)).judge(SHARE).factors(loss, torch.tensor([0, 1]))
    assert torch.equal(first, second)
    torch.testing.assert_close(second, loss.neg().exp())


def test_a_rare_class_has_a_higher_bound():
    labels = torch.tensor([997.0, 0, 0, 0, 500])  # the last have no class and say nothing of the classes
    bounds = learnt(torch.ones(NUM_KNOTS), labels=labels).bounds()
    torch.testing.assert_close(
        bounds[:2], 1 - torch.tensor([998 / 1001, 1 / 1001], dtype=torch.float64).log()
    )
    assert bounds[4] == pytest.approx(1 + math.log(4))


def test_models_side_by_side_have_the_losses_that_each_has_alone():
    generator = torch.Generator().manual_seed(0)
    aligned = torch.randn(3, NUM_KNOTS, generator=generator, dtype=torch.float64)
    aligned[2] = math.nan  # tells nothing
    labels = torch.randint(-1, 5, (3, 7, 2), generator=generator)
    loss = torch.rand(3, 7, 2, generator=generator) * 6
    number = number_by_class(labels.flatten(1), 4)
    share, known = SHARE.expand(3, -1), torch.ones(3, NUM_KNOTS)
    stack = Trust.none(4, 3).with_new(aligned, number, share, known)
    found = stack.judge(share).factors(loss, labels)
    assert found.shape == (2, 3, 7, 2)
    for lane in range(3):
        alone = learnt(aligned[lane], labels=number[lane])
        torch.testing.assert_close(found[:, lane], alone.judge(SHARE).factors(loss[lane], labels[lane]))
    assert torch.equal(found[0, 2], found[1, 2])
    assert not found[:, labels < 0].any()


def test_alignments_that_tell_nothing_change_nothing():
    before = Evidence.none().with_new(torch.ones(NUM_KNOTS, dtype=torch.float64), SHARE, SHARE)
    for useless in (0.0, math.nan, math.inf):
        after = before.with_new(torch.full((NUM_KNOTS,), useless, dtype=torch.float64), SHARE, SHARE)
        assert torch.equal(after.total, before.total)
        assert torch.equal(after.weight, before.weight)
