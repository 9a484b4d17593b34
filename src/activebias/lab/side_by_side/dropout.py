"""Dropout of K models as an operator of PyTorch: with gradients and under `vmap`."""

from typing import Any

import torch
from torch import Tensor

from activebias.lab.side_by_side.mapping import join_models

_BLOCK = 1024


@torch.library.custom_op("activebias::dropout_keys", mutates_args=())
def dropout_keys(seed: Tensor, step: Tensor) -> Tensor:
    """Return the keys of the masks of K layers, (K, 2), for seeds and steps (K,)."""
    from activebias.lab.side_by_side import dropout_kernels as kernels

    keys = seed.new_empty(len(seed), 2)
    kernels.keys_of[(len(seed),)](seed.contiguous(), step.contiguous(), keys)
    return keys


@torch.library.custom_op("activebias::stacked_dropout", mutates_args=())
def stacked_dropout(values: Tensor, keys: Tensor, keep: float, row_length: int | None) -> Tensor:
    """Keep each value (K, rows, …) with probability `keep`, divided by `keep`; the keys give the masks."""
    from activebias.lab.side_by_side import dropout_kernels as kernels

    values = values.contiguous()
    outputs = torch.empty_like(values)
    size, row = values[0].numel(), values[0, 0].numel()
    kernels.drop[(-(-size // _BLOCK), len(values))](
        values, keys, outputs, size, row, row_length or row, round(keep * 2**32), keep, BLOCK=_BLOCK
    )
    return outputs


@dropout_keys.register_fake
def _(seed: Tensor, step: Tensor) -> Tensor:
    return seed.new_empty(len(seed), 2)


@stacked_dropout.register_fake
def _(values: Tensor, keys: Tensor, keep: float, row_length: int | None) -> Tensor:
    return values.new_empty(values.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, keys, ctx.keep, ctx.row_length = inputs
    ctx.save_for_backward(keys)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return stacked_dropout(gradient, *ctx.saved_tensors, ctx.keep, ctx.row_length), None, None, None


stacked_dropout.register_autograd(_backward, setup_context=_remember)


join_models(dropout_keys)
join_models(stacked_dropout)
