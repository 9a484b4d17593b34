"""The MNIST models: the convolutional net (rows mnist-cnn, noisy-mnist-cnn) and 784-100-10 (mnist-fc)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.training.dropout import Dropout
from activebias.training.layers import (
    ReluThenPool,
    conv2d,
    expect_shape,
    half_squares,
    linear,
    truncated_normal,
)


class MnistCNN(nn.Module):
    """Two 5×5 convolutions (32, 64), each with ReLU and max-pool 2; FC 512, ReLU, dropout; FC 10.

    >>> model = MnistCNN(generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, generator: torch.Generator, num_classes: int = 10) -> None:
        """Draw the initial weights from `generator`."""
        super().__init__()
        initial = truncated_normal(0.1, generator)
        self.convolution_1 = conv2d(1, 32, 5, initial, bias=0.0)
        self.convolution_2 = conv2d(32, 64, 5, initial, bias=0.1)
        self.hidden = linear(7 * 7 * 64, 512, initial, bias=0.1)
        self.output = linear(512, num_classes, initial, bias=0.1)
        self.pool_1, self.pool_2 = ReluThenPool(), ReluThenPool()
        self.dropout = Dropout(0.5, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) for raw images (B, 1, 28, 28)."""
        expect_shape("images", images, ("B", 1, 28, 28))
        values = (images.to(self.output.weight.dtype) - 127.5) / 255
        values = self.pool_1(self.convolution_1(values))
        values = self.pool_2(self.convolution_2(values))
        values = F.relu(self.hidden(values.flatten(1)))
        logits: Tensor = self.output(self.dropout(values))
        return logits

    def regulariser(self) -> Tensor:
        """Return 5e-4 · ½‖·‖² over both fully connected layers, biases included."""
        return 5e-4 * half_squares(*self.hidden.parameters(), *self.output.parameters())

    def weight_decay(self) -> dict[str, float]:
        """Return the regulariser's strength by parameter."""
        return dict.fromkeys(("hidden.weight", "hidden.bias", "output.weight", "output.bias"), 5e-4)


class SigmoidNet(nn.Module):
    """784-100-10 with a sigmoid hidden layer; also the student of the distillation row.

    >>> model = SigmoidNet(generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, generator: torch.Generator, num_classes: int = 10) -> None:
        """Draw the initial weights from `generator`."""
        super().__init__()
        initial = truncated_normal(0.1, generator)
        self.hidden = linear(784, 100, initial, bias=0.0)
        self.output = linear(100, num_classes, initial, bias=0.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) for raw images (B, 1, 28, 28)."""
        expect_shape("images", images, ("B", 1, 28, 28))
        # Cast and divided in one pass, because a batch is large compared with this small net.
        pixels = (images.flatten(1) / 255).to(self.output.weight.dtype)
        logits: Tensor = self.output(torch.sigmoid(self.hidden(pixels)))
        return logits

    def regulariser(self) -> Tensor:
        """Return 0: the paper's table lists no regulariser for this net."""
        return self.output.weight.new_zeros(())

    def weight_decay(self) -> dict[str, float]:
        """Return nothing."""
        return {}
