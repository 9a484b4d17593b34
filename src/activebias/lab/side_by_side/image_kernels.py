"""Images of K models' batches: cropped and flipped, standardised, channels last; in Triton (GPU only)."""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def crop_and_flip(
    images, index, shifts, outputs, BATCH,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, MARGIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """outputs[n] (C, H, W) = images[index[n]], shifted and flipped by shifts (models, 3, BATCH)."""
    number = tl.program_id(0).to(tl.int64)
    shift = shifts + number // BATCH * 3 * BATCH + number % BATCH
    top, left, flip = tl.load(shift), tl.load(shift + BATCH), tl.load(shift + 2 * BATCH)
    source = images + tl.load(index + number) * (C * H * W)
    offset = tl.arange(0, BLOCK)
    x = offset % W
    y = offset // W % H + top - MARGIN
    x = tl.where(flip > 0, W - 1 - x, x) + left - MARGIN
    inside = (y >= 0) & (y < H) & (x >= 0) & (x < W) & (offset < C * H * W)
    found = tl.load(source + offset // (H * W) * (H * W) + y * W + x, mask=inside, other=0)
    tl.store(outputs + number * (C * H * W) + offset, found, mask=offset < C * H * W)


@triton.jit
def standardise(images, outputs, C: tl.constexpr, PIXELS: tl.constexpr, STORED: tl.constexpr):
    """outputs[n] (PIXELS, STORED) = images[n] (C, PIXELS) with mean 0 and deviation 1, padded with zeros."""
    number = tl.program_id(0).to(tl.int64)
    pixel, channel = tl.arange(0, PIXELS)[:, None], tl.arange(0, STORED)[None, :]
    exists = (channel < C) & (pixel >= 0)
    place = images + number * (C * PIXELS) + channel * PIXELS + pixel
    values = tl.load(place, mask=exists, other=0).to(tl.float32)
    size: tl.constexpr = C * PIXELS
    # Correct rounding: the mean of a flat image is exactly its value.
    mean = tl.div_rn(tl.sum(tl.sum(values, 0), 0), tl.full((), size, tl.float32))
    centred = tl.where(exists, values - mean, 0.0)
    variance = tl.maximum(tl.sum(tl.sum(centred * centred, 0), 0) / size, 1.0 / size)
    result = centred / tl.sqrt(variance)
    tl.store(outputs + (number * PIXELS + pixel) * STORED + channel, result.to(outputs.dtype.element_ty))
