"""Layers that stay fast when many models run as one on a GPU.

Under `vmap` a convolution of K models is a grouped convolution and batch norm moves K in among the channels:
both are slow on a GPU. Here a convolution is a matrix product over patches, which `vmap` turns into one
batched product, and batch norm is plain arithmetic that a compiler fuses. Names and values of the
parameters are those of the layers that they stand in for.
"""

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def with_stackable_layers(model: nn.Module) -> nn.Module:
    """Replace, in place, what has a form that stacks better; returns the model."""
    for name, child in model.named_children():
        if isinstance(child, nn.Conv1d | nn.Conv2d) and PatchConvolution.can_replace(child):
            setattr(model, name, PatchConvolution(child))
        elif isinstance(child, nn.BatchNorm2d):
            setattr(model, name, PlainBatchNorm(child))
        else:
            with_stackable_layers(child)
    return model


@final
class PatchConvolution(nn.Module):
    """A convolution as a product of patches (positions, width · channels) and weights, channels last."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d) -> None:
        """Take over the layer's parameters, stride and padding."""
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.width, self.stride, self.padding = layer.kernel_size, layer.stride, layer.padding

    @staticmethod
    def can_replace(layer: nn.Conv1d | nn.Conv2d) -> bool:
        """Tell whether the layer is an ordinary convolution, padded with zeros."""
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and set(layer.dilation) == {1}
        return plain and not isinstance(layer.padding, str)

    def forward(self, values: Tensor) -> Tensor:
        """Return (B, outputs, …) for values (B, inputs, …)."""
        num_spatial = len(self.width)
        margins = [margin for padding in reversed(self.padding) for margin in (padding, padding)]
        patches = F.pad(values, margins)
        for dim, (width, stride) in enumerate(zip(self.width, self.stride, strict=True), start=2):
            patches = patches.unfold(dim, width, stride)
        # (B, C, *positions, *window) → (B, *positions, *window, C), whose last dimensions are one patch.
        spatial = range(2, 2 + num_spatial)
        window = range(2 + num_spatial, 2 + 2 * num_spatial)
        patches = patches.permute(0, *spatial, *window, 1).flatten(1 + num_spatial)
        weight = self.weight.permute(*range(2, 2 + num_spatial), 1, 0).flatten(0, num_spatial)
        outputs = patches @ weight
        if self.bias is not None:
            outputs = outputs + self.bias
        return outputs.movedim(-1, 1)


@final
class PlainBatchNorm(nn.Module):
    """Batch norm of images, in float32 whatever comes in; the running statistics as in `nn.BatchNorm2d`."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        """Take over the layer's parameters and buffers."""
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.momentum = 0.1 if layer.momentum is None else layer.momentum
        for name, buffer in layer.named_buffers():
            self.register_buffer(name, buffer)

    def forward(self, values: Tensor) -> Tensor:
        """Return values of the same shape and dtype."""
        wide = values.float()
        mean, variance = self.running_mean, self.running_var
        if self.training:
            variance, mean = torch.var_mean(wide, dim=(0, 2, 3), correction=0)
            number = values.numel() / values.shape[1]
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * (number / (number - 1)), self.momentum)
                self.num_batches_tracked.add_(1)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return torch.addcmul(shift[:, None, None], wide, scale[:, None, None]).to(values.dtype)
