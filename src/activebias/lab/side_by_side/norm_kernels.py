"""Batch norm with leaky ReLU of K models at once, in Triton (GPU only): values (K, rows, C), channels last.

Written out in PyTorch it is a dozen passes over the activations, which is where a residual net's time goes;
here it is two forward and two backward.
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
    total, squares = tl.zeros((BC,), tl.float32), tl.zeros((BC,), tl.float32)
    first = split * ROWS_PER_SPLIT
    last = tl.minimum(first + ROWS_PER_SPLIT, ROWS)
    for start in range(first, last, BM):
        rows = start + tl.arange(0, BM)
        exists = (rows < last)[:, None] & (channel < C)[None, :]
        x = tl.load(values + (model * ROWS + rows[:, None]) * C + channel[None, :], mask=exists, other=0.0)
        x = x.to(tl.float32)
        total += tl.sum(x, 0)
        squares += tl.sum(x * x, 0)
    place = (split * K + model) * C + channel
    tl.store(sums + place, total, mask=channel < C)
    tl.store(sums + tl.num_programs(0) * K * C + place, squares, mask=channel < C)


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
    total, products = tl.zeros((BC,), tl.float32), tl.zeros((BC,), tl.float32)
    first = split * ROWS_PER_SPLIT
    last = tl.minimum(first + ROWS_PER_SPLIT, ROWS)
    for start in range(first, last, BM):
        rows = start + tl.arange(0, BM)
        exists = (rows < last)[:, None] & present[None, :]
        place = (model * ROWS + rows[:, None]) * C + channel[None, :]
        x = tl.load(values + place, mask=exists, other=0.0).to(tl.float32)
        dy = tl.load(gradients + place, mask=exists, other=0.0).to(tl.float32)
        g = _gradient_of_norm(x, dy, scales, shifts, SLOPE)
        total += tl.sum(g, 0)
        products += tl.sum(g * x, 0)
    place = (split * K + model) * C + channel
    tl.store(sums + place, total, mask=present)
    tl.store(sums + tl.num_programs(0) * K * C + place, products, mask=present)


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
