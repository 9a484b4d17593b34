"""Number, mean and variance of histories without their outliers, in Triton (GPU only)."""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["ROWS", "WIDTH"])
def estimate(values, count, results, ROWS, WIDTH, TOLERANCE, W: tl.constexpr, BR: tl.constexpr):
    """results (3, ROWS) = `statistics.estimate` of the first `count` entries of rows (ROWS, WIDTH).

    The lower median of the distances is found bit by bit: the bits of floats that are not negative have the
    order of the floats. It is exactly one of the distances, as if they were sorted.
    """
    row = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    column = tl.arange(0, W)
    number = tl.load(count + row, mask=row < ROWS, other=0).to(tl.int32)
    there = column[None, :] < number[:, None]
    x = tl.load(values + row[:, None] * WIDTH + column[None, :], mask=there, other=0.0)
    mean = tl.sum(x, 1) / tl.maximum(number, 1).to(tl.float32)
    distance = tl.where(there, tl.abs(x - mean[:, None]), float("inf"))
    bits = distance.to(tl.int32, bitcast=True)
    lower_bits = tl.zeros((BR,), tl.int32)
    for step in range(31):
        larger = lower_bits + (1 << (30 - step))
        below = tl.sum((bits < larger[:, None]).to(tl.int32), 1)
        lower_bits = tl.where(below <= (tl.maximum(number, 1) - 1) // 2, larger, lower_bits)
    lower = lower_bits.to(tl.float32, bitcast=True)
    not_above = tl.sum((bits <= lower_bits[:, None]).to(tl.int32), 1)
    next_larger = tl.min(tl.where(bits > lower_bits[:, None], distance, float("inf")), 1)
    upper = tl.where(not_above > number // 2, lower, next_larger)
    counts = distance <= (lower + upper + TOLERANCE)[:, None]
    kept = tl.sum(counts.to(tl.float32), 1)
    mean = tl.sum(tl.where(counts, x, 0.0), 1) / tl.maximum(kept, 1.0)
    deviation = tl.where(counts, x - mean[:, None], 0.0)
    variance = tl.sum(deviation * deviation, 1) / tl.maximum(kept - 1, 1.0)
    tl.store(results + row, kept, mask=row < ROWS)
    tl.store(results + ROWS + row, mean, mask=row < ROWS)
    tl.store(results + 2 * ROWS + row, variance, mask=row < ROWS)
