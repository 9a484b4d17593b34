"""ReLU with max-pooling of K models as an operator of PyTorch: with gradients and under `vmap`."""

from typing import Any

import torch
from torch import Tensor

from activebias.lab.side_by_side.mapping import join_models

_BLOCK = 1024


@torch.library.custom_op("activebias::stacked_pool", mutates_args=())
def stacked_pool(values: Tensor) -> Tensor:
    """Return the largest of every 2×2 values (K, B, H, W, C), at least 0; H and W are even."""
    from activebias.lab.side_by_side import pool_kernels as kernels

    values = values.contiguous()
    models, batch, height, width, channels = values.shape
    outputs = values.new_empty(models, batch, height // 2, width // 2, channels)
    size = outputs.numel()
    kernels.pool[(-(-size // _BLOCK),)](values, outputs, size, height, width, C=channels, BLOCK=_BLOCK)
    return outputs


@torch.library.custom_op("activebias::stacked_pool_gradient", mutates_args=())
def pool_gradient(values: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the values."""
    from activebias.lab.side_by_side import pool_kernels as kernels

    values, gradient = values.contiguous(), gradient.contiguous()
    outputs = torch.empty_like(values)
    size, (height, width, channels) = gradient.numel(), values.shape[2:]
    kernels.pool_gradient[(-(-size // _BLOCK),)](
        values, gradient, outputs, size, height, width, C=channels, BLOCK=_BLOCK
    )
    return outputs


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, gradient: Tensor) -> Tensor:
    of_values: Tensor = pool_gradient(ctx.saved_tensors[0], gradient)
    return of_values


stacked_pool.register_autograd(_backward, setup_context=_remember)


join_models(stacked_pool)
