"""3×3 convolutions of K models with few channels: the sizes of patches, and launches of the kernels."""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from activebias.lab.side_by_side.convolution import precision

# The most values of a patch that are multiplied at once, of one row and of all rows: more would not fit.
_WIDEST, _DEEPEST = 128, 256
_BLOCK = 2048


@final
class Tile(NamedTuple):
    """The tiling of a kernel: patches per tile, warps, loads in flight.

    `programs` is the number of programs that keep the weights and share all patches, or 0 for one program per
    tile. `rows` is the number of window rows at once, in a weight gradient. `registers` is the most that a
    thread may use: with 168, three programs of four warps fit on a multiprocessor.
    """

    size: int
    num_warps: int
    num_stages: int
    programs: int = 0
    rows: int = 1
    registers: int | None = None


# By kernel, inner channels of the layer and stride: the fastest tiles on an H200.
_TILES: dict[tuple[str, int, int], Tile] = {
    ("moments", 3, 1): Tile(64, 4, 1, 528),
    ("moments", 16, 1): Tile(64, 4, 1, 396),
    ("moments", 16, 2): Tile(64, 4, 1, 528),
    ("moments", 32, 1): Tile(64, 4, 1, 396),
    ("moments", 32, 2): Tile(64, 4, 1, 396),
    ("moments", 64, 1): Tile(128, 4, 3),
    ("gradient", 16, 1): Tile(64, 4, 1, 396, registers=168),
    ("gradient", 16, 2): Tile(64, 4, 1, 396),
    ("gradient", 32, 1): Tile(64, 4, 1, 264),
    ("gradient", 32, 2): Tile(64, 4, 1, 264),
    ("gradient", 64, 1): Tile(128, 4, 3),
    ("activate", 3, 1): Tile(64, 4, 1, 660),
    ("activate", 16, 1): Tile(128, 4, 3),
    ("activate", 16, 2): Tile(128, 4, 2),
    ("activate", 32, 1): Tile(64, 4, 1, 396),
    ("activate", 32, 2): Tile(64, 4, 1, 396),
    ("activate", 64, 1): Tile(64, 4, 3),
    ("weights", 3, 1): Tile(128, 4, 2, 528, 4),
    ("weights", 16, 1): Tile(64, 4, 3, 264, 4),
    ("weights", 16, 2): Tile(64, 4, 3, 264, 3),
    ("weights", 32, 1): Tile(64, 4, 3, 528),
    ("weights", 32, 2): Tile(64, 4, 3, 264),
    ("weights", 64, 1): Tile(64, 4, 3, 264),
}
# float32 values need twice the space.
_WIDE_TILE, _WIDE_WEIGHTS_TILE = Tile(64, 4, 1), Tile(32, 4, 1, 264)


def _tile_of(kernel: str, layer: "Layer", dtype: torch.dtype) -> Tile:
    """Return the tile of a kernel for a layer."""
    if dtype == torch.float32:
        return _WIDE_WEIGHTS_TILE if kernel == "weights" else _WIDE_TILE
    return _TILES[kernel, layer.inner, layer.stride]


@final
class Layer(NamedTuple):
    """A 3×3 convolution with a margin of one zero: its channels, its stride and the size of its input.

    `stored` is the number of channels in the input's storage; channels that no weight reads are zeros.
    """

    inner: int
    outer: int
    stride: int
    size: int
    stored: int

    @property
    def size_out(self) -> int:
        """The height and width of the output."""
        return self.size // self.stride


