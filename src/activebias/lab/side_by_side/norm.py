"""Batch norm with leaky ReLU of K models as an operator of PyTorch: with gradients and under `vmap`."""

from typing import Any

import torch
from torch import Tensor

from activebias.lab.side_by_side.convolution import power
from activebias.lab.side_by_side.mapping import join_models

_BLOCK, _ENOUGH_PROGRAMS = 2048, 1024
# One program adds up what the splits of a model give.
_MOST_SPLITS = 256


@torch.library.custom_op("activebias::stacked_norm", mutates_args=())
def stacked_norm(
    values: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float
) -> tuple[Tensor, Tensor]:
    """Normalise values (K, B, H, W, C) by their moments.

    Returns the outputs, and (4, K, C): mean, variance (of the batch, divided by its number), scale and shift.
    weight, bias: (K, C), float32.
    """
    values = values.contiguous()
    sums = _sums("moments", values)
    moments = _between_passes(
        "scale_and_shift", sums, values, weight.contiguous(), bias.contiguous(), eps=eps
    )
    return affine(values, moments[2], moments[3], slope), moments


@torch.library.custom_op("activebias::stacked_norm_gradient", mutates_args=())
def norm_gradient(
    gradient: Tensor, values: Tensor, moments: Tensor, eps: float, slope: float
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the values, and (4, K, C): first those of weight and bias."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    values, gradient = values.contiguous(), gradient.contiguous()
    mean, variance, scale, shift = moments
    sums = _sums("gradient_sums", values, gradient, scale, shift, slope=slope)
    of_parameters = _between_passes("gradient_of_parameters", sums, values, mean, variance, scale, eps=eps)
    of_values = torch.empty_like(values)
    size = values[0].numel()
    kernels.gradient_of_values[(-(-size // _BLOCK), len(values))](
        values, gradient, scale, shift, of_parameters[2], of_parameters[3], of_values, size, slope,
        C=values.shape[-1], BLOCK=_BLOCK,
    )  # fmt: skip
    return of_values, of_parameters


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
    """Run a kernel that sums over the rows of every model; returns its two sums, (2, splits, K, C)."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    num_models, channels = len(values), values.shape[-1]
    rows, block = values[0].numel() // channels, power(channels)
    at_once = _BLOCK // block
    splits = max(1, min(-(-_ENOUGH_PROGRAMS // num_models), rows // (4 * at_once), _MOST_SPLITS))
    per_split = -(-rows // splits)
    sums = torch.empty(2, splits, num_models, channels, dtype=torch.float32, device=values.device)
    numbers = [rows, per_split, num_models] + ([] if slope is None else [slope])
    getattr(kernels, kernel)[(splits, num_models)](
        values, *others, sums, *numbers, C=channels, BC=block, BM=at_once
    )
    return sums


def _between_passes(kernel: str, sums: Tensor, values: Tensor, *others: Tensor, eps: float) -> Tensor:
    """Run a kernel that makes four numbers a model and channel, (4, K, C), of two sums."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    _, splits, num_models, channels = sums.shape
    results = sums.new_empty(4, num_models, channels)
    number = values[0].numel() // channels
    getattr(kernels, kernel)[(num_models,)](
        sums, *others, results, number, eps, num_models, splits,
        C=channels, BC=power(channels), BS=power(splits),
    )  # fmt: skip
    return results


@stacked_norm.register_fake
def _(values: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float) -> tuple[Tensor, Tensor]:
    return values.new_empty(values.shape), weight.new_empty(4, *weight.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    values, _, _, ctx.eps, ctx.slope = inputs
    ctx.save_for_backward(values, output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor, of_moments: Tensor | None) -> tuple[Tensor | None, ...]:
    # The moments are only noted (running statistics): nothing is learned through them.
    of_values, of_parameters = norm_gradient(gradient, *ctx.saved_tensors, ctx.eps, ctx.slope)
    return of_values, of_parameters[0], of_parameters[1], None, None


stacked_norm.register_autograd(_backward, setup_context=_remember)


join_models(stacked_norm, 0, 1)
join_models(affine)
