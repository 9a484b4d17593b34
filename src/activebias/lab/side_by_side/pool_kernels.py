"""ReLU and 2×2 max-pooling of K models at once, in Triton (GPU only): values (images, H, W, C)."""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def _corner(offset, H, W, C: tl.constexpr):
    """Return the offset of the first value in the window of a pooled value."""
    channel, x = offset % C, (offset // C) % (W // 2)
    y = (offset // (C * (W // 2))) % (H // 2)
    image = offset // (C * (W // 2) * (H // 2))
    return ((image * H + 2 * y) * W + 2 * x) * C + channel


@triton.jit
def pool(values, outputs, SIZE, H, W, C: tl.constexpr, BLOCK: tl.constexpr):
    """outputs = max(0, the largest of the window)."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    corner = _corner(offset, H, W, C)
    largest = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(4):
        place = corner + ((step // 2) * W + step % 2) * C
        largest = tl.maximum(largest, tl.load(values + place, mask=exists, other=0.0).to(tl.float32))
    tl.store(outputs + offset, largest.to(outputs.dtype.element_ty), mask=exists)


@triton.jit
def pool_gradient(values, gradients, outputs, SIZE, H, W, C: tl.constexpr, BLOCK: tl.constexpr):
    """Pass the gradient to the first of the largest values of a window, if it is above 0."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    corner = _corner(offset, H, W, C)
    gradient = tl.load(gradients + offset, mask=exists, other=0.0).to(tl.float32)
    largest, winner = tl.zeros((BLOCK,), tl.float32), tl.full((BLOCK,), -1, tl.int32)
    for step in tl.static_range(4):
        place = corner + ((step // 2) * W + step % 2) * C
        value = tl.load(values + place, mask=exists, other=0.0).to(tl.float32)
        winner = tl.where(value > largest, step, winner)
        largest = tl.maximum(largest, value)
    for step in tl.static_range(4):
        place = corner + ((step // 2) * W + step % 2) * C
        given = tl.where(winner == step, gradient, 0.0)
        tl.store(outputs + place, given.to(outputs.dtype.element_ty), mask=exists)