@cache
def _geometry(layer: Layer, *, transposed: bool = False, deep: bool = False) -> dict[str, Any]:
    """Return how patches cover the product's output (TRANSPOSED: the layer's input): see the kernels."""
    stride = layer.stride
    inner, outer = (layer.outer, layer.inner) if transposed else (layer.stored, layer.outer)
    if stride == 2:
        down, across = (2, 2) if transposed else (1, 1)
    else:
        down, across = {32: (1, 2), 64: (1, 1)}.get(inner, (2, 2))
    if transposed:
        rows, columns = (down + 2, across + 2) if stride == 1 else (2, 2)
        step, offset = (down // stride, across // stride), -1 if stride == 1 else 0
    else:
        rows, columns = stride * (down - 1) + 3, stride * (across - 1) + 3
        step, offset = (stride * down, stride * across), -1
    span = 1 << (columns - 1).bit_length()
    columns, span = (1, span) if span * inner <= _WIDEST and (across > 1 or stride > 1) else (columns, 1)
    depth = 1 << (rows - 1).bit_length()
    depth = depth if deep and depth * span * inner <= _DEEPEST else 1
    sizes = (layer.size_out, layer.size) if transposed else (layer.size, layer.size_out)
    by_input, by_output = 9, 9 * layer.inner
    return {
        "H_IN": sizes[0], "W_IN": sizes[0], "H": sizes[1], "W": sizes[1],
        "C": inner, "REAL_C": layer.outer if transposed else layer.inner, "OUT": outer,
        "INNER_STRIDE": by_output if transposed else by_input,
        "OUTER_STRIDE": by_input if transposed else by_output,
        "Q": down, "P": across, "ROWS": rows, "COLUMNS": columns, "SPAN": span, "DEPTH": depth,
        "STEP_H": step[0], "STEP_W": step[1], "S": stride, "OFFSET": offset, "TRANSPOSED": transposed,
    }  # fmt: skip


@final
class Use(NamedTuple):
    """A kernel that multiplies by the weights of a layer; `weight` is their position among all weights."""

    kernel: str
    layer: Layer
    weight: int

    def geometry(self, dtype: torch.dtype) -> dict[str, Any]:
        """Return the kernel's geometry for values of this type."""
        deep = _tile_of(self.kernel, self.layer, dtype).programs > 0
        return _geometry(self.layer, transposed=self.kernel == "gradient", deep=deep)

    def places(self, dtype: torch.dtype) -> Tensor:
        """Return where the weights from the inputs to the outputs of a patch stand among a model's weights.

        The result is (steps, DEPTH · SPAN · C, Q · P · OUT). It is -1 where no weight joins the two.
        """
        wide = SimpleNamespace(**self.geometry(dtype))
        steps = -(-wide.ROWS // wide.DEPTH) * wide.COLUMNS
        step = torch.arange(steps).view(-1, 1, 1)
        inner = torch.arange(wide.DEPTH * wide.SPAN * wide.C).view(-1, 1)
        outer = torch.arange(wide.Q * wide.P * wide.OUT)
        row = step // wide.COLUMNS * wide.DEPTH + inner // (wide.SPAN * wide.C)
        column = step % wide.COLUMNS + inner // wide.C % wide.SPAN

        def tap(near: Tensor, far: Tensor) -> Tensor:
            """Return the place in the window, of 3, that joins the input `far` of a patch to its output."""
            joined: Tensor = far - wide.S * near
            if wide.TRANSPOSED:
                joined = near + 1 - wide.S * (far + wide.OFFSET)
            return joined

        tap_y = tap(outer // (wide.P * wide.OUT), row)
        tap_x = tap(outer // wide.OUT % wide.P, column)
        channel = inner % wide.C
        exists = (tap_y >= 0) & (tap_y < 3) & (tap_x >= 0) & (tap_x < 3) & (channel < wide.REAL_C)
        place = channel * wide.INNER_STRIDE + outer % wide.OUT * wide.OUTER_STRIDE + tap_y * 3 + tap_x
        return torch.where(exists, place, -1)


@cache
def _table(
    uses: tuple[Use, ...], starts: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, list[torch.Size]]:
    """Return the places of all uses in one row, for weights that begin at `starts`, and the uses' shapes."""
    places = [use.places(dtype) for use in uses]
    shifted = [
        torch.where(each < 0, -1, each + starts[use.weight]) for use, each in zip(uses, places, strict=True)
    ]
    row = torch.cat([each.flatten() for each in shifted])
    return row.to(device, torch.int32), [each.shape for each in places]


def arrange(uses: tuple[Use, ...], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the weights (K, O, C, 3, 3) as the kernels multiply by them: (K, steps, inner, outer) per use.

    All layers of a net at once: a launch per layer would take longer than the work.
    """
    from activebias.lab.side_by_side import patch_kernels as kernels

    flat = torch.cat([weight.flatten(1) for weight in weights], dim=1)
    starts = tuple(accumulate((weight[0].numel() for weight in weights), initial=0))[:-1]
    places, shapes = _table(uses, starts, flat.dtype, flat.device)
    arranged = flat.new_empty(len(flat), len(places))
    kernels.arrange[(-(-len(places) // _BLOCK), len(flat))](
        flat, places, arranged, flat.shape[1], len(places), BLOCK=_BLOCK
    )
    parts = torch.split(arranged, [shape.numel() for shape in shapes], dim=1)
    return [part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


@final
class Affine(NamedTuple):
    """leaky(values · scale + shift): a batch norm, (K, C) each, and the ReLU after it."""

    scale: Tensor
    shift: Tensor
    slope: float


def convolve(
    layer: Layer, values: Tensor, weight: Tensor, shortcut: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Convolve values (K, B, H, W, C) with weights arranged for "moments", and add a shortcut.

    Returns the outputs and the sums (2, …, K, …, O), from which `norm.moments_of` computes the moments.
    """
    outputs, _, sums = _launch("moments", layer, values, weight, shortcut=shortcut)
    return outputs, sums


def input_gradient(
    layer: Layer,
    gradient: Tensor,
    weight: Tensor,
    before: Tensor,
    norm: Affine,
    shortcut: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the gradient at the leaky ReLU before the layer, and the sums for its norm.

    The layer's input is norm(`before`). The gradient of a shortcut is added. The weights are arranged for
    "gradient".
    """
    outputs, _, sums = _launch(
        "gradient", layer, gradient, weight, before=before, norm=norm, shortcut=shortcut
    )
    return outputs, sums


def activate(
    layer: Layer,
    values: Tensor,
    weight: Tensor,
    norm: Affine,
    shortcut: Tensor | None = None,
    *,
    raw: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return a convolution's outputs (only with `raw`) and norm(outputs), for evaluation.

    The weights are arranged for "activate".
    """
    outputs, activated, _ = _launch("activate", layer, values, weight, norm=norm, shortcut=shortcut, raw=raw)
    return outputs, activated


def halve(values: Tensor) -> Tensor:
    """Average 2×2 positions, and add half as many channels of zeros on both sides."""
    from activebias.lab.side_by_side import patch_kernels as kernels

    num_models, batch, height, width, channels = values.shape
    outputs = values.new_empty(num_models, batch, height // 2, width // 2, 2 * channels)
    kernels.halve[(-(-outputs.numel() // _BLOCK),)](
        values, outputs, outputs.numel(), W=width, C=channels, BLOCK=_BLOCK
    )
    return outputs


def _launch(
    after: str,
    layer: Layer,
    values: Tensor,
    weight: Tensor,
    *,
    before: Tensor | None = None,
    norm: Affine | None = None,
    shortcut: Tensor | None = None,
    raw: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    from activebias.lab.side_by_side import patch_kernels as kernels

    tile = _tile_of(after, layer, values.dtype)
    geometry = _geometry(layer, transposed=after == "gradient", deep=tile.programs > 0)
    num_models, batch = len(weight), values.shape[1]
    size, outer, parts = geometry["H"], geometry["OUT"], geometry["Q"] * geometry["P"]
    programs, share = _shares(geometry, batch, num_models, tile)
    outputs, activated = (
        values.new_empty((num_models, batch, size, size, outer) if wanted else (1,))
        for wanted in (raw, after == "activate")
    )
    sums = values.new_empty(
        (2, programs, num_models, parts, outer) if after != "activate" else (1,), dtype=torch.float32
    )
    norm = norm or Affine(sums, sums, 0.0)  # a placeholder, which the kernel does not read
    kernels.convolve[(programs, num_models)](
        values, weight, outputs, activated, outputs if shortcut is None else shortcut,
        outputs if before is None else before, norm.scale, norm.shift, sums,
        batch, share, num_models, values.stride(0), weight.stride(0), norm.slope,
        **_named(geometry, "H_IN W_IN H W C OUT Q P ROWS COLUMNS SPAN DEPTH STEP_H STEP_W OFFSET"),
        SHORTCUT=shortcut is not None, AFTER=after, RAW=raw,
        RESIDENT=tile.programs > 0, BM=tile.size, PRECISION=precision(values),
        num_warps=tile.num_warps, num_stages=tile.num_stages,
        maxnreg=tile.registers,
    )  # fmt: skip
    return outputs, activated, sums


def weight_gradient(layer: Layer, values: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the weights, (K, O, C, 3, 3)."""
    from activebias.lab.side_by_side import patch_kernels as kernels

    geometry = _geometry(layer)
    num_models, batch = gradient.shape[:2]
    tile = _tile_of("weights", layer, values.dtype)
    rows, columns, span = geometry["ROWS"], geometry["COLUMNS"], geometry["SPAN"]
    at_once = min(tile.rows, rows)
    programs, share = _shares(geometry, batch, num_models * (rows // at_once), tile)
    width, inner = geometry["Q"] * geometry["P"] * layer.outer, span * layer.stored
    partial = gradient.new_empty(programs, num_models, rows, columns, inner, width, dtype=torch.float32)
    kernels.weight_gradient[(programs, rows // at_once, num_models)](
        values, gradient, partial, batch, share, num_models, values.stride(0),
        **_named(geometry, "H_IN W_IN H W C OUT Q P ROWS COLUMNS SPAN STEP_H STEP_W"),
        AT_ONCE=at_once, BM=tile.size, PRECISION=precision(values),
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    result = gradient.new_empty(num_models, layer.outer, layer.inner, 3, 3)
    block = min(16, layer.stored)
    kernels.fold[(num_models, 9, layer.stored // block)](
        partial, result, programs, num_models,
        **_named(geometry, "C REAL_C OUT Q P ROWS COLUMNS SPAN S"), BC=block,
    )  # fmt: skip
    return result


def _named(geometry: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: geometry[name] for name in names.split()}


def _shares(geometry: dict[str, Any], batch: int, num_models: int, tile: Tile) -> tuple[int, int]:
    """Return how many programs share a model's patches, and the number of tiles per program."""
    patches = batch * (geometry["H"] // geometry["Q"]) * (geometry["W"] // geometry["P"])
    tiles = -(-patches // tile.size)
    share = -(-tiles // max(1, min(tiles, tile.programs // num_models))) if tile.programs else 1
    return -(-tiles // share), share
