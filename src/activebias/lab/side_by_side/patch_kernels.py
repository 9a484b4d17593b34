"""3×3 convolutions of K models with few channels, with shortcuts and sums for norms, in Triton (GPU only).

Values are (K, B, H, W, C), channels last; weights (K, O, C, 3, 3), as in the layer. A row of the product is a
patch of Q × P output positions, and its columns are (q, p, o). The patch reads ROWS × SPAN positions of the
input, SPAN · C contiguous values. An input is therefore read 4 times instead of 9 (Q = P = 2), and the matrix
units get 64 columns for a model with 16 channels. That doubles the operations, but the time of these nets is
the traffic between memory, caches and multiprocessors.
"""

# mypy: ignore-errors
# (Triton's language has no types.)

import triton
import triton.language as tl


@triton.jit
def arrange(weights, places, arranged, NUM_WEIGHTS, SIZE, BLOCK: tl.constexpr):
    """arranged (K, SIZE) = weights (K, NUM_WEIGHTS) at `places`, and 0 where a place is -1."""
    model = tl.program_id(1).to(tl.int64)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    place = tl.load(places + offset, mask=exists, other=-1)
    found = tl.load(weights + model * NUM_WEIGHTS + place, mask=place >= 0, other=0.0)
    tl.store(arranged + model * SIZE + offset, found, mask=exists)


