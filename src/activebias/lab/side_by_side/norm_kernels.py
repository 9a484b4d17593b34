"""Batch norm with leaky ReLU of K models at once, in Triton (GPU only): values (K, rows, C), channels last.

The sums over all rows come from the convolution before (`patch_kernels`). Moments, scale and shift are a few
numbers per model and channel, which a small kernel computes from the sums. Over the values, only one pass
forward and one backward remain.
"""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def _total(sums, model, channel, K, PROGRAMS, PARTS: tl.constexpr, C: tl.constexpr, BS: tl.constexpr):
    """Return both sums (C,) of a model, from the sums (2, programs, K, parts, C) of a convolution."""
    split = tl.arange(0, BS)[:, None]
    place = ((split // PARTS * K + model) * PARTS + split % PARTS) * C + channel[None, :]
    exists = (split < PROGRAMS * PARTS) & (channel < C)[None, :]
    first = tl.load(sums + place, mask=exists, other=0.0)
    second = tl.load(sums + PROGRAMS * K * PARTS * C + place, mask=exists, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def moments(
    sums, weight, bias, running_mean, running_variance, num_batches, results, NUMBER, EPS, MOMENTUM,
    K, PROGRAMS, PARTS: tl.constexpr, C: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """results (4, K, C) = mean, variance, scale and shift; updates the running statistics.

    As in torch, the variance of the running statistics is divided by NUMBER - 1.
    """
    model, channel = tl.program_id(0), tl.arange(0, C)
    place = model * C + channel
    total, squares = _total(sums, model, channel, K, PROGRAMS, PARTS, C, BS)
    mean = total / NUMBER
    variance = tl.maximum(squares / NUMBER - mean * mean, 0.0)
    scale = tl.load(weight + place) / tl.sqrt(variance + EPS)
    tl.store(results + place, mean)
    tl.store(results + K * C + place, variance)
    tl.store(results + 2 * K * C + place, scale)
    tl.store(results + 3 * K * C + place, tl.load(bias + place) - mean * scale)
    known = tl.load(running_mean + place)
    tl.store(running_mean + place, known + MOMENTUM * (mean - known))
    known = tl.load(running_variance + place)
    tl.store(running_variance + place, known + MOMENTUM * (variance * (NUMBER / (NUMBER - 1.0)) - known))
    tl.store(num_batches + model, tl.load(num_batches + model) + 1)


@triton.jit
def normalise(values, scale, shift, outputs, SIZE, SLOPE, C: tl.constexpr, BLOCK: tl.constexpr):
    """outputs = leaky(values · scale + shift), SIZE values per model."""
    model = tl.program_id(1).to(tl.int64)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    parameter = model * C + offset % C
    x = tl.load(values + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    z = x * tl.load(scale + parameter, mask=exists) + tl.load(shift + parameter, mask=exists)
    z = tl.where(z > 0, z, z * SLOPE)
    tl.store(outputs + model * SIZE + offset, z.to(outputs.dtype.element_ty), mask=exists)


@triton.jit
def pool(values, scale, shift, outputs, SLOPE, B, PIXELS: tl.constexpr, C: tl.constexpr):
    """outputs (K, B, C) = the mean of leaky(values · scale + shift) over an image's pixels."""
    image, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    pixel, channel = tl.arange(0, PIXELS), tl.arange(0, C)
    number = model * B + image
    place = (number * PIXELS + pixel[:, None]) * C + channel[None, :]
    scales, shifts = tl.load(scale + model * C + channel), tl.load(shift + model * C + channel)
    z = tl.load(values + place).to(tl.float32) * scales[None, :] + shifts[None, :]
    mean = tl.sum(tl.where(z > 0, z, z * SLOPE), 0) / PIXELS
    tl.store(outputs + number * C + channel, mean.to(outputs.dtype.element_ty))


@triton.jit
def pool_gradient(
    values, of_pooled, scale, shift, outputs, sums, SLOPE, B, IMAGES_PER_PROGRAM, K,
    PIXELS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """outputs = g, the gradient at the leaky ReLU, from the gradient of `pool`; sums = Σ g, Σ g · values."""
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    pixel, channel = tl.arange(0, PIXELS), tl.arange(0, C)
    scales = tl.load(scale + model * C + channel)[None, :]
    shifts = tl.load(shift + model * C + channel)[None, :]
    total, products = tl.zeros((PIXELS, C), tl.float32), tl.zeros((PIXELS, C), tl.float32)
    first = program * IMAGES_PER_PROGRAM
    for image in range(first, tl.minimum(first + IMAGES_PER_PROGRAM, B)):
        number = model * B + image
        place = (number * PIXELS + pixel[:, None]) * C + channel[None, :]
        x = tl.load(values + place).to(tl.float32)
        slope = tl.load(of_pooled + number * C + channel).to(tl.float32)[None, :] / PIXELS
        stored = tl.where(x * scales + shifts > 0, slope, slope * SLOPE).to(outputs.dtype.element_ty)
        tl.store(outputs + place, stored)
        total += stored.to(tl.float32)
        products += stored.to(tl.float32) * x
    place = (program * K + model) * C + channel
    tl.store(sums + place, tl.sum(total, 0))
    tl.store(sums + tl.num_programs(0) * K * C + place, tl.sum(products, 0))


@triton.jit
def gradient_of_parameters(
    sums, mean, variance, scale, results, NUMBER, EPS, K, PROGRAMS,
    PARTS: tl.constexpr, C: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """results (4, K, C) = the gradients of weight and bias, and two coefficients for the gradient of values.

    dx = scale · (g - mean(g) - normalised(x) · mean(g · normalised(x))): the terms affine in x are collected.
    """
    model, channel = tl.program_id(0), tl.arange(0, C)
    place = model * C + channel
    of_bias, products = _total(sums, model, channel, K, PROGRAMS, PARTS, C, BS)
    means = tl.load(mean + place)
    inverse = 1 / tl.sqrt(tl.load(variance + place) + EPS)
    scales = tl.load(scale + place)
    of_weight = (products - means * of_bias) * inverse  # Σ g · (x - mean) / deviation
    by_value = -scales * inverse * of_weight / NUMBER
    tl.store(results + place, of_weight)
    tl.store(results + K * C + place, of_bias)
    tl.store(results + 2 * K * C + place, by_value)
    tl.store(results + 3 * K * C + place, -scales * of_bias / NUMBER - by_value * means)


@triton.jit
def gradient_of_values(
    values, gradients, shortcut, scale, by_value, constant, outputs, SIZE,
    W: tl.constexpr, C: tl.constexpr, SHORTCUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """outputs = scale · g + by_value · x + constant (the terms of mean and variance) + shortcut's gradient.

    SHORTCUT: "none"; "same"; "halved": the gradient of means of 2×2 pixels, with C / 2 more channels on each
    side.
    """
    model = tl.program_id(1).to(tl.int64)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    parameter = model * C + offset % C
    x = tl.load(values + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    g = tl.load(gradients + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    result = (
        tl.load(scale + parameter, mask=exists) * g
        + tl.load(by_value + parameter, mask=exists) * x
        + tl.load(constant + parameter, mask=exists)
    )
    if SHORTCUT == "same":
        result += tl.load(shortcut + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    if SHORTCUT == "halved":
        pixel, channel = offset // C, offset % C
        # The rows of all images are one sequence: two of them share a row of the smaller images.
        smaller = pixel // W // 2 * (W // 2) + pixel % W // 2
        place = model * (SIZE // 2) + smaller * (2 * C) + C // 2 + channel
        result += 0.25 * tl.load(shortcut + place, mask=exists, other=0.0).to(tl.float32)
    tl.store(outputs + model * SIZE + offset, result.to(outputs.dtype.element_ty), mask=exists)
