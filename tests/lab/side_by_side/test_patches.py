"""The weights of a residual net's layers, arranged for products by patches: the same convolution."""

import pytest
import torch
import torch.nn.functional as F

from activebias.lab.side_by_side.patches import Layer, Use, _table

LAYERS = [
    Layer(3, 16, 1, 32, 4),
    Layer(16, 16, 1, 32, 16),
    Layer(16, 32, 2, 32, 16),
    Layer(32, 32, 1, 16, 32),
    Layer(32, 64, 2, 16, 32),
    Layer(64, 64, 1, 8, 64),
]
MARGIN = 4


def by_patches(values, arranged, geometry):
    """Return the product that the kernels compute, for values (B, H, W, C) and one model's weights."""
    g = geometry
    padded = F.pad(values, (0, 0, MARGIN, MARGIN, MARGIN, MARGIN))
    y, x = (torch.arange(size // part).view(-1, 1) for size, part in ((g["H"], g["Q"]), (g["W"], g["P"])))
    result = 0
    for step, weights in enumerate(arranged):
        row, column = step // g["COLUMNS"] * g["DEPTH"], step % g["COLUMNS"]
        down = y * g["STEP_H"] + row + g["OFFSET"] + MARGIN + torch.arange(g["DEPTH"])
        across = x * g["STEP_W"] + column + g["OFFSET"] + MARGIN + torch.arange(g["SPAN"])
        patches = padded[:, down[:, None, :, None], across[None, :, None, :]]  # (B, y, x, DEPTH, SPAN, C)
        result = result + patches.flatten(3) @ weights
    parts = result.view(*result.shape[:3], g["Q"], g["P"], g["OUT"])
    return parts.transpose(2, 3).reshape(len(values), g["H"], g["W"], g["OUT"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bf16"])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.inner}-{layer.outer}")
def test_products_by_patches_are_convolutions(layer, dtype):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, layer.size, layer.size, layer.stored, generator=generator, dtype=torch.float64)
    inputs[..., layer.inner :] = 0
    other, weight = (
        torch.randn(layer.outer, layer.inner, 3, 3, generator=generator, dtype=torch.float64)
        for _ in range(2)
    )
    images = inputs[..., : layer.inner].movedim(-1, 1).requires_grad_()
    outputs = F.conv2d(images, weight, stride=layer.stride, padding=1)
    gradient = torch.randn(outputs.shape, generator=generator, dtype=torch.float64)
    outputs.backward(gradient)
    expected = {
        "moments": (inputs, outputs.detach()),
        "activate": (inputs, outputs.detach()),
        "gradient": (gradient.movedim(1, -1), images.grad),
    }
    uses = tuple(Use(kernel, layer, 1) for kernel in list(expected)[: 3 if layer.inner > 3 else 2])
    # The second of two layers, whose weights stand in one row; the last 0 is for places without a weight.
    row = torch.cat([other.flatten(), weight.flatten(), torch.zeros(1)])
    places, shapes = _table(uses, (0, other.numel()), dtype, torch.device("cpu"))
    arranged = row[places.long()].split([shape.numel() for shape in shapes])
    for use, part, shape in zip(uses, arranged, shapes, strict=True):
        values, result = expected[use.kernel]
        found = by_patches(values, part.view(shape), use.geometry(dtype))
        torch.testing.assert_close(found.movedim(-1, 1), result)
