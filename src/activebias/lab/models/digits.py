"""The model of the demo: a small net for scikit-learn's digits."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.training.layers import expect_shape, linear, normal


class DigitsMLP(nn.Module):
    """64-64-10 with ReLU, for 8×8 images of 0 … 16.

    >>> model = DigitsMLP(generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, generator: torch.Generator, num_classes: int = 10) -> None:
        """Draw the initial weights from `generator`."""
        super().__init__()
        initial = normal(math.sqrt(2 / 64), generator)
        self.hidden = linear(64, 64, initial, bias=0.0)
        self.output = linear(64, num_classes, initial, bias=0.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) for raw images (B, 1, 8, 8)."""
        expect_shape("images", images, ("B", 1, 8, 8))
        pixels = images.flatten(1).to(self.output.weight.dtype) / 16
        logits: Tensor = self.output(F.relu(self.hidden(pixels)))
        return logits

    def regulariser(self) -> Tensor:
        """Return 0: the net has no regulariser."""
        return self.output.weight.new_zeros(())

    def weight_decay(self) -> dict[str, float]:
        """Return nothing."""
        return {}
