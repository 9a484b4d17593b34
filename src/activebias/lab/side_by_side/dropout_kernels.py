"""Dropout of K models at once, in Triton (GPU only): the masks of `activebias.training.dropout`.

In PyTorch the noise takes two dozen passes over 64-bit integers. Here it is 32-bit arithmetic while the
values are read, with the same bits.
"""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def _mix(bits):
    """The finaliser of `training.dropout`; here the upper bits of a product overflow without a mask."""
    bits = ((bits >> 16) ^ bits) * 0x21F0AAAD
    bits = ((bits >> 15) ^ bits) * 0x735A2D97
    return (bits >> 15) ^ bits


@triton.jit
def keys_of(seeds, steps, keys):
    """keys[model] = (key, stride) of a seed and a step."""
    model = tl.program_id(0)
    seed, step = tl.load(seeds + model), tl.load(steps + model)
    key = _mix((seed >> 32).to(tl.uint32) ^ _mix(step.to(tl.uint32)))
    key = _mix(seed.to(tl.uint32) ^ key)
    stride = (_mix(key ^ 0x5BD1E995) >> 1) | 1
    tl.store(keys + 2 * model, key.to(tl.int64))
    tl.store(keys + 2 * model + 1, stride.to(tl.int64))


@triton.jit
def drop(values, keys, outputs, SIZE, ROW, ROW_LENGTH, THRESHOLD, KEEP, BLOCK: tl.constexpr):
    """outputs = values / KEEP where the noise of the position is below THRESHOLD, else 0.

    A model has SIZE values in rows of ROW, which count as rows of ROW_LENGTH positions.
    """
    model = tl.program_id(1).to(tl.int64)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    key = tl.load(keys + 2 * model).to(tl.uint32)
    stride = tl.load(keys + 2 * model + 1).to(tl.uint32)
    position = offset // ROW * ROW_LENGTH + offset % ROW
    noise = _mix(position.to(tl.uint32) * stride + key)
    value = tl.load(values + model * SIZE + offset, mask=exists, other=0.0).to(tl.float32)
    kept = tl.where(noise.to(tl.int64) < THRESHOLD, value / KEEP, 0.0)
    tl.store(outputs + model * SIZE + offset, kept.to(outputs.dtype.element_ty), mask=exists)
