"""From an instance's history to its score: pure functions along the last dimension.

Every function takes torch tensors or NumPy arrays, accepts any leading dimensions (instances, trials
trained side by side) and returns the kind of array it was given.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from activebias._arrays import Array

# Makes exact ties deterministic: rounding must not decide whether an entry counts as an outlier.
TIE_TOLERANCE = 1e-6

# NumPy is slow along many short rows, and fast along their columns. Fewer than this many entries it adds up
# one by one either way; longer rows it adds up in parts, and the sums would differ by rounding.
SHORT = 8

# On a GPU a row of more entries than this is not sorted for its median: selecting the median is faster.
WIDE = 256


class Estimate(NamedTuple):
    """The number n, the mean p̄ and the variance of an instance's entries, without outliers."""

    count: Array
    mean: Array
    variance: Array


Statistic = Callable[[Estimate], Array]


def score(statistic: Statistic, values: Array, count: Array, *, remove_outliers: bool) -> Array:
    """Return the statistic of the first `count` entries of every row of `values`."""
    return statistic(estimate(values, count, remove_outliers=remove_outliers))


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
    width = values.shape[-1]
    if not isinstance(values, torch.Tensor) and count.min(initial=width) == width:
        return _estimate_of_full_rows(values, remove_outliers)
    xp = torch if isinstance(values, torch.Tensor) else np
    exists = xp.arange(width, device=values.device) < count[..., None]
    # All values are finite, also those that do not count. A product is faster than a choice.
    counts = xp.asarray(exists, dtype=values.dtype, device=values.device)
    number = xp.asarray(count, dtype=values.dtype, device=values.device)
    mean = (values * counts).sum(-1) / number.clip(1)
    if remove_outliers:
        distance = xp.where(exists, abs(values - mean[..., None]), float("inf"))
        # The median is the mean of the two middle values, which are equal where the number is odd.
        lower, upper = middle_two(distance, count)
        near = distance <= (lower + upper + TIE_TOLERANCE)[..., None]
        counts = xp.asarray(near, dtype=values.dtype, device=values.device)
        number = counts.sum(-1)
        mean = (values * counts).sum(-1) / number.clip(1)
    deviation = (values - mean[..., None]) * counts
    variance = (deviation * deviation).sum(-1) / (number - 1).clip(1)
    return Estimate(number, mean, variance)


def _estimate_of_full_rows(values: Array, remove_outliers: bool) -> Estimate:
    """Estimate where every entry counts, as in a full window: with half the calls."""
    width = values.shape[-1]
    if width < SHORT:
        values = np.asfortranarray(values)  # arrays computed from it have this layout too
    mean = values.sum(-1) / width
    deviation = values - mean[..., None]
    if not remove_outliers:
        number = np.full(values.shape[:-1], width, dtype=values.dtype)
    else:
        distance = abs(deviation)
        ordered = np.sort(distance, axis=-1)
        two_medians = ordered[..., (width - 1) // 2] + ordered[..., width // 2]
        counts = (distance <= (two_medians + TIE_TOLERANCE)[..., None]).astype(values.dtype)
        number = counts.sum(-1)
        mean = (values * counts).sum(-1) / number
        deviation = (values - mean[..., None]) * counts
    variance = (deviation * deviation).sum(-1) / np.maximum(number - 1, 1)
    return Estimate(number, mean, variance)


def middle_two(values: Array, count: Array) -> tuple[Array, Array]:
    """Return the two middle values of the `count` finite values of every row; the others must be inf.

    The two are equal where the number is odd.
    """
    if isinstance(values, torch.Tensor):
        # torch counts selecting on a GPU among the operations that vary between runs, and would raise. Only
        # the position among equal values varies, which is not used here.
        may_select = not torch.are_deterministic_algorithms_enabled()
        if values.is_cuda and values.shape[-1] > WIDE and may_select:
            return select_middle_two(values, count)
    xp = torch if isinstance(values, torch.Tensor) else np
    ordered = values.sort(-1).values if xp is torch else np.sort(values, axis=-1)
    flat, width = ordered.reshape(-1), values.shape[-1]
    first = xp.arange(flat.shape[0] // width, device=values.device).reshape(count.shape) * width
    return flat[first + (count - 1).clip(0) // 2], flat[first + count // 2]


def select_middle_two(values: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of `middle_two` without sorting: torch's median is the lower of the two.

    The upper one is the same where more than half of the values are not above it, else the next larger.
    """
    lower = torch.where(values.isinf(), float("nan"), values).nanmedian(-1).values
    above = values > lower.unsqueeze(-1)
    next_larger = torch.where(above, values, float("inf")).amin(-1)
    not_above = values.shape[-1] - above.sum(-1)
    return lower, torch.where(not_above > count // 2, lower, next_larger)


def difficulty(estimate: Estimate) -> Array:
    """1 - p̄."""
    return 1 - estimate.mean


def easiness(estimate: Estimate) -> Array:
    """p̄."""
    return estimate.mean


def prediction_variance(estimate: Estimate) -> Array:
    """Equation 1: sqrt(var + var² / (n - 1)), the standard deviation plus its confidence interval."""
    variance = estimate.variance
    return (variance + variance * variance / (estimate.count - 1).clip(1)) ** 0.5


def threshold_closeness(estimate: Estimate) -> Array:
    """p̄ (1 - p̄)."""
    return estimate.mean * (1 - estimate.mean)
