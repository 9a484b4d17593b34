"""From an instance's history to its score: pure functions along the last dimension.

Every function takes torch tensors or NumPy arrays, accepts any leading dimensions (instances, trials
trained side by side) and returns the kind of array it was given.
"""

from typing import NamedTuple

import numpy as np
import torch

from activebias._arrays import Array, arange_like, at_least, cast_like, middle_two, namespace, sort_last

# Makes exact ties deterministic: rounding must not decide whether an entry counts as an outlier.
TIE_TOLERANCE = 1e-6

# NumPy is slow along many short rows, and fast along their columns. Fewer than this many entries it adds up
# one by one either way; longer rows it adds up in parts, and the sums would differ by rounding.
SHORT = 8


class Estimate(NamedTuple):
    """What the entries that count say about p(y|x): their number n, mean p̄ and variance."""

    count: Array
    mean: Array
    variance: Array


def estimate(values: Array, count: Array, *, remove_outliers: bool = True) -> Estimate:
    """Estimate n, p̄ and var of the first `count` entries along the last dimension of `values`.

    With `remove_outliers`, entries whose distance to the mean of all entries is above twice the median
    distance are left out first; at least half of the entries always stay.

    >>> import torch
    >>> history = torch.tensor([0.10, 0.80, 0.90, 0.85, 0.95])
    >>> estimate(history, torch.tensor(5)).mean  # 0.10 is an outlier: the start of training is forgotten
    tensor(0.8750)
    >>> estimate(history, torch.tensor(5), remove_outliers=False).mean
    tensor(0.7200)
    """
    if not isinstance(values, torch.Tensor) and count.min(initial=values.shape[-1]) == values.shape[-1]:
        return _estimate_of_full_rows(values, remove_outliers)
    xp = namespace(values)
    counts = arange_like(values, values.shape[-1]) < count[..., None]
    number = cast_like(count, values)
    mean = xp.where(counts, values, 0).sum(-1) / at_least(number, 1)
    if remove_outliers:
        distance = xp.where(counts, abs(values - mean[..., None]), float("inf"))
        # The median is the mean of the two middle values, which are one where the number is odd.
        lower, upper = middle_two(distance, count)
        counts = distance <= (lower + upper + TIE_TOLERANCE)[..., None]
        number = cast_like(counts.sum(-1), values)
        mean = xp.where(counts, values, 0).sum(-1) / at_least(number, 1)
    deviation = xp.where(counts, values - mean[..., None], 0)
    variance = (deviation * deviation).sum(-1) / at_least(number - 1, 1)
    return Estimate(number, mean, variance)


def _estimate_of_full_rows(values: Array, remove_outliers: bool) -> Estimate:
    """Estimate where every entry counts, as in a filled window: with half the calls."""
    width = values.shape[-1]
    if width < SHORT:
        values = np.asfortranarray(values)  # what follows from it has the same layout
    mean = values.sum(-1) / width
    deviation = values - mean[..., None]
    if not remove_outliers:
        number = np.full(values.shape[:-1], width, dtype=values.dtype)
    else:
        distance = abs(deviation)
        ordered = sort_last(distance)
        two_medians = ordered[..., (width - 1) // 2] + ordered[..., width // 2]
        counts = distance <= (two_medians + TIE_TOLERANCE)[..., None]
        number = counts.sum(-1, dtype=values.dtype)
        mean = np.where(counts, values, 0).sum(-1) / number
        deviation = np.where(counts, values - mean[..., None], 0)
    variance = (deviation * deviation).sum(-1) / at_least(number - 1, 1)
    return Estimate(number, mean, variance)


def difficulty(estimate: Estimate) -> Array:
    """1 - p̄."""
    return 1 - estimate.mean


def easiness(estimate: Estimate) -> Array:
    """p̄."""
    return estimate.mean


def prediction_variance(estimate: Estimate) -> Array:
    """Equation 1: sqrt(var + var² / (n - 1)), the standard deviation plus its confidence interval."""
    variance = estimate.variance
    return (variance + variance * variance / at_least(estimate.count - 1, 1)) ** 0.5


def threshold_closeness(estimate: Estimate) -> Array:
    """p̄ (1 - p̄)."""
    return estimate.mean * (1 - estimate.mean)
