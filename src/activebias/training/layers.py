"""Layers with explicit initial values, and helpers that all models share."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Initialiser = Callable[[Sequence[int]], Tensor]
"""A function from a shape to initial values; it holds its own generator."""

_Layer = TypeVar("_Layer", nn.Linear, nn.Conv1d, nn.Conv2d)


def truncated_normal(std: float, generator: torch.Generator) -> Initialiser:
    """Return an initialiser N(0, std²), cut at two standard deviations.

    >>> weights = truncated_normal(0.1, torch.Generator().manual_seed(0))((1000,))
    >>> bool(weights.abs().max() <= 0.2)
    True
    """

    # Not `nn.init.trunc_normal_`: in torch 2.13 it draws in another way than in 2.11, which trained most of
    # the stored trials. A seed must begin from the same weights with every torch.
    edge = math.erf(math.sqrt(2))

    def initial(shape: Sequence[int]) -> Tensor:
        values = torch.empty(tuple(shape)).uniform_(-edge, edge, generator=generator)
        return values.erfinv_().mul_(std * math.sqrt(2)).clamp_(-2 * std, 2 * std)

    return initial


def normal(std: float, generator: torch.Generator) -> Initialiser:
    """Return an initialiser N(0, std²)."""
    return lambda shape: std * torch.randn(tuple(shape), generator=generator)


def uniform(limit: float, generator: torch.Generator) -> Initialiser:
    """Return an initialiser that is uniform on [-limit, limit]."""
    return lambda shape: limit * (2 * torch.rand(tuple(shape), generator=generator) - 1)


def xavier(generator: torch.Generator) -> Initialiser:
    """Return the initialiser of Glorot and Bengio: uniform, limit sqrt(6 / (fan in + fan out))."""

    def initial(shape: Sequence[int]) -> Tensor:
        receptive_field = math.prod(shape[2:])
        return uniform(math.sqrt(6 / ((shape[0] + shape[1]) * receptive_field)), generator)(shape)

    return initial


def linear(num_inputs: int, num_outputs: int, initial: Initialiser, *, bias: float | None) -> nn.Linear:
    """Return a fully connected layer; `bias` is the initial value of every bias, None for no biases.

    >>> layer = linear(3, 2, truncated_normal(0.1, torch.Generator().manual_seed(0)), bias=0.1)
    >>> layer.bias.tolist() == torch.full((2,), 0.1).tolist()
    True
    """
    layer = nn.Linear(num_inputs, num_outputs, bias=bias is not None, device="meta")
    return _filled(layer, initial, bias)


def conv1d(
    num_inputs: int, num_outputs: int, width: int, initial: Initialiser, *, bias: float, same: bool
) -> nn.Conv1d:
    """Return a convolution over time; `same` pads so that the length does not change (odd widths)."""
    padding = width // 2 if same else 0
    layer = nn.Conv1d(num_inputs, num_outputs, width, padding=padding, device="meta")
    return _filled(layer, initial, bias)


def conv2d(
    num_inputs: int,
    num_outputs: int,
    width: int,
    initial: Initialiser,
    *,
    bias: float | None,
    stride: int = 1,
) -> nn.Conv2d:
    """Return a convolution with `width // 2` zeros on every side ("same" at stride 1)."""
    layer = nn.Conv2d(
        num_inputs,
        num_outputs,
        width,
        stride=stride,
        padding=width // 2,
        bias=bias is not None,
        device="meta",
    )
    return _filled(layer, initial, bias)


class ReluThenPool(nn.Module):
    """ReLU and 2×2 max-pooling, always used together in these models; an odd last row is dropped."""

    def forward(self, values: Tensor) -> Tensor:
        """Return (B, C, H / 2, W / 2)."""
        return F.max_pool2d(F.relu(values), 2)


def half_squares(*tensors: Tensor) -> Tensor:
    """Return ½‖·‖² over all the tensors, a scalar.

    >>> half_squares(torch.tensor([3.0, 4.0]), torch.tensor([[2.0]]))
    tensor(14.5000)
    """
    return 0.5 * torch.stack([tensor.square().sum() for tensor in tensors]).sum()


def expect_shape(name: str, tensor: Tensor, expected: Sequence[int | str]) -> None:
    """Raise if a tensor has another shape; a string in `expected` matches any size.

    >>> expect_shape("images", torch.zeros(5, 1, 8, 8), ("B", 1, 28, 28))
    Traceback (most recent call last):
    ValueError: Expected `images` of shape (B, 1, 28, 28), but got (5, 1, 8, 8).
    """
    same_rank = tensor.dim() == len(expected)
    if same_rank and all(
        isinstance(wanted, str) or wanted == size for wanted, size in zip(expected, tensor.shape, strict=True)
    ):
        return
    wanted_shape = ", ".join(str(size) for size in expected)
    raise ValueError(f"Expected `{name}` of shape ({wanted_shape}), but got {tuple(tensor.shape)}.")


def expect_integers(name: str, tensor: Tensor) -> None:
    """Raise if a tensor cannot hold row numbers of a table.

    >>> expect_integers("words", torch.zeros(2))
    Traceback (most recent call last):
    ValueError: Expected `words` of dtype int32 or int64 (row numbers), but got float32.
    """
    if tensor.dtype not in (torch.int32, torch.int64):
        came = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"Expected `{name}` of dtype int32 or int64 (row numbers), but got {came}.")


def _filled(layer: _Layer, initial: Initialiser, bias: float | None) -> _Layer:
    # The layer has no storage ("meta"), so that PyTorch's initialisation drew nothing from the global
    # random state. The storage is allocated here.
    layer = layer.to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.copy_(initial(layer.weight.shape))
        if layer.bias is not None and bias is not None:
            layer.bias.fill_(bias)
    return layer
