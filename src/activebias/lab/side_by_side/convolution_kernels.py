"""Convolutions of K models at once, as implicit matrix products in Triton (GPU only).

Values are (K, B, H, W, C), weights (K, window positions, C, O), channels last. A row of the product is a
position of the output; its inner dimension runs over (window position, channel). cuDNN's grouped convolutions
and explicit patches are much slower: a model's 16 to 64 channels are too few for cuDNN, and explicit patches
move 25 times the data.
"""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def _source(row, step, S: tl.constexpr, PAD: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Return the coordinate that a window position reads, and whether it exists at this stride."""
    if TRANSPOSED:
        wide = row + PAD - step
        return wide // S, (wide >= 0) & (wide % S == 0)
    place = row * S + step - PAD
    return place, place >= 0


@triton.jit
def convolve(
    values, weights, bias, outputs,
    B, H_IN: tl.constexpr, W_IN: tl.constexpr, H_OUT: tl.constexpr, W_OUT: tl.constexpr,
    model_stride, weight_model_stride, weight_window_stride, weight_inner_stride, weight_outer_stride,
    C: tl.constexpr, OUT: tl.constexpr, KW: tl.constexpr, R: tl.constexpr,
    S: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    TRANSPOSED: tl.constexpr, PHASES: tl.constexpr, HAS_BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """outputs[m, o] = Σ_r patch(m)[r] · weights[r, o] + bias[o]; TRANSPOSED: backwards, for the gradient.

    If the channels are one block (C == BR), a block is one window position. The arithmetic of the position is
    then done once for its rows instead of for every element. Backwards at a stride S, an output then uses
    only every S-th window position. The first of them is its phase, and all rows of a program have the same
    phase (PHASES == S, else 1).
    """
    model = tl.program_id(2).to(tl.int64)
    phase = tl.program_id(0) % (PHASES * PHASES)
    phase_y, phase_x = phase // PHASES, phase % PHASES
    rows = tl.program_id(0) // (PHASES * PHASES) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    num_y: tl.constexpr = (H_OUT + PHASES - 1) // PHASES
    num_x: tl.constexpr = (W_OUT + PHASES - 1) // PHASES
    image = rows // (num_y * num_x)
    y = (rows // num_x) % num_y * PHASES + phase_y
    x = rows % num_x * PHASES + phase_x
    row_exists = (image < B) & (y < H_OUT) & (x < W_OUT)
    base = values + model * model_stride
    weight_base = weights + model * weight_model_stride + columns[None, :] * weight_outer_stride
    column_exists = (columns < OUT)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    if C == BR:
        channel = tl.arange(0, C)
        first_h, first_w = (phase_y + PAD_H) % PHASES, (phase_x + PAD_W) % PHASES
        KH: tl.constexpr = R // C // KW
        num_w: tl.constexpr = (KW + PHASES - 1) // PHASES
        for number in range((KH + PHASES - 1) // PHASES * num_w):
            step_h = first_h + number // num_w * PHASES
            step_w = first_w + number % num_w * PHASES
            h, h_exists = _source(y, step_h, S, PAD_H, TRANSPOSED)
            w, w_exists = _source(x, step_w, S, PAD_W, TRANSPOSED)
            exists = row_exists & h_exists & w_exists & (h < H_IN) & (w < W_IN)
            if PHASES > 1:
                exists = exists & (step_h < KH) & (step_w < KW)
            place = ((image * H_IN + h) * W_IN + w) * C
            patches = tl.load(base + place[:, None] + channel[None, :], mask=exists[:, None], other=0.0)
            window = tl.minimum(step_h * KW + step_w, KH * KW - 1)
            kernel = tl.load(
                weight_base + window * weight_window_stride + channel[:, None] * weight_inner_stride,
                mask=column_exists,
                other=0.0,
            )
            total = tl.dot(patches, kernel, total, input_precision=PRECISION)
    else:
        for start in range(0, R, BR):
            inner = start + tl.arange(0, BR)
            window, channel = inner // C, inner % C
            h, h_exists = _source(y[:, None], (window // KW)[None, :], S, PAD_H, TRANSPOSED)
            w, w_exists = _source(x[:, None], (window % KW)[None, :], S, PAD_W, TRANSPOSED)
            exists = (
                row_exists[:, None] & (inner < R)[None, :] & h_exists & w_exists & (h < H_IN) & (w < W_IN)
            )
            place = ((image[:, None] * H_IN + h) * W_IN + w) * C + channel[None, :]
            patches = tl.load(base + place, mask=exists, other=0.0)
            kernel = tl.load(
                weight_base + window[:, None] * weight_window_stride + channel[:, None] * weight_inner_stride,
                mask=(inner < R)[:, None] & column_exists,
                other=0.0,
            )
            total = tl.dot(patches, kernel, total, input_precision=PRECISION)
    if HAS_BIAS:
        total += tl.load(bias + model * OUT + columns, mask=columns < OUT, other=0.0)[None, :].to(tl.float32)
    row_place = ((model * B + image) * H_OUT + y) * W_OUT + x
    place = row_place[:, None] * OUT + columns[None, :]
    tl.store(outputs + place, total.to(outputs.dtype.element_ty), mask=row_exists[:, None] & column_exists)


@triton.jit
def weight_gradient(
    values, gradients, partial,
    B, H_IN: tl.constexpr, W_IN: tl.constexpr, H_OUT: tl.constexpr, W_OUT: tl.constexpr,
    K, model_stride, ROWS_PER_SPLIT,
    C: tl.constexpr, OUT: tl.constexpr, KW: tl.constexpr, R: tl.constexpr,
    S: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """partial[split, r, o] = Σ over the split's positions m of patch(m)[r] · gradients[m, o].

    If a block is a number of window positions with all their channels, the arithmetic of the positions is
    done once per row and position.
    """
    model = tl.program_id(2).to(tl.int64)
    split = tl.program_id(1)
    num_inner: tl.constexpr = (R + BR - 1) // BR
    first_inner = (tl.program_id(0) % num_inner) * BR
    inner = first_inner + tl.arange(0, BR)
    columns = (tl.program_id(0) // num_inner) * BN + tl.arange(0, BN)
    base = values + model * model_stride
    gradient_base = gradients + model * B * H_OUT * W_OUT * OUT
    total = tl.zeros((BR, BN), dtype=tl.float32)
    first = split * ROWS_PER_SPLIT
    for start in range(first, tl.minimum(first + ROWS_PER_SPLIT, B * H_OUT * W_OUT), BM):
        rows = start + tl.arange(0, BM)
        row_exists = rows < B * H_OUT * W_OUT
        image = rows // (H_OUT * W_OUT)
        y, x = (rows // W_OUT) % H_OUT, rows % W_OUT
        if C == BR:
            window = first_inner // C
            h, h_exists = _source(y, window // KW, S, PAD_H, False)
            w, w_exists = _source(x, window % KW, S, PAD_W, False)
            exists = row_exists & h_exists & w_exists & (h < H_IN) & (w < W_IN)
            place = ((image * H_IN + h) * W_IN + w) * C
            patches = tl.load(
                base + place[:, None] + tl.arange(0, BR)[None, :], mask=exists[:, None], other=0.0
            )
        elif (C == 16) | (C == 32):
            window = first_inner // C + tl.arange(0, BR // C)
            h, h_exists = _source(y[:, None], (window // KW)[None, :], S, PAD_H, False)
            w, w_exists = _source(x[:, None], (window % KW)[None, :], S, PAD_W, False)
            exists = row_exists[:, None] & h_exists & w_exists & (h < H_IN) & (w < W_IN)
            exists = exists & (window < R // C)[None, :]
            place = ((image[:, None] * H_IN + h) * W_IN + w) * C
            patches = tl.load(
                base + place[:, :, None] + tl.arange(0, C)[None, None, :], mask=exists[:, :, None], other=0.0
            )
            patches = tl.reshape(patches, (BM, BR))
        else:
            window, channel = inner // C, inner % C
            h, h_exists = _source(y[:, None], (window // KW)[None, :], S, PAD_H, False)
            w, w_exists = _source(x[:, None], (window % KW)[None, :], S, PAD_W, False)
            exists = (
                row_exists[:, None] & (inner < R)[None, :] & h_exists & w_exists & (h < H_IN) & (w < W_IN)
            )
            place = ((image[:, None] * H_IN + h) * W_IN + w) * C + channel[None, :]
            patches = tl.load(base + place, mask=exists, other=0.0)
        gradient = tl.load(
            gradient_base + rows[:, None] * OUT + columns[None, :],
            mask=row_exists[:, None] & (columns < OUT)[None, :],
            other=0.0,
        )
        total = tl.dot(tl.trans(patches), gradient, total, input_precision=PRECISION)
    place = ((split * K + model) * R + inner[:, None]) * OUT + columns[None, :]
    tl.store(partial + place, total, mask=(inner < R)[:, None] & (columns < OUT)[None, :])
