"""Encodes arrays and texts for the page: gzip in base64, and JSON that cannot end a script element."""

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

# The number of levels of a probability in the small charts: one byte each; 255 means no visit.
STEPS, NO_VISIT = 254, 255
# The most probabilities that the page holds. A run with more keeps evenly spaced visits only.
MOST_PROBABILITIES = 12_000_000


@final
class Blobs:
    """The data blocks of a page; equal blocks are stored once."""

    def __init__(self) -> None:
        """Start without blocks."""
        self._numbers: dict[str, int] = {}

    def add(self, content: bytes, *, pack: bool = True) -> int:
        """Store bytes and return the number of their block; `pack=False` is for compressed content."""
        packed = gzip.compress(content, 6, mtime=0) if pack else content
        text = base64.b64encode(packed).decode("ascii")
        return self._numbers.setdefault(text, len(self._numbers))

    def add_numbers(self, values: NDArray[Any]) -> dict[str, Any]:
        """Store an array in the smallest type that the page can read, and return its description."""
        array = smallest(values)
        return {"blob": self.add(array.tobytes()), "type": array.dtype.name}

    def add_texts(self, texts: Sequence[str | None]) -> int:
        """Store texts."""
        return self.add(json.dumps(texts).encode("ascii"))

    def html(self) -> str:
        """Return the blocks as HTML; base64 needs no escaping."""
        return "\n".join(
            f'<script type="text/plain" id="blob-{number}">{text}</script>'
            for text, number in self._numbers.items()
        )


def smallest(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values in little-endian order, integers in the smallest type that the page can read.

    >>> smallest(np.array([3, 255])).dtype, smallest(np.array([-1, 7])).dtype, smallest(np.array([0.5])).dtype
    (dtype('uint8'), dtype('int32'), dtype('float32'))
    """
    if values.dtype.kind == "f":
        return values.astype("<f4")
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if low >= 0 and high < 2**16:
        return values.astype("u1" if high < 2**8 else "<u2")
    if low < -(2**31) or high >= 2**31:
        raise ValueError(f"Expected 32-bit integers, but got {low if low < 0 else high}.")
    return values.astype("<i4")


def visits_kept(num_instances: int, num_visits: int) -> NDArray[np.int64]:
    """Return the numbers of the visits that the page holds: all, or evenly spaced from first to last.

    >>> visits_kept(10, 4), visits_kept(4_000_000, 7)
    (array([0, 1, 2, 3]), array([0, 3, 6]))
    """
    room = max(2, MOST_PROBABILITIES // max(num_instances, 1))
    if num_visits <= room:
        return np.arange(num_visits)
    return np.unique(np.linspace(0, num_visits - 1, room).round().astype(np.int64))


def quantised(values: NDArray[np.float32], visited: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return probabilities as bytes from 0 to 254, and 255 if there was no visit.

    >>> quantised(np.float32([[0.0, 0.5, 1.0]]), np.array([[True, True, False]]))
    array([[  0, 127, 255]], dtype=uint8)
    """
    with np.errstate(invalid="ignore"):
        steps = np.rint(np.clip(values, 0, 1) * STEPS)
    return np.where(visited, steps, NO_VISIT).astype(np.uint8)


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element, for any data.

    >>> print(script_json("</script><!--\\u2028"))
    "\\u003c/script\\u003e\\u003c!--\\u2028"
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
