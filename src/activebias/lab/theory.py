"""Numerical checks of the paper's theory for binary logistic regression.

Labels are -1 or 1 and `p_i = 1 / (1 + exp(-y_i wᵀx_i))`. The loss is `-Σ v_i log p_i + (c / s0) ‖w‖²` (the
paper prints the last sign as minus; its Hessian belongs to plus). All numbers are float64.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

PRIOR_PRECISION = 0.5
# Draws of w from the posterior.
NUM_DRAWS = 20_000
# Of the run of SGD.
BURN_IN, BATCH_SIZE, LEARNING_RATE = 20, 10, 0.1


@dataclass(frozen=True)
class Problem:
    """Instances (N, D) with labels -1 or 1 and the precision 2c / s0 of the prior."""

    features: Tensor
    labels: Tensor
    prior_precision: float


@dataclass(frozen=True)
class HessianCheck:
    """Equation 3: `S_N⁻¹ = Σ v_i p_i (1 - p_i) x_i x_iᵀ + (2c / s0) I` against autograd (relative error)."""

    relative_error: float
    weighted_relative_error: float


@dataclass(frozen=True)
class VarianceCheck:
    """Equation 4: `Var(p_i) ≈ g_iᵀ S_N g_i` against draws of w from the Gaussian posterior.

    The approximation is of first order in the width of the posterior: the error decreases as N grows.
    """

    num_instances: int
    num_draws: int
    median_relative_error: float
    largest_relative_error: float
    rank_correlation: float


@dataclass(frozen=True)
class TotalVarianceCheck:
    """Equation 5: with closeness weights `Σ g_iᵀ S_N g_i = N_T · dim(w)`.

    The equation is exact (`exact_relative_error`) if S_N is the inverse Hessian of the weighted loss, with
    `v_i = p_i (1 - p_i) / N_T`, the same p in v, in the g_i and in the Hessian, constant v, no prior and
    ε = 0. N_T is arbitrary: it only scales. Each of the other three errors drops one condition: all weights
    1, ε = mean (the weights of `ActiveBias`), or a p̄ that differs slightly from p.
    """

    expected: float
    exact_relative_error: float
    unweighted_relative_error: float
    smoothed_relative_error: float
    stale_relative_error: float


@dataclass(frozen=True)
class HistoryCheck:
    """Late in SGD the variance of p_i over its visits ranks like `g_iᵀ S_N g_i` (Spearman's correlation)."""

    num_epochs: int
    rank_correlation: float


@dataclass(frozen=True)
class TheoryFigures:
    """All results of `check_all`; the variance for growing numbers of instances."""

    hessian: HessianCheck
    variance: tuple[VarianceCheck, ...]
    total_variance: TotalVarianceCheck
    history: HistoryCheck


def check_all(seed: int = 0) -> TheoryFigures:
    """Run every check on artificial problems drawn from the seed; takes a few seconds."""
    generator = torch.Generator().manual_seed(seed)
    problem = draw_problem(generator, num_instances=400)
    variance = tuple(
        check_variance(draw_problem(generator, num_instances=number), generator) for number in (100, 1000)
    )
    return TheoryFigures(
        hessian=check_hessian(problem, generator),
        variance=variance,
        total_variance=check_total_variance(problem, generator),
        history=check_history(problem, generator),
    )


def draw_problem(generator: torch.Generator, *, num_instances: int, num_features: int = 5) -> Problem:
    """Draw correlated Gaussian features, a constant feature, and labels from a logistic model.

    >>> draw_problem(torch.Generator().manual_seed(0), num_instances=7).features.shape
    torch.Size([7, 5])
    """
    if num_instances <= num_features or num_features < 2:
        raise ValueError(
            "Expected `num_features` to be at least 2 and `num_instances` to be larger, "
            f"but got {num_features} and {num_instances}."
        )
    spread = torch.eye(num_features - 1, dtype=torch.float64) + 0.3 * _normal(
        (num_features - 1, num_features - 1), generator
    )
    features = _normal((num_instances, num_features - 1), generator) @ spread
    features = torch.cat([features, torch.ones(num_instances, 1, dtype=torch.float64)], dim=1)
    truth = _normal((num_features,), generator)
    chance = torch.rand(num_instances, dtype=torch.float64, generator=generator)
    labels = torch.where(chance < torch.sigmoid(features @ truth), 1.0, -1.0).to(torch.float64)
    return Problem(features, labels, PRIOR_PRECISION)


def probabilities(problem: Problem, weight: Tensor) -> Tensor:
    """Return `p(y_i|x_i, w)`, (..., N) for w (..., D)."""
    return torch.sigmoid(problem.labels * (weight @ problem.features.T))


def loss(problem: Problem, weight: Tensor, emphasis: Tensor) -> Tensor:
    """Return `-Σ v_i log p_i + ½ (2c / s0) ‖w‖²`."""
    logarithms = torch.nn.functional.logsigmoid(problem.labels * (problem.features @ weight))
    return -(emphasis * logarithms).sum() + 0.5 * problem.prior_precision * weight.square().sum()


def posterior_precision(
    problem: Problem, weight: Tensor, emphasis: Tensor, *, prior_precision: float | None = None
) -> Tensor:
    """Return `S_N⁻¹ = Σ v_i p_i (1 - p_i) x_i x_iᵀ + (2c / s0) I` (equation 3)."""
    prob = probabilities(problem, weight)
    curvature = emphasis * prob * (1 - prob)
    prior = problem.prior_precision if prior_precision is None else prior_precision
    identity = torch.eye(problem.features.shape[1], dtype=torch.float64)
    return problem.features.T @ (curvature[:, None] * problem.features) + prior * identity


def predicted_variance(problem: Problem, weight: Tensor, precision: Tensor) -> Tensor:
    """Return `g_iᵀ S_N g_i` of every instance, `g_i = p_i (1 - p_i) x_i` (equation 4)."""
    prob = probabilities(problem, weight)
    # The sign of g_i is the sign of the label, which the quadratic form ignores.
    gradients = (prob * (1 - prob))[:, None] * problem.features
    solved: Tensor = torch.linalg.solve(precision, gradients.T)
    return (gradients * solved.T).sum(dim=1)


def fit(problem: Problem, *, num_iterations: int = 100) -> Tensor:
    """Return the maximum a posteriori weights, by Newton's method.

    >>> problem = draw_problem(torch.Generator().manual_seed(0), num_instances=200)
    >>> weight = fit(problem).requires_grad_()
    >>> (slope,) = torch.autograd.grad(loss(problem, weight, torch.ones(200)), weight)
    >>> bool(slope.abs().max() < 1e-9)
    True
    """
    ones = torch.ones_like(problem.labels)
    weight = torch.zeros(problem.features.shape[1], dtype=torch.float64)
    for _ in range(num_iterations):
        misses = (1 - probabilities(problem, weight)) * problem.labels
        slope = -problem.features.T @ misses + problem.prior_precision * weight
        step: Tensor = torch.linalg.solve(posterior_precision(problem, weight, ones), slope)
        weight = weight - step
        if float(step.abs().max()) < 1e-13:
            return weight
    raise RuntimeError(
        f"Newton's method did not converge within {num_iterations} iterations; "
        "give the problem a larger `prior_precision`."
    )


def check_hessian(problem: Problem, generator: torch.Generator) -> HessianCheck:
    """Compare equation 3 with autograd's Hessian at random weights, all v equal to 1 and random v."""
    weight = _normal((problem.features.shape[1],), generator)
    errors = []
    for emphasis in (
        torch.ones_like(problem.labels),
        2 * torch.rand(len(problem.labels), dtype=torch.float64, generator=generator),
    ):
        automatic = _hessian(problem, weight, emphasis)
        formula = posterior_precision(problem, weight, emphasis)
        errors.append(float((automatic - formula).abs().max() / formula.abs().max()))
    return HessianCheck(*errors)


def check_variance(problem: Problem, generator: torch.Generator) -> VarianceCheck:
    """Compare `g_iᵀ S_N g_i` with the variance of p_i over draws from N(w_N, S_N)."""
    center = fit(problem)
    precision = posterior_precision(problem, center, torch.ones_like(problem.labels))
    # With S_N⁻¹ = L Lᵀ, w = w_N + L⁻ᵀ z has covariance S_N for a standard normal z.
    factor = torch.linalg.cholesky(precision)
    noise = _normal((len(center), NUM_DRAWS), generator)
    draws = center + torch.linalg.solve_triangular(factor.T, noise, upper=True).T
    # In parts, because all probabilities at once would take NUM_DRAWS × N numbers.
    measured = torch.cat(
        [probabilities(_part(problem, part), draws).var(dim=0) for part in _parts(len(problem.labels))]
    )
    predicted = predicted_variance(problem, center, precision)
    errors = (predicted / measured - 1).abs()
    return VarianceCheck(
        num_instances=len(problem.labels),
        num_draws=NUM_DRAWS,
        median_relative_error=float(errors.median()),
        largest_relative_error=float(errors.max()),
        rank_correlation=rank_correlation(predicted, measured),
    )


def check_total_variance(problem: Problem, generator: torch.Generator) -> TotalVarianceCheck:
    """Check equation 5 at the fitted weights, and its error without each condition."""
    weight = fit(problem)
    prob = probabilities(problem, weight)
    closeness = prob * (1 - prob)
    mean_closeness = closeness.mean()
    expected = float(mean_closeness) * len(weight)
    # A history mean p̄ that is off by about a tenth on the logit scale.
    stale = torch.sigmoid(torch.logit(prob) + 0.1 * _normal(prob.shape, generator))
    stale_closeness = stale * (1 - stale)

    def relative_error(emphasis: Tensor) -> float:
        precision = posterior_precision(problem, weight, emphasis, prior_precision=0.0)
        return abs(float(predicted_variance(problem, weight, precision).sum()) / expected - 1)

    return TotalVarianceCheck(
        expected=expected,
        exact_relative_error=relative_error(closeness / mean_closeness),
        unweighted_relative_error=relative_error(torch.ones_like(prob)),
        smoothed_relative_error=relative_error((closeness + mean_closeness) / (2 * mean_closeness)),
        stale_relative_error=relative_error(stale_closeness / stale_closeness.mean()),
    )


def check_history(problem: Problem, generator: torch.Generator, *, num_epochs: int = 200) -> HistoryCheck:
    """Run SGD without replacement, record p_i at every visit after the burn-in, and compare the ranks."""
    num_instances = len(problem.labels)
    weight = torch.zeros(problem.features.shape[1], dtype=torch.float64)
    history = torch.empty(num_epochs, num_instances, dtype=torch.float64)
    prior = problem.prior_precision / num_instances
    for epoch in range(-BURN_IN, num_epochs):
        for batch in torch.split(torch.randperm(num_instances, generator=generator), BATCH_SIZE):
            features, labels = problem.features[batch], problem.labels[batch]
            prob = torch.sigmoid(labels * (features @ weight))
            if epoch >= 0:
                history[epoch, batch] = prob
            slope = -((1 - prob) * labels) @ features / len(batch) + prior * weight
            weight = weight - LEARNING_RATE * slope
    center = fit(problem)
    precision = posterior_precision(problem, center, torch.ones_like(problem.labels))
    correlation = rank_correlation(history.var(dim=0), predicted_variance(problem, center, precision))
    return HistoryCheck(num_epochs=num_epochs, rank_correlation=correlation)


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Return Spearman's correlation of two vectors without ties.

    >>> round(rank_correlation(torch.tensor([1.0, 5.0, 2.0]), torch.tensor([0.1, 0.2, 0.3])), 6)
    0.5
    """
    ranks = torch.stack([values.argsort().argsort().to(torch.float64) for values in (first, second)])
    return float(torch.corrcoef(ranks)[0, 1])


def _hessian(problem: Problem, weight: Tensor, emphasis: Tensor) -> Tensor:
    point = weight.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(problem, point, emphasis), point, create_graph=True)
    rows = [torch.autograd.grad(entry, point, retain_graph=True)[0] for entry in slope]
    return torch.stack(rows)


def _parts(number: int, size: int = 100) -> list[slice]:
    return [slice(size * part, size * (part + 1)) for part in range(math.ceil(number / size))]


def _part(problem: Problem, part: slice) -> Problem:
    return Problem(problem.features[part], problem.labels[part], problem.prior_precision)


def _normal(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)
