"""The pre-activation residual nets for 32×32 images (rows cifar100-rn27, cifar100-rn63) and augmentation.

The row names follow the paper. Its table counts 13 and 31 batch norms, which is n = 2 and n = 5 units per
stage (its "layers" are twice the convolutions). Row rn27 is `ResidualNet(2)`, row rn63 is `ResidualNet(5)`.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.training.layers import conv2d, expect_shape, half_squares, linear, normal, uniform

_LEAK = 0.1
_MARGIN = 2


class NormThenLeakyReLU(nn.BatchNorm2d):
    """Batch norm and the leaky ReLU that always follows it in these nets."""

    slope = _LEAK

    def forward(self, values: Tensor) -> Tensor:
        """Return values of the same shape."""
        return F.leaky_relu(super().forward(values), self.slope)


class ResidualUnit(nn.Module):
    """BN, leaky ReLU, 3×3 convolution, twice, plus the shortcut.

    If the width grows, the unit halves the image, and the shortcut is average-pooled and padded with zero
    channels, half on each side. With `shared` the shortcut starts after the first BN and ReLU, not before.
    """

    def __init__(
        self, num_inputs: int, num_outputs: int, *, shared: bool, generator: torch.Generator
    ) -> None:
        """Draw the initial weights from `generator`."""
        super().__init__()
        self.shared = shared
        self.extra_channels = num_outputs - num_inputs
        stride = 2 if self.extra_channels else 1
        self.norm_1 = _batch_norm(num_inputs)
        self.convolution_1 = _convolution(num_inputs, num_outputs, generator, stride=stride)
        self.norm_2 = _batch_norm(num_outputs)
        self.convolution_2 = _convolution(num_outputs, num_outputs, generator)

    def forward(self, values: Tensor) -> Tensor:
        """Return the unit's output, (B, num_outputs, H / stride, W / stride)."""
        activated = self.norm_1(values)
        shortcut = activated if self.shared else values
        if self.extra_channels:
            shortcut = _halved(shortcut, self.extra_channels // 2)
        residual = self.convolution_1(activated)
        residual = self.convolution_2(self.norm_2(residual))
        total: Tensor = shortcut + residual
        return total


class ResidualNet(nn.Module):
    """Conv 3×3×16, three stages of `units` residual units (16, 32, 64), BN, ReLU, global average pool, FC.

    >>> model = ResidualNet(2, generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 100])
    """

    def __init__(self, units: int, *, generator: torch.Generator, num_classes: int = 100) -> None:
        """Draw the initial weights from `generator`."""
        super().__init__()
        if units < 1:
            raise ValueError(f"Expected `units` (per stage) to be at least 1, but got {units}.")
        self.first = _convolution(3, 16, generator)
        widths = [16] * units + [32] * units + [64] * units
        self.units = nn.Sequential(
            *(
                ResidualUnit(inputs, outputs, shared=number == 0, generator=generator)
                for number, (inputs, outputs) in enumerate(pairwise([16, *widths]))
            )
        )
        self.last_norm = _batch_norm(64)
        # The base implementation's "uniform unit scaling": limit sqrt(3 / inputs).
        self.output = linear(64, num_classes, uniform(math.sqrt(3 / 64), generator), bias=0.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) for raw images (B, 3, 32, 32)."""
        expect_shape("images", images, ("B", 3, 32, 32))
        values = self.units(self.first(standardise(images, self.output.weight.dtype)))
        values = self.last_norm(values).mean(dim=(2, 3))
        logits: Tensor = self.output(values)
        return logits

    def regulariser(self) -> Tensor:
        """Return 2e-4 · ½‖W‖² over the weights (not the biases) of all convolutions and the last layer."""
        layers = (module for module in self.modules() if isinstance(module, nn.Conv2d | nn.Linear))
        return 2e-4 * half_squares(*(layer.weight for layer in layers))

    def weight_decay(self) -> dict[str, float]:
        """Return the regulariser's strength by parameter."""
        return {
            f"{name}.weight": 2e-4
            for name, module in self.named_modules()
            if isinstance(module, nn.Conv2d | nn.Linear)
        }


def _halved(values: Tensor, margin: int) -> Tensor:
    """Average 2×2 pixels, and add `margin` channels of zeros on both sides; channels last in storage."""
    batch, channels, height, width = values.shape
    pairs = values.movedim(1, -1).reshape(batch, height // 2, 2, width // 2, 2, channels)
    return F.pad(pairs.mean(dim=(2, 4)), (margin, margin)).movedim(-1, 1)


def standardise(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Give each image mean 0 and standard deviation 1.

    The deviation is at least 1 / sqrt(number of values), so that a flat image becomes zeros.

    >>> standardise(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-1.,  1.]]]])
    """
    values = images.to(dtype)
    deviation, mean = torch.std_mean(values, dim=(1, 2, 3), correction=0, keepdim=True)
    return (values - mean) / deviation.clamp(min=1 / math.sqrt(images[0].numel()))


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image by up to 2 pixels each way (padded with zeros), and flip half of them, at random.

    >>> images = torch.ones(4, 3, 32, 32, dtype=torch.uint8)
    >>> augment(images, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    if images.dim() != 4:
        raise ValueError(f"Expected `images` of shape (B, C, H, W), but got {tuple(images.shape)}.")
    top, left, flip = draw_shifts(len(images), generator).to(images.device)
    return crop_and_flip(images, top, left, flip)


def draw_shifts(num_images: int, generator: torch.Generator) -> Tensor:
    """Draw the crop position of each image (top and left, 0 … 4) and its flip (0 or 1): (3, num_images)."""
    device = generator.device
    offsets = torch.randint(2 * _MARGIN + 1, (2, num_images), generator=generator, device=device)
    flip = torch.randint(2, (1, num_images), generator=generator, device=device)
    return torch.cat([offsets, flip])


def crop_and_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    """Pad 2 zeros on every side, crop at (top, left) (0 … 4, one each per image), flip left-right if `flip`.

    Without random numbers, so that the side-by-side engine can draw its own; works under vmap.

    >>> image = torch.arange(1, 5).view(1, 1, 2, 2)
    >>> crop_and_flip(image, torch.tensor([3]), torch.tensor([2]), torch.tensor([1])).tolist()
    [[[[4, 3], [0, 0]]]]
    """
    num_images, num_channels, height, width = images.shape
    padded = F.pad(images, (_MARGIN, _MARGIN, _MARGIN, _MARGIN))
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = left[:, None] + torch.where(flip[:, None] > 0, width - 1 - columns, columns)
    image = torch.arange(num_images, device=images.device)
    channel = torch.arange(num_channels, device=images.device)
    return padded[
        image[:, None, None, None],
        channel[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None],
    ]


def _batch_norm(num_channels: int) -> NormThenLeakyReLU:
    # momentum 0.1 is the base implementation's moving average with decay 0.9.
    return NormThenLeakyReLU(num_channels, eps=1e-3, momentum=0.1)


def _convolution(
    num_inputs: int, num_outputs: int, generator: torch.Generator, *, stride: int = 1
) -> nn.Conv2d:
    initial = normal(math.sqrt(2 / (3 * 3 * num_outputs)), generator)
    return conv2d(num_inputs, num_outputs, 3, initial, bias=None, stride=stride)
