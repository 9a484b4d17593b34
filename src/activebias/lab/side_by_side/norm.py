"""Batch norm with leaky ReLU of K models as an operator of PyTorch: with gradients and under `vmap`."""

from typing import Any

import torch
from torch import Tensor

from activebias.lab.side_by_side.convolution import joined

_BLOCK, _ENOUGH_PROGRAMS = 2048, 1024


@torch.library.custom_op("activebias::stacked_norm", mutates_args=())
def stacked_norm(
    values: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise values (K, B, H, W, C) by their moments: the outputs, and mean and variance (K, C).

    weight, bias: (K, C), float32. The variance is that of the batch, divided by its number.
    """
    values = values.contiguous()
    total, squares = _sums("moments", values)
    number = values.numel() // total.numel()
    mean = total / number
    variance = (squares / number - mean * mean).clamp(min=0)
    scale = weight * torch.rsqrt(variance + eps)
    return affine(values, scale, bias - mean * scale, slope), mean, variance


@torch.library.custom_op("activebias::stacked_norm_gradient", mutates_args=())
def norm_gradient(
    gradient: Tensor,
    values: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of values, weight and bias."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    values, gradient = values.contiguous(), gradient.contiguous()
    inverse = torch.rsqrt(variance + eps)
    scale = weight * inverse
    shift = bias - mean * scale
    of_bias, products = _sums("gradient_sums", values, gradient, scale, shift, slope=slope)
    of_weight = (products - mean * of_bias) * inverse  # Σ g · (x - mean) / deviation
    number = values.numel() // of_bias.numel()
    # dx = scale · (g - mean(g) - normalised(x) · mean(g · normalised(x))), with what is affine in x gathered.
    by_value = -scale * inverse * of_weight / number
    constant = -scale * of_bias / number - by_value * mean
    of_values = torch.empty_like(values)
    size = values[0].numel()
    kernels.gradient_of_values[(-(-size // _BLOCK), len(values))](
        values,
        gradient,
        scale,
        shift,
        by_value,
        constant,
        of_values,
        size,
        slope,
        C=values.shape[-1],
        BLOCK=_BLOCK,
    )
    return of_values, of_weight, of_bias


@torch.library.custom_op("activebias::stacked_affine", mutates_args=())
def affine(values: Tensor, scale: Tensor, shift: Tensor, slope: float) -> Tensor:
    """Return leaky(values · scale + shift) for values (K, …, C) and (K, C); has no gradient."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    values = values.contiguous()
    outputs = torch.empty_like(values)
    size = values[0].numel()
    kernels.normalise[(-(-size // _BLOCK), len(values))](
        values, scale, shift, outputs, size, slope, C=values.shape[-1], BLOCK=_BLOCK
    )
    return outputs


def _sums(kernel: str, values: Tensor, *others: Tensor, slope: float | None = None) -> Tensor:
    """Run a kernel that sums over the rows of every model; returns its two sums, (2, K, C)."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    num_models, channels = len(values), values.shape[-1]
    rows = values[0].numel() // channels
    block = max(16, 1 << (channels - 1).bit_length())
    at_once = _BLOCK // block
    splits = max(1, min(-(-_ENOUGH_PROGRAMS // num_models), rows // (4 * at_once)))
    per_split = -(-rows // splits)
    sums = torch.empty(2, splits, num_models, channels, dtype=torch.float32, device=values.device)
    numbers = [rows, per_split, num_models] + ([] if slope is None else [slope])
    getattr(kernels, kernel)[(splits, num_models)](
        values, *others, sums, *numbers, C=channels, BC=block, BM=at_once
    )
    return sums.sum(1)


@stacked_norm.register_fake
def _(
    values: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float
) -> tuple[Tensor, Tensor, Tensor]:
    return values.new_empty(values.shape), torch.empty_like(weight), torch.empty_like(weight)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    values, weight, bias, ctx.eps, ctx.slope = inputs
    ctx.save_for_backward(values, weight, bias, output[1], output[2])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor, *of_moments: Tensor | None) -> tuple[Tensor | None, ...]:
    # The moments are only noted (running statistics): nothing is learned through them.
    of_values, of_weight, of_bias = norm_gradient(gradient, *ctx.saved_tensors, ctx.eps, ctx.slope)
    return of_values, of_weight, of_bias, None, None


stacked_norm.register_autograd(_backward, setup_context=_remember)


@stacked_norm.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], *arguments: Any
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Let the mapped dimension join the models'."""
    tensors = [joined(*pair, info.batch_size) for pair in zip(arguments[:3], in_dims[:3], strict=True)]
    outputs = stacked_norm(*tensors, *arguments[3:])
    return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0, 0, 0)


@affine.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
    tensors = [joined(*pair, info.batch_size) for pair in zip(arguments[:3], in_dims[:3], strict=True)]
    return affine(*tensors, arguments[3]).unflatten(0, (info.batch_size, -1)), 0