@triton.jit
def _patches(
    values, image, y, x, exists, row, column,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    ROWS: tl.constexpr, SPAN: tl.constexpr, DEPTH: tl.constexpr,
    STEP_H: tl.constexpr, STEP_W: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Return DEPTH rows of the patches (y, x), starting at `row`: (BM, DEPTH · SPAN · C)."""
    inner = tl.arange(0, DEPTH * SPAN * C)
    below = inner // (SPAN * C)
    h, w = y * STEP_H + row + OFFSET, x * STEP_W + column + OFFSET
    down, across = h[:, None] + below[None, :], w[:, None] + (inner // C % SPAN)[None, :]
    exists = exists[:, None] & (down >= 0) & (down < H) & (across >= 0) & (across < W)
    if DEPTH > 1:
        exists = exists & (row + below < ROWS)[None, :]
    place = ((image * H + h) * W + w) * C
    offset = below * (W * C) + inner % (SPAN * C)
    return tl.load(values + place[:, None] + offset[None, :], mask=exists, other=0.0)


@triton.jit
def _sum(values, EARLY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the sum of all rows, (BN,); if not EARLY, only over the rows of a thread, (4, 8, BN).

    The sum within a thread is cheap and done for every tile; the rest of the sum is done once per program.
    """
    if EARLY:
        total = tl.sum(values, 0)
    else:
        pairs = tl.sum(tl.reshape(values, (BM // 16, 2, 8, BN)), 1)
        total = tl.sum(tl.reshape(pairs, (BM // 64, 4, 8, BN)), 0)
    return total


@triton.jit
def halve(values, outputs, SIZE, W: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """outputs (…, H / 2, W / 2, 2 · C) = means of 2×2 positions, with C / 2 zero channels on each side."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offset < SIZE
    channel = offset % (2 * C) - C // 2
    inside = exists & (channel >= 0) & (channel < C)
    pixel = offset // (2 * C)
    # The rows of all images are one sequence: two of them give one output row.
    place = values + (pixel // (W // 2) * 2 * W + pixel % (W // 2) * 2) * C + channel
    total = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(place + C, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(place + W * C, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(place + (W + 1) * C, mask=inside, other=0.0).to(tl.float32)
    tl.store(outputs + offset, (total * 0.25).to(outputs.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["B", "TILES_PER_PROGRAM", "K"])
def convolve(
    values, weights, outputs, activated, shortcut, normed, scale, shift, sums,
    B, TILES_PER_PROGRAM, K, model_stride, weights_stride, SLOPE,
    H_IN: tl.constexpr, W_IN: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, OUT: tl.constexpr, Q: tl.constexpr, P: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr, DEPTH: tl.constexpr,
    STEP_H: tl.constexpr, STEP_W: tl.constexpr, OFFSET: tl.constexpr,
    SHORTCUT: tl.constexpr, AFTER: tl.constexpr, RAW: tl.constexpr,
    RESIDENT: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """outputs = convolution of values (or, with other weights, the gradient of its input) + shortcut.

    Weights are arranged. SHORTCUT is whether there is a shortcut. AFTER is the last step:
    "moments": sums = Σ output, Σ output², for the next batch norm.
    "gradient": the input of the layer is leaky(norm(`normed`)): outputs = g, the gradient at that leaky ReLU,
    and sums = Σ g, Σ g · normed.
    "activate": activated = leaky(output · scale + shift), for evaluation; RAW is whether to write outputs.
    Sums are (2, programs, K, Q · P · OUT). RESIDENT: a program keeps all weights for its tiles.
    """
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    BN: tl.constexpr = Q * P * OUT
    inner: tl.constexpr = DEPTH * SPAN * C
    steps: tl.constexpr = (ROWS + DEPTH - 1) // DEPTH * COLUMNS
    high: tl.constexpr = H // Q
    wide: tl.constexpr = W // P
    column_of = tl.arange(0, BN)
    weights += model * weights_stride + tl.arange(0, inner)[:, None] * BN + column_of[None, :]
    kernels = ()
    if RESIDENT:
        for step in tl.static_range(steps):
            kernels = kernels + (tl.load(weights + step * inner * BN),)  # noqa: RUF005
    values += model * model_stride
    # The model's beginning is part of the address: places within a model are 32-bit, which saves registers.
    begin = model * B * H * W * OUT
    outputs += begin
    activated += begin
    shortcut += begin
    normed += begin
    channel = column_of % OUT
    below = column_of // (P * OUT)
    if AFTER != "moments":
        scales = tl.load(scale + model * OUT + channel)[None, :]
        shifts = tl.load(shift + model * OUT + channel)[None, :]
    if RESIDENT:
        total, products = tl.zeros((4, 8, BN), tl.float32), tl.zeros((4, 8, BN), tl.float32)
    else:
        total, products = tl.zeros((BN,), tl.float32), tl.zeros((BN,), tl.float32)
    first = program * TILES_PER_PROGRAM
    last = tl.minimum(first + TILES_PER_PROGRAM, tl.cdiv(B * high * wide, BM))
    for tile in range(first, last):
        patch = tile * BM + tl.arange(0, BM)
        image, y, x = patch // (high * wide), patch // wide % high, patch % wide
        exists = image < B
        corner = ((image * H + y * Q) * W + x * P) * OUT
        place = corner[:, None] + (below * (W * OUT) + column_of % (P * OUT))[None, :]
        there = exists[:, None] & (column_of >= 0)[None, :]
        if RESIDENT:  # start the loads for the last step before the products, so that they overlap
            if SHORTCUT:
                added = tl.load(shortcut + place, mask=there, other=0.0)
            if AFTER == "gradient":
                before = tl.load(normed + place, mask=there, other=0.0)
        result = tl.zeros((BM, BN), tl.float32)
        if RESIDENT:
            for step in tl.static_range(steps):
                found = _patches(
                    values, image, y, x, exists, step // COLUMNS * DEPTH, step % COLUMNS, H_IN, W_IN, C,
                    ROWS, SPAN, DEPTH, STEP_H, STEP_W, OFFSET,
                )  # fmt: skip
                result = tl.dot(found, kernels[step], result, input_precision=PRECISION)
        else:
            for step in range(steps):
                found = _patches(
                    values, image, y, x, exists, step // COLUMNS * DEPTH, step % COLUMNS, H_IN, W_IN, C,
                    ROWS, SPAN, DEPTH, STEP_H, STEP_W, OFFSET,
                )  # fmt: skip
                kernel = tl.load(weights + step * inner * BN)
                result = tl.dot(found, kernel, result, input_precision=PRECISION)
        if not RESIDENT:
            if SHORTCUT:
                added = tl.load(shortcut + place, mask=there, other=0.0)
            if AFTER == "gradient":
                before = tl.load(normed + place, mask=there, other=0.0)
        if SHORTCUT:
            result += added.to(tl.float32)
        if AFTER == "gradient":
            before = before.to(tl.float32)
            result = tl.where(before * scales + shifts > 0, result, result * SLOPE)
        stored = result.to(outputs.dtype.element_ty)
        if RAW:
            tl.store(outputs + place, stored, mask=there)
        if AFTER == "activate":
            result = result * scales + shifts
            result = tl.where(result > 0, result, result * SLOPE)
            tl.store(activated + place, result.to(outputs.dtype.element_ty), mask=there)
        elif AFTER == "gradient":
            result = stored.to(tl.float32)
            total += _sum(result, not RESIDENT, BM, BN)
            products += _sum(result * before, not RESIDENT, BM, BN)
        else:
            result = stored.to(tl.float32)
            total += _sum(result, not RESIDENT, BM, BN)
            products += _sum(result * result, not RESIDENT, BM, BN)
    if AFTER != "activate":
        if RESIDENT:
            total, products = tl.sum(tl.sum(total, 0), 0), tl.sum(tl.sum(products, 0), 0)
        place = (program * K + model) * BN + column_of
        tl.store(sums + place, total)
        tl.store(sums + tl.num_programs(0) * K * BN + place, products)


@triton.jit(do_not_specialize=["B", "TILES_PER_PROGRAM", "K"])
def weight_gradient(
    values, gradients, partial,
    B, TILES_PER_PROGRAM, K, model_stride,
    H_IN: tl.constexpr, W_IN: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, OUT: tl.constexpr, Q: tl.constexpr, P: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr,
    STEP_H: tl.constexpr, STEP_W: tl.constexpr,
    AT_ONCE: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """partial (programs, K, ROWS, COLUMNS, SPAN · C, Q · P · OUT) = Σ patch[inner] · gradient[outer].

    A program handles AT_ONCE rows of the patches; `fold` adds the parts of each weight.
    """
    program, model = tl.program_id(0), tl.program_id(2).to(tl.int64)
    first_row = tl.program_id(1) * AT_ONCE
    BN: tl.constexpr = Q * P * OUT
    high: tl.constexpr = H // Q
    wide: tl.constexpr = W // P
    values += model * model_stride
    gradients += model * B * H * W * OUT
    column_of = tl.arange(0, BN)
    totals = ()
    for _ in tl.static_range(AT_ONCE * COLUMNS):
        totals = totals + (tl.zeros((SPAN * C, BN), tl.float32),)  # noqa: RUF005
    first = program * TILES_PER_PROGRAM
    last = tl.minimum(first + TILES_PER_PROGRAM, tl.cdiv(B * high * wide, BM))
    for tile in range(first, last):
        patch = tile * BM + tl.arange(0, BM)
        image, y, x = patch // (high * wide), patch // wide % high, patch % wide
        exists = image < B
        corner = ((image * H + y * Q) * W + x * P) * OUT
        place = corner[:, None] + (column_of // (P * OUT) * (W * OUT) + column_of % (P * OUT))[None, :]
        gradient = tl.load(gradients + place, mask=exists[:, None] & (column_of >= 0)[None, :], other=0.0)
        new = ()
        for step in tl.static_range(AT_ONCE * COLUMNS):
            row, column = first_row + step // COLUMNS, step % COLUMNS
            found = _patches(
                values, image, y, x, exists, row, column, H_IN, W_IN, C, ROWS, SPAN, 1, STEP_H, STEP_W, -1
            )
            product = tl.dot(tl.trans(found), gradient, totals[step], input_precision=PRECISION)
            new = new + (product,)  # noqa: RUF005
        totals = new
    inner = tl.arange(0, SPAN * C)
    for step in tl.static_range(AT_ONCE * COLUMNS):
        line = ((program * K + model) * ROWS + first_row) * COLUMNS + step
        place = (line * SPAN * C + inner)[:, None] * BN + column_of[None, :]
        tl.store(partial + place, totals[step])


@triton.jit(do_not_specialize=["PROGRAMS", "K"])
def fold(
    partial, gradients, PROGRAMS, K,
    C: tl.constexpr, REAL_C: tl.constexpr, OUT: tl.constexpr, Q: tl.constexpr, P: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr, S: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """gradients (K, OUT, REAL_C, 3, 3) = sums of `partial` over its programs and a patch's outputs."""
    model, tap = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = (tl.program_id(2) * BC + tl.arange(0, BC))[:, None]
    outer = tl.arange(0, OUT)[None, :]
    exists = (channel < REAL_C) & (outer < OUT)
    total = tl.zeros((BC, OUT), tl.float32)
    for program in range(PROGRAMS):
        for q in tl.static_range(Q):
            for p in tl.static_range(P):
                row, column = tap // 3 + S * q, tap % 3 + S * p
                line = ((program * K + model) * ROWS + row) * COLUMNS * SPAN + column
                place = (line * C + channel) * (Q * P * OUT) + (q * P + p) * OUT + outer
                total += tl.load(partial + place, mask=exists, other=0.0)
    place = ((model * OUT + outer) * REAL_C + channel) * 9 + tap
    tl.store(gradients + place, total.to(gradients.dtype.element_ty), mask=exists)
