"""The teacher of the row mnist-fc-distill: trained once (RMSProp 1e-3), then fixed."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.training.dropout import Dropout
from activebias.training.layers import conv2d, expect_shape, linear, normal


class DistillationTeacher(nn.Module):
    """Three 3×3 convolutions (32, 64, 128), each ReLU, max-pool 2 and dropout; FC 625, ReLU, dropout; FC 10.

    As in the paper's base implementation: weights N(0, 0.01²), no biases, dropout after every pooling.

    >>> model = DistillationTeacher(generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, generator: torch.Generator, num_classes: int = 10) -> None:
        """Draw the initial weights from `generator`."""
        super().__init__()
        initial = normal(0.01, generator)
        widths = (1, 32, 64, 128)
        self.convolutions = nn.ModuleList(
            conv2d(inputs, outputs, 3, initial, bias=None) for inputs, outputs in pairwise(widths)
        )
        self.hidden = linear(4 * 4 * 128, 625, initial, bias=None)
        self.output = linear(625, num_classes, initial, bias=None)
        self.convolution_dropouts = nn.ModuleList(
            Dropout(0.8, generator=generator) for _ in self.convolutions
        )
        self.hidden_dropout = Dropout(0.5, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) for raw images (B, 1, 28, 28)."""
        expect_shape("images", images, ("B", 1, 28, 28))
        values = images.to(self.output.weight.dtype) / 255
        for convolution, dropout in zip(self.convolutions, self.convolution_dropouts, strict=True):
            # ceil_mode pools the last row and column of 7×7 too, which gives 4×4.
            values = dropout(F.max_pool2d(F.relu(convolution(values)), 2, ceil_mode=True))
        values = self.hidden_dropout(F.relu(self.hidden(values.flatten(1))))
        logits: Tensor = self.output(values)
        return logits

    def regulariser(self) -> Tensor:
        """Return 0: the teacher has no regulariser."""
        return self.output.weight.new_zeros(())

    def weight_decay(self) -> dict[str, float]:
        """Return nothing."""
        return {}
