"""The paper's statements on logistic regression hold in numbers, each under its own conditions."""

import dataclasses

import pytest
import torch
from scipy.stats import spearmanr

from activebias.lab import theory


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module", params=[0, 1])
def figures(request):
    return theory.check_all(request.param)


def test_the_hessian_is_autograds(figures):
    assert figures.hessian.relative_error < 1e-13
    assert figures.hessian.weighted_relative_error < 1e-13


def test_the_variance_approximation_gets_better_with_more_instances(figures):
    few, many = figures.variance
    assert (few.num_instances, many.num_instances) == (100, 1000)
    assert many.median_relative_error < 0.06
    assert many.median_relative_error < few.median_relative_error
    assert many.rank_correlation > 0.999


def test_the_total_variance_is_exact_only_under_its_conditions(figures):
    check = figures.total_variance
    assert check.exact_relative_error < 1e-12
    assert check.stale_relative_error < 0.01
    for other in ("unweighted", "smoothed", "stale"):
        assert getattr(check, f"{other}_relative_error") > 1e-6


def test_late_history_variance_ranks_like_the_prediction(figures):
    assert figures.history.rank_correlation > 0.85


def test_the_total_variance_does_not_depend_on_the_scale_of_the_weights():
    problem = theory.draw_problem(generator(), num_instances=60)
    weight = theory.fit(problem)
    prob = theory.probabilities(problem, weight)
    for normaliser in (0.01, 1.0, 30.0):
        emphasis = prob * (1 - prob) / normaliser
        precision = theory.posterior_precision(problem, weight, emphasis, prior_precision=0.0)
        total = theory.predicted_variance(problem, weight, precision).sum()
        assert float(total) == pytest.approx(normaliser * 5, rel=1e-12)


def test_the_total_variance_against_an_explicit_sum():
    problem = theory.draw_problem(generator(3), num_instances=20, num_features=3)
    weight = theory.fit(problem)
    precision = torch.zeros(3, 3, dtype=torch.float64)
    gradients = []
    for x, y in zip(problem.features, problem.labels, strict=True):
        p = 1 / (1 + torch.exp(-y * weight @ x))
        precision += p * (1 - p) * torch.outer(x, x)
        gradients.append(p * (1 - p) * x)
    precision += problem.prior_precision * torch.eye(3, dtype=torch.float64)
    expected = torch.stack([g @ torch.linalg.inv(precision) @ g for g in gradients])
    ones = torch.ones(20, dtype=torch.float64)
    got = theory.predicted_variance(problem, weight, theory.posterior_precision(problem, weight, ones))
    torch.testing.assert_close(got, expected)


def test_the_variance_check_sees_a_wrong_posterior():
    # The check has to be able to fail: with a prior that the posterior does not contain it does.
    problem = theory.draw_problem(generator(), num_instances=300)
    center = theory.fit(problem)
    ones = torch.ones_like(problem.labels)
    right = theory.posterior_precision(problem, center, ones)
    wrong = theory.posterior_precision(problem, center, ones, prior_precision=50.0)
    ratio = theory.predicted_variance(problem, center, wrong) / theory.predicted_variance(
        problem, center, right
    )
    assert float(ratio.median()) < 0.7


def test_rank_correlation_is_scipys():
    first, second = torch.randn(2, 50, generator=generator())
    expected = spearmanr(first.numpy(), second.numpy()).statistic
    assert theory.rank_correlation(first, second) == pytest.approx(expected, abs=1e-12)


def test_same_seed_same_figures_and_the_global_state_stays():
    before = torch.get_rng_state()
    problem = theory.draw_problem(generator(), num_instances=50)
    first, second = (theory.check_history(problem, generator(1), num_epochs=5) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


def test_figures_are_frozen_and_plain_numbers(figures):
    values = dataclasses.asdict(figures)
    assert isinstance(values["hessian"]["relative_error"], float)
    with pytest.raises(dataclasses.FrozenInstanceError):
        figures.hessian = None


def test_wrong_inputs_are_refused():
    with pytest.raises(ValueError, match="`num_instances` to be larger, but got 5 and 4"):
        theory.draw_problem(generator(), num_instances=4)
    problem = theory.draw_problem(generator(), num_instances=50)
    with pytest.raises(RuntimeError, match="did not converge within 1 iterations"):
        theory.fit(problem, num_iterations=1)
