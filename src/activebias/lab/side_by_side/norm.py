"""Batch norm with leaky ReLU of K models between convolutions (GPU only): launches of its kernels.

Sums, (2, programs, K, parts, C), come from the convolution before. Moments are (4, K, C): mean, variance of
the batch (divided by its number), and the scale and shift that normalise by them.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor

from activebias.lab.side_by_side.patches import Affine

_BLOCK = 2048
_PROGRAMS = 1024


@final
class Norm(NamedTuple):
    """The parameters and running statistics of a batch norm of K models, (K, C) each, and its settings."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    eps: float
    momentum: float
    slope: float

    def fixed(self) -> Affine:
        """Return scale and shift from the running statistics, for evaluation."""
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return Affine(scale, self.bias - self.running_mean * scale, self.slope)

    def by(self, moments: Tensor) -> Affine:
        """Return scale and shift from a batch's moments."""
        return Affine(moments[2], moments[3], self.slope)


def moments_of(sums: Tensor, norm: Norm, number: int) -> Tensor:
    """Return the moments of `number` values per channel, and update the running statistics."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    _, programs, num_models, parts, channels = sums.shape
    results = sums.new_empty(4, num_models, channels)
    kernels.moments[(num_models,)](
        sums, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked, results,
        number, norm.eps, norm.momentum, num_models, programs, PARTS=parts, C=channels,
        BS=_power(programs * parts),
    )  # fmt: skip
    return results


def normalise(values: Tensor, norm: Affine) -> Tensor:
    """Return norm(values) for values (K, …, C)."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    outputs = torch.empty_like(values)
    size = values[0].numel()
    kernels.normalise[(-(-size // _BLOCK), len(values))](
        values, norm.scale, norm.shift, outputs, size, norm.slope, C=values.shape[-1], BLOCK=_BLOCK
    )
    return outputs


def pool(values: Tensor, norm: Affine) -> Tensor:
    """Return the means over the pixels of norm(values): (K, B, C) for (K, B, H, W, C)."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    num_models, batch, height, width, channels = values.shape
    outputs = values.new_empty(num_models, batch, channels)
    kernels.pool[(batch, num_models)](
        values, norm.scale, norm.shift, outputs, norm.slope, batch, PIXELS=height * width, C=channels
    )
    return outputs


def pool_gradient(gradient: Tensor, values: Tensor, norm: Affine) -> tuple[Tensor, Tensor]:
    """Return the gradient at the input of `pool`'s leaky ReLU, and its sums."""
    from activebias.lab.side_by_side import norm_kernels as kernels

    num_models, batch, height, width, channels = values.shape
    share = -(-batch // max(1, min(batch, _PROGRAMS // num_models)))
    programs = -(-batch // share)
    outputs = torch.empty_like(values)
    sums = values.new_empty(2, programs, num_models, 1, channels, dtype=torch.float32)
    kernels.pool_gradient[(programs, num_models)](
        values, gradient.contiguous(), norm.scale, norm.shift, outputs, sums, norm.slope, batch, share,
        num_models, PIXELS=height * width, C=channels,
    )  # fmt: skip
    return outputs, sums


def norm_gradient(
    gradient: Tensor,
    sums: Tensor,
    values: Tensor,
    norm: Norm,
    moments: Tensor,
    shortcut: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of values, weight and bias, given the gradient at the leaky ReLU and its sums.

    A shortcut that starts at the values adds its gradient; if it has half the size, its gradient is that of
    means of 2×2 pixels.
    """
    from activebias.lab.side_by_side import norm_kernels as kernels

    _, programs, num_models, parts, channels = sums.shape
    mean, variance, scale, _ = moments
    size = values[0].numel()
    results = torch.empty_like(moments)
    kernels.gradient_of_parameters[(num_models,)](
        sums, mean, variance, scale, results, size // channels, norm.eps, num_models, programs,
        PARTS=parts, C=channels, BS=_power(programs * parts),
    )  # fmt: skip
    of_weight, of_bias, by_value, constant = results
    of_values = torch.empty_like(values)
    kind = "none" if shortcut is None else "same" if shortcut.shape == values.shape else "halved"
    kernels.gradient_of_values[(-(-size // _BLOCK), num_models)](
        values, gradient, values if shortcut is None else shortcut,
        scale, by_value, constant, of_values, size,
        W=values.shape[3], C=channels, SHORTCUT=kind, BLOCK=_BLOCK,
    )  # fmt: skip
    return of_values, of_weight, of_bias


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
