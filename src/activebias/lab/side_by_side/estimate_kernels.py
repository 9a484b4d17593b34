"""Number, mean and variance of histories without outliers, in Triton (GPU only): one program a history.

A program reads as many entries as its history has, so that the time follows the entries, not the longest one.
"""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def _distances(values, first, number, mean, at, BLOCK: tl.constexpr):
    """Return a block of entries, their distances to the mean, and which of them exist."""
    offset = at + tl.arange(0, BLOCK)
    exists = offset < number
    value = tl.load(values + first + offset, mask=exists, other=0.0)
    return value, tl.abs(value - mean), exists


@triton.jit
def _median_of_distances(values, first, number, mean, BLOCK: tl.constexpr):
    """Return the lower one of the two middle distances: bisection of its bits, which order as it does."""
    low, high = number * 0, number * 0 + 0x40000000  # 0 and 2: probabilities are at most 1 apart
    for _step in range(31):
        middle = low + (high - low) // 2
        below = tl.zeros((BLOCK,), tl.int32)
        for at in range(0, number, BLOCK):
            _value, distance, exists = _distances(values, first, number, mean, at, BLOCK)
            below += (exists & (distance.to(tl.int32, bitcast=True) <= middle)).to(tl.int32)
        enough = tl.sum(below, 0) > (number - 1) // 2
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return low.to(tl.float32, bitcast=True)


@triton.jit
def estimate(values, firsts, numbers, counts, means, variances, TOLERANCE, BLOCK: tl.constexpr):
    """Leave out entries above twice the median distance to the mean; estimate from those that stay."""
    row = tl.program_id(0)
    first, number = tl.load(firsts + row), tl.load(numbers + row).to(tl.int32)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, number, BLOCK):
        value, _distance, _exists = _distances(values, first, number, 0.0, at, BLOCK)
        total += value
    mean = tl.sum(total, 0) / number
    lower = _median_of_distances(values, first, number, mean, BLOCK)
    # The upper one of the two is the same, unless exactly half of the distances are not above it.
    below, above = tl.zeros((BLOCK,), tl.int32), tl.full((BLOCK,), 2.0, tl.float32)
    for at in range(0, number, BLOCK):
        _value, distance, exists = _distances(values, first, number, mean, at, BLOCK)
        below += (exists & (distance <= lower)).to(tl.int32)
        above = tl.minimum(above, tl.where(exists & (distance > lower), distance, 2.0))
    upper = tl.where(tl.sum(below, 0) > number // 2, lower, tl.min(above, 0))
    limit = lower + upper + TOLERANCE
    stay, total = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for at in range(0, number, BLOCK):
        value, distance, exists = _distances(values, first, number, mean, at, BLOCK)
        stays = exists & (distance <= limit)
        stay += tl.where(stays, 1.0, 0.0)
        total += tl.where(stays, value, 0.0)
    count = tl.sum(stay, 0)
    inner_mean = tl.sum(total, 0) / count
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, number, BLOCK):
        value, distance, exists = _distances(values, first, number, mean, at, BLOCK)
        deviation = tl.where(exists & (distance <= limit), value - inner_mean, 0.0)
        total += deviation * deviation
    tl.store(counts + row, count)
    tl.store(means + row, inner_mean)
    tl.store(variances + row, tl.sum(total, 0) / tl.maximum(count - 1, 1.0))
