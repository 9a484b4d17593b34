"""Softmax regression on raw pixels (row cifar10-lr)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias.training.layers import expect_shape, half_squares, normal


class SoftmaxRegression(nn.Module):
    """A linear map of the pixels minus the training mean image, plus a constant feature 1.

    The constant's weights are the last column of `weight`, so that the regulariser covers them too.

    >>> mean = torch.zeros(3, 32, 32)
    >>> model = SoftmaxRegression(mean, generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape, model.weight.shape
    (torch.Size([2, 10]), torch.Size([10, 3073]))
    """

    mean: Tensor

    def __init__(
        self, mean: Tensor, *, generator: torch.Generator, num_classes: int = 10, spread: float = 1e-4
    ) -> None:
        """Keep the mean training image (C, H, W) as a buffer; draw the initial weights from `generator`.

        Their standard deviation is `spread`.
        """
        super().__init__()
        if mean.dim() != 3 or not mean.is_floating_point():
            raise ValueError(
                "Expected `mean` to be the mean training image, floating point of shape (C, H, W), "
                f"but got {mean.dtype} of shape {tuple(mean.shape)}."
            )
        self.register_buffer("mean", mean.detach().to(torch.float32, copy=True))
        self.weight = nn.Parameter(normal(spread, generator)((num_classes, mean.numel() + 1)))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) for raw images of the mean's shape."""
        expect_shape("images", images, ("B", *self.mean.shape))
        pixels = (images.to(self.weight.dtype) - self.mean).flatten(1)
        return F.linear(F.pad(pixels, (0, 1), value=1.0), self.weight)

    def regulariser(self) -> Tensor:
        """Return 0.5 · 0.01 · ‖W‖²."""
        return 0.01 * half_squares(self.weight)

    def weight_decay(self) -> dict[str, float]:
        """Return the regulariser's strength by parameter."""
        return {"weight": 0.01}
