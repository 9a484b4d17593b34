"""From arrays and texts to what a page can hold: gzip in base64, and JSON that cannot end a script."""

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

# Steps of a probability in the little charts: one byte each, 255 where there is no visit.
STEPS, NO_VISIT = 254, 255
# Probabilities of all instances together that the page holds; of more, visits are left out evenly.
MOST_PROBABILITIES = 12_000_000


@final
class Blobs:
    """The data blocks of a page; equal ones are stored once."""

    def __init__(self) -> None:
        """Start without any."""
        self._numbers: dict[str, int] = {}

    def add(self, content: bytes, *, pack: bool = True) -> int:
        """Store bytes and return the number of their block; what is packed already need not be again."""
        packed = gzip.compress(content, 6, mtime=0) if pack else content
        text = base64.b64encode(packed).decode("ascii")
        return self._numbers.setdefault(text, len(self._numbers))

    def add_numbers(self, values: NDArray[Any]) -> dict[str, Any]:
        """Store an array in the smallest of the types the page knows, and return how to read it."""
        array = smallest(values)
        return {"blob": self.add(array.tobytes()), "type": array.dtype.name}

    def add_texts(self, texts: Sequence[str | None]) -> int:
        """Store texts."""
        return self.add(json.dumps(texts).encode("ascii"))

    def html(self) -> str:
        """Return the blocks; base64 has no character that means anything in HTML."""
        return "\n".join(
            f'<script type="text/plain" id="blob-{number}">{text}</script>'
            for text, number in self._numbers.items()
        )


def smallest(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values in little-endian bytes, integers in the smallest type that the page knows.

    >>> smallest(np.array([3, 255])).dtype, smallest(np.array([-1, 7])).dtype, smallest(np.array([0.5])).dtype
    (dtype('uint8'), dtype('int32'), dtype('float32'))
    """
    if values.dtype.kind == "f":
        return values.astype("<f4")
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if low >= 0 and high < 2**16:
        return values.astype("u1" if high < 2**8 else "<u2")
    if low < -(2**31) or high >= 2**31:
        raise ValueError(f"Expected integers of 32 bits, but got {low if low < 0 else high}.")
    return values.astype("<i4")


def visits_kept(num_instances: int, num_visits: int) -> NDArray[np.int64]:
    """Return which of the visits the page holds: all, or evenly spaced ones, the first and last among them.

    >>> visits_kept(10, 4), visits_kept(4_000_000, 7)
    (array([0, 1, 2, 3]), array([0, 3, 6]))
    """
    room = max(2, MOST_PROBABILITIES // max(num_instances, 1))
    if num_visits <= room:
        return np.arange(num_visits)
    return np.unique(np.linspace(0, num_visits - 1, room).round().astype(np.int64))


def quantised(values: NDArray[np.float32], visited: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return probabilities as bytes, 0 … 254, and 255 where there was no visit.

    >>> quantised(np.float32([[0.0, 0.5, 1.0]]), np.array([[True, True, False]]))
    array([[  0, 127, 255]], dtype=uint8)
    """
    with np.errstate(invalid="ignore"):
        steps = np.rint(np.clip(values, 0, 1) * STEPS)
    return np.where(visited, steps, NO_VISIT).astype(np.uint8)


def script_json(value: Any) -> str:
    """Return JSON that may stand inside a script element, whatever is in the data.

    >>> print(script_json("</script><!--\\u2028"))
    "\\u003c/script\\u003e\\u003c!--\\u2028"
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
