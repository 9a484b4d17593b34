"""Small pictures of the instances, packed into sprite sheets under a budget of bytes."""

import io
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The most pixels of a picture's longer side in the page. Smaller images keep every pixel.
LONGEST_SIDE = 96
# Pictures across and down a sheet: few sheets, and every sheet small enough for all browsers.
ACROSS = 24
# Up to this number of bytes of pixels, the sheets are compressed without loss.
LOSSLESS_BYTES = 4_000_000
QUALITY = 80


class Thumbnails(NamedTuple):
    """Sheets of `across` × `across` cells of size `cell` (width, height).

    `places` is -1 for instances without a picture.
    """

    sheets: list[bytes]
    cell: tuple[int, int]
    across: int
    places: NDArray[np.int32]

    @property
    def num_shown(self) -> int:
        """The number of instances with a picture."""
        return int((self.places >= 0).sum())

    @property
    def num_bytes(self) -> int:
        """The size of all sheets together."""
        return sum(map(len, self.sheets))


def make_thumbnails(images: NDArray[np.uint8], order: NDArray[np.int64], budget: int) -> Thumbnails:
    """Pack images in `order` (the most suspicious first) until `budget` bytes are full.

    >>> found = make_thumbnails(np.zeros((3, 8, 8), np.uint8), np.array([2, 0, 1]), budget=10_000)
    >>> found.cell, found.places
    ((8, 8), array([1, 2, 0], dtype=int32))
    """
    cell = cell_size(images.shape[1], images.shape[2])
    stretch = 255 / max(int(images.max()), 1) if is_dim(images) else 1.0
    lossless = len(images) * cell[0] * cell[1] * (1 if images.ndim == 3 else 3) <= LOSSLESS_BYTES
    places = np.full(len(images), -1, dtype=np.int32)
    sheets: list[bytes] = []
    room = budget
    for first in range(0, len(order), ACROSS * ACROSS):
        members = order[first : first + ACROSS * ACROSS]
        sheet = _sheet(images[members], cell, stretch, lossless)
        if len(sheet) > room:
            break
        room -= len(sheet)
        sheets.append(sheet)
        places[members] = np.arange(first, first + len(members))
    return Thumbnails(sheets, cell, ACROSS, places)


def cell_size(height: int, width: int) -> tuple[int, int]:
    """Return (width, height) of a picture: unchanged, or shrunk to the longest side.

    >>> cell_size(28, 28), cell_size(200, 400)
    ((28, 28), (96, 48))
    """
    factor = min(1.0, LONGEST_SIDE / max(height, width))
    return max(1, round(width * factor)), max(1, round(height * factor))


def is_dim(images: NDArray[np.uint8]) -> bool:
    """Return whether the pixels use so little of 0 … 255 (digits: 0 … 16) that the picture looks black."""
    return bool(images.size) and 0 < int(images.max()) <= 32


def _sheet(images: NDArray[np.uint8], cell: tuple[int, int], stretch: float, lossless: bool) -> bytes:
    from PIL import Image

    width, height = cell
    rows = math.ceil(len(images) / ACROSS)
    mode = "L" if images.ndim == 3 else "RGB"
    if images.ndim == 4 and images.shape[-1] == 1:
        images, mode = images[..., 0], "L"
    sheet = Image.new(mode, (min(ACROSS, len(images)) * width, rows * height))
    for number, pixels in enumerate(images):
        if stretch != 1:
            pixels = (pixels * stretch).astype(np.uint8)
        picture: Any = Image.fromarray(pixels)
        if picture.size != cell:
            picture = picture.resize(cell, Image.Resampling.BOX)
        sheet.paste(picture, (number % ACROSS * width, number // ACROSS * height))
    file = io.BytesIO()
    sheet.save(file, "WEBP", lossless=lossless, quality=QUALITY, method=4)
    return file.getvalue()
