"""Batch norm with leaky ReLU of K models at once, in Triton (GPU only): values (K, rows, C), channels last.

Written out in PyTorch it is a dozen passes over the activations, which is where a residual net's time goes;
here it is two forward and two backward. What lies between two passes (moments, scale, shift, …) is a few
numbers a model and channel: one small kernel each time instead of a dozen launches.
"""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def moments(values, sums, ROWS, ROWS_PER_SPLIT, K, C: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr):
    """sums[0], sums[1] (split, K, C) = Σ x, Σ x² over the split's rows."""
    split, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    channel = tl.arange(0, BC)
    # One sum for every row of the block, added up at the end: threads need not wait for each other before.
    total, squares = tl.zeros((BM, BC), tl.float32), tl.zeros((BM, BC), tl.float32)
    first = split * ROWS_PER_SPLIT
    last = tl.minimum(first + ROWS_PER_SPLIT, ROWS)
    for start in range(first, last, BM):
        rows = start + tl.arange(0, BM)
        exists = (rows < last)[:, None] & (channel < C)[None, :]
        x = tl.load(values + (model * ROWS + rows[:, None]) * C + channel[None, :], mask=exists, other=0.0)
        x = x.to(tl.float32)
        total += x
        squares += x * x
    place = (split * K + model) * C + channel
    tl.store(sums + place, tl.sum(total, 0), mask=channel < C)
    tl.store(sums + tl.num_programs(0) * K * C + place, tl.sum(squares, 0), mask=channel < C)


@triton.jit
def _sum_of_splits(sums, model, channel, K, SPLITS, C: tl.constexpr, BS: tl.constexpr):
    """Return both sums (C,) of a model, over its splits."""
    split = tl.arange(0, BS)[:, None]
    place = (split * K + model) * C + channel[None, :]
    exists = (split < SPLITS) & (channel < C)[None, :]
    first = tl.load(sums + place, mask=exists, other=0.0)
    second = tl.load(sums + SPLITS * K * C + place, mask=exists, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def scale_and_shift(
    sums, weight, bias, results, NUMBER, EPS, K, SPLITS, C: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr
):
    """results (4, K, C) = mean, variance, and the scale and shift that normalise by them."""
    model, channel = tl.program_id(0), tl.arange(0, BC)
    present, place = channel < C, model * C + channel
    total, squares = _sum_of_splits(sums, model, channel, K, SPLITS, C, BS)
    mean = total / NUMBER
    variance = tl.maximum(squares / NUMBER - mean * mean, 0.0)
    scale = tl.load(weight + place, mask=present, other=0.0) / tl.sqrt(variance + EPS)
    tl.store(results + place, mean, mask=present)
    tl.store(results + K * C + place, variance, mask=present)
    tl.store(results + 2 * K * C + place, scale, mask=present)
    shift = tl.load(bias + place, mask=present, other=0.0) - mean * scale
    tl.store(results + 3 * K * C + place, shift, mask=present)


@triton.jit
def normalise(values, scale, shift, outputs, SIZE, SLOPE, C: tl.constexpr, BLOCK: tl.constexpr):
    """outputs = leaky(values · scale + shift), SIZE values a model."""
    model = tl.program_id(1).to(tl.int64)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    parameter = model * C + offset % C
    x = tl.load(values + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    z = x * tl.load(scale + parameter, mask=exists) + tl.load(shift + parameter, mask=exists)
    z = tl.where(z > 0, z, z * SLOPE)
    tl.store(outputs + model * SIZE + offset, z.to(outputs.dtype.element_ty), mask=exists)


@triton.jit
def _gradient_of_norm(x, dy, scale, shift, SLOPE):
    z = x * scale + shift
    return tl.where(z > 0, dy, dy * SLOPE)


@triton.jit
def gradient_sums(
    values, gradients, scale, shift, sums, ROWS, ROWS_PER_SPLIT, K, SLOPE,
    C: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """sums[0], sums[1] (split, K, C) = Σ g, Σ g·x, where g is the gradient behind the leaky ReLU."""
    split, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    channel = tl.arange(0, BC)
    present = channel < C
    scales = tl.load(scale + model * C + channel, mask=present, other=0.0)[None, :]
    shifts = tl.load(shift + model * C + channel, mask=present, other=0.0)[None, :]
    total, products = tl.zeros((BM, BC), tl.float32), tl.zeros((BM, BC), tl.float32)
    first = split * ROWS_PER_SPLIT
    last = tl.minimum(first + ROWS_PER_SPLIT, ROWS)
    for start in range(first, last, BM):
        rows = start + tl.arange(0, BM)
        exists = (rows < last)[:, None] & present[None, :]
        place = (model * ROWS + rows[:, None]) * C + channel[None, :]
        x = tl.load(values + place, mask=exists, other=0.0).to(tl.float32)
        dy = tl.load(gradients + place, mask=exists, other=0.0).to(tl.float32)
        g = _gradient_of_norm(x, dy, scales, shifts, SLOPE)
        total += g
        products += g * x
    place = (split * K + model) * C + channel
    tl.store(sums + place, tl.sum(total, 0), mask=present)
    tl.store(sums + tl.num_programs(0) * K * C + place, tl.sum(products, 0), mask=present)


@triton.jit
def gradient_of_parameters(
    sums, mean, variance, scale, results, NUMBER, EPS, K, SPLITS,
    C: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """results (4, K, C) = the gradients of weight and bias, and what makes the gradient of the values.

    dx = scale · (g - mean(g) - normalised(x) · mean(g · normalised(x))): what is affine in x is gathered.
    """
    model, channel = tl.program_id(0), tl.arange(0, BC)
    present, place = channel < C, model * C + channel
    of_bias, products = _sum_of_splits(sums, model, channel, K, SPLITS, C, BS)
    means = tl.load(mean + place, mask=present, other=0.0)
    inverse = 1 / tl.sqrt(tl.load(variance + place, mask=present, other=0.0) + EPS)
    scales = tl.load(scale + place, mask=present, other=0.0)
    of_weight = (products - means * of_bias) * inverse  # Σ g · (x - mean) / deviation
    by_value = -scales * inverse * of_weight / NUMBER
    tl.store(results + place, of_weight, mask=present)
    tl.store(results + K * C + place, of_bias, mask=present)
    tl.store(results + 2 * K * C + place, by_value, mask=present)
    tl.store(results + 3 * K * C + place, -scales * of_bias / NUMBER - by_value * means, mask=present)


@triton.jit
def gradient_of_values(
    values, gradients, scale, shift, by_value, constant, outputs, SIZE, SLOPE,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """outputs = scale · g + by_value · x + constant: what the mean and the variance add is affine in x."""
    model = tl.program_id(1).to(tl.int64)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    parameter = model * C + offset % C
    x = tl.load(values + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    dy = tl.load(gradients + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    scales = tl.load(scale + parameter, mask=exists)
    g = _gradient_of_norm(x, dy, scales, tl.load(shift + parameter, mask=exists), SLOPE)
    dx = (
        scales * g
        + tl.load(by_value + parameter, mask=exists) * x
        + tl.load(constant + parameter, mask=exists)
    )
    tl.store(outputs + model * SIZE + offset, dx.to(outputs.dtype.element_ty), mask=exists)
