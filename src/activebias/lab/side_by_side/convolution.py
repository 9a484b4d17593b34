"""The convolution of K models as an operator of PyTorch: with gradients, under `vmap` and in graphs."""

from typing import Any

import torch
from torch import Tensor

from activebias.lab.side_by_side.mapping import join_models

# The number of programs of the weight gradient's kernel that keeps every multiprocessor busy.
_ENOUGH_PROGRAMS = 1024
# (rows of a block, warps, stages of loads in flight), with other values for sums over so many channels: the
# fastest settings on an H200.
_TILE, _TILES = (128, 4, 3), {16: (256, 4, 4)}
_WEIGHT_TILE, _WEIGHT_TILES = (64, 4, 3), {16: (128, 4, 2)}


def output_size(size: int, width: int, stride: int, padding: int) -> int:
    """Return the number of positions of a window of `width` on `size` padded places.

    >>> output_size(28, 5, 1, 2), output_size(32, 3, 2, 1)
    (28, 16)
    """
    return (size + 2 * padding - width) // stride + 1


@torch.library.custom_op("activebias::stacked_convolution", mutates_args=())
def stacked_convolution(
    values: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding_h: int, padding_w: int
) -> Tensor:
    """Convolve values (K, B, H, W, C) with weights (K, kh, kw, C, O): (K, B, H', W', O); bias (K, O)."""
    num_models, batch, height, width, _ = values.shape
    _, window_h, window_w, inner, outer = weight.shape
    size = (
        output_size(height, window_h, stride, padding_h),
        output_size(width, window_w, stride, padding_w),
    )
    outputs = values.new_empty(num_models, batch, *size, outer)
    weight = weight.contiguous()
    strides = (weight.stride(0), weight.stride(2), weight.stride(3), weight.stride(4))
    _launch(
        values, weight, bias, outputs, strides, (inner, outer), (window_h, window_w), stride,
        (padding_h, padding_w),
    )  # fmt: skip
    return outputs


@torch.library.custom_op("activebias::stacked_convolution_input_gradient", mutates_args=())
def input_gradient(
    gradient: Tensor, weight: Tensor, height: int, width: int, stride: int, padding_h: int, padding_w: int
) -> Tensor:
    """Return the gradient of the values (K, B, height, width, C), given the gradient of the outputs."""
    _, window_h, window_w, inner, outer = weight.shape
    result = gradient.new_empty(*gradient.shape[:2], height, width, inner)
    weight = weight.contiguous()
    # The same product, with input and output channels exchanged.
    strides = (weight.stride(0), weight.stride(2), weight.stride(4), weight.stride(3))
    _launch(
        gradient.contiguous(), weight, None, result, strides, (outer, inner), (window_h, window_w), stride,
        (padding_h, padding_w), transposed=True,
    )  # fmt: skip
    return result


