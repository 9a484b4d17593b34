"""Layers that are fast for many models at once on a GPU.

Under `vmap` a convolution of K models becomes a grouped convolution, which is slow on a GPU. Here
convolution, pooling and dropout are operators that know K. Their parameters have the names and values of the
layers that they replace. Residual nets have their own form (`residual`).
"""

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.lab.side_by_side.convolution import stacked_convolution
from activebias.lab.side_by_side.dropout import dropout_keys, stacked_dropout
from activebias.lab.side_by_side.pool import stacked_pool
from activebias.training.dropout import Dropout
from activebias.training.layers import ReluThenPool


def with_stackable_layers(model: nn.Module) -> nn.Module:
    """Replace, in place, layers that have a faster form for K models; returns the model."""
    for name, child in model.named_children():
        if isinstance(child, nn.Conv1d | nn.Conv2d) and PatchConvolution.can_replace(child):
            setattr(model, name, PatchConvolution(child))
        elif isinstance(child, nn.Linear):
            setattr(model, name, StackableLinear(child))
        elif isinstance(child, ReluThenPool):
            setattr(model, name, StackablePool())
        elif isinstance(child, Dropout):
            setattr(model, name, StackableDropout(child))
        else:
            with_stackable_layers(child)
    return model


@final
class PatchConvolution(nn.Module):
    """A convolution as a product of patches and weights, channels last; on a GPU without explicit patches."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d) -> None:
        """Use the layer's parameters, stride and padding."""
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.width, self.stride = layer.kernel_size, layer.stride
        self.padding: tuple[int, ...] = tuple(int(padding) for padding in layer.padding)

    @staticmethod
    def can_replace(layer: nn.Conv1d | nn.Conv2d) -> bool:
        """Return whether the layer is an ordinary convolution, padded with zeros."""
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and set(layer.dilation) == {1}
        return plain and len(set(layer.stride)) == 1 and not isinstance(layer.padding, str)

    def forward(self, values: Tensor) -> Tensor:
        """Return (B, outputs, …) for values (B, inputs, …)."""
        if values.is_cuda and values.dim() == 4:
            outputs: Tensor = stacked_convolution(
                values.movedim(1, -1).unsqueeze(0),
                self.weight.permute(2, 3, 1, 0).unsqueeze(0),
                None if self.bias is None else self.bias.unsqueeze(0),
                self.stride[0],
                *self.padding,
            ).squeeze(0)
        else:
            outputs = self._patches(values) @ self.weight.movedim((0, 1), (-1, -2)).flatten(0, -2)
            outputs = outputs if self.bias is None else outputs + self.bias
        return outputs.movedim(-1, 1)

    def _patches(self, values: Tensor) -> Tensor:
        """Return (B, *positions, window · channels)."""
        margins = [padding for padding in self.padding[::-1] for _ in range(2)]
        patches = [F.pad(values, margins).movedim(1, -1)]
        for dim, (width, stride) in enumerate(zip(self.width, self.stride, strict=True), start=1):
            positions = (patches[0].shape[dim] - width) // stride + 1
            patches = [
                patch.narrow(dim, step, (positions - 1) * stride + 1)[
                    (slice(None),) * dim + (slice(None, None, stride),)
                ]
                for patch in patches
                for step in range(width)
            ]
        return torch.cat(patches, dim=-1)


@final
class StackableLinear(nn.Module):
    """A fully connected layer with the weights as the left factor: their gradient then has their layout.

    With transposed weights as the right factor, the gradient is transposed too, and autograd transposes it
    back. That takes a sixth of the MNIST CNN's time.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """Use the layer's parameters."""
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, values: Tensor) -> Tensor:
        """Return (B, outputs) for values (B, inputs); more leading dimensions are allowed."""
        if not values.is_cuda or values.dim() != 2:
            return F.linear(values, self.weight, self.bias)
        outputs = (self.weight @ values.mT).mT
        return outputs if self.bias is None else outputs + self.bias


@final
class StackablePool(nn.Module):
    """ReLU, then 2×2 max-pooling."""

    def forward(self, values: Tensor) -> Tensor:
        """Return (B, C, H / 2, W / 2)."""
        if not values.is_cuda or values.shape[-1] % 2 or values.shape[-2] % 2:
            return F.max_pool2d(F.relu(values), 2)
        pooled: Tensor = stacked_pool(values.movedim(1, -1).unsqueeze(0))
        return pooled.squeeze(0).movedim(-1, 1)


@final
class StackableDropout(nn.Module):
    """Dropout with the masks of the layer that it replaces."""

    seed: Tensor
    step: Tensor

    def __init__(self, layer: Dropout) -> None:
        """Use the layer's seed and step."""
        super().__init__()
        self.keep, self.row_length = layer.keep, layer.row_length
        for name, buffer in layer.named_buffers():
            self.register_buffer(name, buffer)

    def forward(self, values: Tensor) -> Tensor:
        """Return values (B, …) with a new mask applied; in evaluation mode, unchanged values."""
        if not self.training:
            return values
        keys = dropout_keys(self.seed.unsqueeze(0), self.step.unsqueeze(0))
        self.step.add_(1)
        dropped: Tensor = stacked_dropout(values.unsqueeze(0), keys, self.keep, self.row_length)
        return dropped.squeeze(0)
