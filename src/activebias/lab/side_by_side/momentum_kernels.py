"""A step of SGD with momentum for weights that have a half-precision copy, in Triton (GPU only)."""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def step(
    parameter,
    gradient,
    momentum,
    half,
    rate,
    MOMENTUM,
    DECAY,
    SIZE,
    SIZE_OF_MODEL,
    RATE_BY_MODEL: tl.constexpr,
    LARGE_MODELS: tl.constexpr,
    HAS_HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """momentum = MOMENTUM · momentum + gradient + DECAY · parameter; parameter -= rate · momentum.

    `half` receives the new parameter too. Every value is read and written once. `rate` is one number, or with
    RATE_BY_MODEL one number per model, whose parameters are SIZE_OF_MODEL values in a row (LARGE_MODELS: at
    least BLOCK).
    """
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    value = tl.load(parameter + offset, mask=exists)
    slope = tl.load(gradient + offset, mask=exists).to(tl.float32) + DECAY * value
    moved = MOMENTUM * tl.load(momentum + offset, mask=exists) + slope
    if RATE_BY_MODEL:
        # A division per value would take as long as all the rest: a block has values of at most two models.
        first = tl.program_id(0).to(tl.int64) * BLOCK // SIZE_OF_MODEL
        if LARGE_MODELS:
            model = first + (offset >= (first + 1) * SIZE_OF_MODEL).to(tl.int64)
        else:
            model = offset // SIZE_OF_MODEL
        value -= tl.load(rate + model, mask=exists) * moved
    else:
        value -= tl.load(rate) * moved
    tl.store(momentum + offset, moved, mask=exists)
    tl.store(parameter + offset, value, mask=exists)
    if HAS_HALF:
        tl.store(half + offset, value.to(half.dtype.element_ty), mask=exists)