@torch.library.custom_op("activebias::stacked_convolution_weight_gradient", mutates_args=())
def weight_gradient(
    values: Tensor,
    gradient: Tensor,
    window_h: int,
    window_w: int,
    stride: int,
    padding_h: int,
    padding_w: int,
) -> Tensor:
    """Return the gradient of the weights (K, kh, kw, C, O)."""
    from activebias.lab.side_by_side import convolution_kernels as kernels

    gradient, values = gradient.contiguous(), _dense(values)
    num_models, batch, height, width, inner = values.shape
    _, _, height_out, width_out, outer = gradient.shape
    reduction, rows = window_h * window_w * inner, batch * height_out * width_out
    block_r, block_n = min(64, power(reduction)), min(64, power(outer))
    block_m, num_warps, num_stages = _WEIGHT_TILES.get(inner, _WEIGHT_TILE)
    tiles = -(-reduction // block_r) * -(-outer // block_n)
    splits = max(1, min(-(-_ENOUGH_PROGRAMS // (tiles * num_models)), rows // (8 * block_m)))
    rows_per_split = -(-rows // (splits * block_m)) * block_m
    partial = torch.empty(
        splits, num_models, window_h, window_w, inner, outer, dtype=torch.float32, device=values.device
    )
    kernels.weight_gradient[(tiles, splits, num_models)](
        values, gradient, partial,
        batch, height, width, height_out, width_out, num_models, values.stride(0), rows_per_split,
        C=inner, OUT=outer, KW=window_w, R=reduction, S=stride, PAD_H=padding_h, PAD_W=padding_w,
        BM=block_m, BN=block_n, BR=block_r, PRECISION=precision(values),
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return partial.sum(0).to(values.dtype)


def _launch(
    values: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    outputs: Tensor,
    weight_strides: tuple[int, ...],
    channels: tuple[int, int],
    window: tuple[int, int],
    stride: int,
    padding: tuple[int, int],
    transposed: bool = False,
) -> None:
    from activebias.lab.side_by_side import convolution_kernels as kernels

    values = _dense(values)
    num_models, batch, height, width, _ = values.shape
    _, _, height_out, width_out, _ = outputs.shape
    inner, outer = channels
    reduction = window[0] * window[1] * inner
    block_m, num_warps, num_stages = _TILES.get(inner, _TILE)
    block_n, block_r = min(64, power(outer)), _block(inner, reduction)
    phases = stride if transposed and inner == block_r else 1
    rows = batch * -(-height_out // phases) * -(-width_out // phases)
    grid = (-(-rows // block_m) * phases**2, -(-outer // block_n), num_models)
    kernels.convolve[grid](
        values, weight, weight if bias is None else bias.contiguous(), outputs,
        batch, height, width, height_out, width_out,
        values.stride(0), *weight_strides,
        C=inner, OUT=outer, KW=window[1], R=reduction, S=stride, PAD_H=padding[0], PAD_W=padding[1],
        TRANSPOSED=transposed, PHASES=phases, HAS_BIAS=bias is not None,
        BM=block_m, BN=block_n, BR=block_r, PRECISION=precision(values),
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip


def _dense(values: Tensor) -> Tensor:
    """Return values that are contiguous within each model; all models may share one copy (a stride of 0)."""
    return values if values[0].is_contiguous() else values.contiguous()


def _block(channels: int, reduction: int) -> int:
    """Return the inner block: all channels of a window position if they are 16, 32 or 64."""
    return channels if channels in (16, 32, 64) else min(64, power(reduction))


def power(number: int) -> int:
    """Return the smallest power of 2 that is at least `number`, and at least 16 (the smallest product)."""
    return max(16, 1 << (number - 1).bit_length())


def precision(values: Tensor) -> str:
    """Return the precision of a kernel's products of such values."""
    # In float32, three 11-bit products replace one 24-bit product: exact enough, and on the matrix units.
    return "tf32x3" if values.dtype == torch.float32 else "tf32"


@stacked_convolution.register_fake
def _(
    values: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding_h: int, padding_w: int
) -> Tensor:
    height = output_size(values.shape[2], weight.shape[1], stride, padding_h)
    width = output_size(values.shape[3], weight.shape[2], stride, padding_w)
    return values.new_empty(*values.shape[:2], height, width, weight.shape[4])


@input_gradient.register_fake
def _(
    gradient: Tensor, weight: Tensor, height: int, width: int, stride: int, padding_h: int, padding_w: int
) -> Tensor:
    return gradient.new_empty(*gradient.shape[:2], height, width, weight.shape[3])


@weight_gradient.register_fake
def _(
    values: Tensor,
    gradient: Tensor,
    window_h: int,
    window_w: int,
    stride: int,
    padding_h: int,
    padding_w: int,
) -> Tensor:
    return values.new_empty(values.shape[0], window_h, window_w, values.shape[4], gradient.shape[4])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values, weight, _, ctx.stride, ctx.padding_h, ctx.padding_w = inputs
    ctx.save_for_backward(values, weight)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    values, weight = ctx.saved_tensors
    geometry = (ctx.stride, ctx.padding_h, ctx.padding_w)
    of_values = of_weight = of_bias = None
    if ctx.needs_input_grad[0]:
        of_values = input_gradient(gradient, weight, values.shape[2], values.shape[3], *geometry)
    if ctx.needs_input_grad[1]:
        of_weight = weight_gradient(values, gradient, weight.shape[1], weight.shape[2], *geometry)
    if ctx.needs_input_grad[2]:
        of_bias = gradient.sum(dim=(1, 2, 3))
    return of_values, of_weight, of_bias, None, None, None


stacked_convolution.register_autograd(_backward, setup_context=_remember)


join_models(stacked_convolution)
