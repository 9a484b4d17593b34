"""Where the entries of histories are stored: rows of one length, or each of its own, in one array."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from activebias._arrays import Array, namespace, native

# A row begins at a whole unit of so many entries: units are copied faster than entries, and the number of a
# unit fits into four bytes.
UNIT = 4

# Rows, and the array behind them, have room for one more entry in so many.
SHARE = 16

# Larger rows do not move within a step on a GPU, where the copy is equally wide for all rows of a batch.
LARGEST_MOVED = 1024

# Rows that are copied at a time, to limit RAM.
AT_ONCE = 2**16


class FixedRows:
    """Rows of one width, in RAM or in a memory-mapped file; one more than `num_rows`."""

    def __init__(
        self,
        num_rows: int,
        width: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        path: str | PathLike[str] | None = None,
    ) -> None:
        """Begin with zeros."""
        self.width = width
        shape = (num_rows + 1, width)
        if path is None:
            self.table: Array = native(torch.zeros(shape, dtype=dtype, device=device))
        else:
            size = Path(path).stat().st_size if Path(path).exists() else 0
            if size not in (0, shape[0] * shape[1] * dtype.itemsize):
                raise FileExistsError(
                    f"{path} exists, and is no history of {num_rows} instances with window {width} and "
                    f"storage {str(dtype).split('.')[-1]!r}: remove it, or name another file."
                )
            self.table = np.memmap(path, dtype=str(dtype).split(".")[-1], mode="w+", shape=shape)
        self.values: Array = self.table.reshape(-1)
        self.num_bytes = int(self.table.nbytes)

    def place(self, index: Array) -> tuple[Array, int]:
        """Return the positions in `values` of the first entries of rows, and how many entries have room."""
        return index * self.width, self.width

    def read(self, index: Array, width: int) -> Array:
        """Return a copy of the first `width` entries of the given rows."""
        # NumPy's `take` copies whole rows, in half the time of indexing.
        rows = self.table[index] if isinstance(index, torch.Tensor) else self.table.take(index, axis=0)
        return rows[..., :width]


class RaggedRows:
    """Rows with room of their own. A full row moves to a larger place behind the others, and leaves a gap.

    Where no place is left, all rows are laid out anew, one behind the other. So the array is about as large
    as the entries of all rows, however long the longest row is.

    There is one row more than `num_rows`, the last one, which does not count and never moves.
    """

    def __init__(self, num_rows: int, *, dtype: torch.dtype, device: torch.device) -> None:
        """Begin with room for one unit in every row."""
        # The row that does not count stands in front.
        start = torch.arange(1, num_rows + 2, dtype=torch.int32, device=device) % (num_rows + 1)
        # In units. NumPy arrays on a CPU, tensors on a GPU.
        self._start: Array = native(start)
        self._room: Array = native(torch.ones_like(start))
        self._end: Array = native(torch.full((), num_rows + 1, dtype=torch.int64, device=device))
        self.values: Array = native(torch.zeros((num_rows + 1) * UNIT, dtype=dtype, device=device))
        self.width = UNIT  # on a GPU no row has room for more

    @property
    def num_bytes(self) -> int:
        """How many bytes the rows take."""
        return int(self.values.nbytes + self._start.nbytes + self._room.nbytes)

    def room(self) -> Array:
        """Return how many entries have room in every row."""
        return self._room * UNIT

    def place(self, index: Array) -> tuple[Array, Array]:
        """Return the positions in `values` of the first entries of rows, and how many entries have room."""
        xp = namespace(index)
        start, room = (xp.asarray(each[index], dtype=xp.int64) for each in (self._start, self._room))
        return start * UNIT, room * UNIT

    def read(self, index: Array, width: int) -> Array:
        """Return a copy of the first `width` entries of the given rows, with anything behind a row's end."""
        xp, units = namespace(index), self.values.reshape(-1, UNIT)
        start = xp.asarray(self._start[index], dtype=xp.int64)
        place = start[..., None] + xp.arange(-(-width // UNIT), device=index.device)
        rows = units[place.clip(max=len(units) - 1)] if xp is torch else units.take(place, 0, mode="clip")
        return rows.reshape(*index.shape, -1)[..., :width]

    def make_place(self, index: Array, first: Array, after: Array, count: Array) -> None:
        """Move the full rows of a batch, which will have `after` entries.

        `first` marks the first of equal rows. `count` says how many entries each of all rows has.
        """
        if isinstance(index, torch.Tensor):
            self._move_in_step(index, first, after)
            return
        full = np.flatnonzero((after > self._room[index] * UNIT) & first)
        if not full.size:
            return
        index, after = index[full], after[full]
        room = _larger(after)
        end = room.cumsum() + self._end
        if end[-1] * UNIT > len(self.values):
            wanted = with_share(count)
            wanted[index] = with_share(after)
            self.lay_out(count, wanted)
            return
        units, used = self.values.reshape(-1, UNIT), self._room[index]
        units[ragged(end - room, used)] = units[ragged(self._start[index], used)]
        self._start[index], self._room[index], self._end[...] = end - room, room, end[-1]

    def _move_in_step(self, index: torch.Tensor, first: torch.Tensor, after: torch.Tensor) -> None:
        """Move rows without waiting for the device; a row that finds no place stays."""
        units, widest, nowhere = self.values.view(-1, UNIT), self.width // UNIT, len(self._room) - 1
        used, limit = self._room[index].long(), min(LARGEST_MOVED // UNIT, widest - 1)
        moves = first & (after > used * UNIT) & (used <= limit) & (index < nowhere)
        room = torch.where(moves, _larger(after).clip(max=widest), 0)
        end = room.cumsum(0) + self._end
        moves &= end <= len(units)
        room = torch.where(moves, room, 0)
        start = torch.where(moves, end - room, 0)
        offset = torch.arange(limit, device=index.device)
        source = (self._start[index].long()[:, None] + offset).clip(max=len(units) - 1)
        copied = moves[:, None] & (offset < used[:, None])
        units[torch.where(copied, start[:, None] + offset, 0)] = units[source]
        row = torch.where(moves, index, nowhere)
        self._start[row] = start.int()
        self._room[row] = room.clip(1).int()
        self._end += room.sum()

    def fits(self, wanted: Array) -> bool:
        """Return whether there is room for so many entries in the rows, without another array."""
        return self._length(wanted) * UNIT <= len(self.values)

    @staticmethod
    def _length(wanted: Array) -> int:
        return int(((wanted + (UNIT - 1)) // UNIT)[:-1].sum()) + 1

    def lay_out(self, count: Array, wanted: Array, *, spare: int = 0) -> bool:
        """Lay all rows out anew, and keep `count` entries of each; return whether the array is another one.

        Every row gets room for the `wanted` number of entries, and at least `spare` entries fit behind the
        rows. On a GPU the array stays if it is large enough, because graphs hold its address.
        """
        xp = namespace(count)
        needed = self._length(wanted) + spare // UNIT
        if needed >= 2**31:
            raise MemoryError(f"A full history has room for {2**31 * UNIT} entries at most: set a `window`.")
        stays = xp is torch and needed * UNIT <= len(self.values)
        length = len(self.values) if stays else (needed + needed // SHARE) * UNIT
        with torch.inference_mode(False):  # a tensor made under inference can never change outside of it
            new = xp.zeros(length, dtype=self.values.dtype, device=self.values.device)
        room = (wanted + (UNIT - 1)) // UNIT
        used = (count + (UNIT - 1)) // UNIT
        for each in (room, used):
            each[-1:] = 0
        end = room.cumsum(0) + 1
        before, after = self.values.reshape(-1, UNIT), new.reshape(-1, UNIT)
        for rows in parts(len(count)):
            after[ragged((end - room)[rows], used[rows])] = before[ragged(self._start[rows], used[rows])]
        self._start[...], self._room[...], self._end[...] = end - room, room, end[-1]
        self._start[-1:], self._room[-1:] = 0, 1
        if stays:
            self.values.copy_(new)
        else:
            self.values = new
        return not stays


def with_share(count: Array) -> Array:
    """Return room for so many entries and some more: seldom a copy, and little waste."""
    return count + count // SHARE + 1


def _larger(after: Array) -> Array:
    """Return the units of a row that moves alone: larger, because it may be the only one to grow so fast."""
    return (after + after // 4) // UNIT + 1


def ragged(first: Array, length: Array) -> Array:
    """Return the numbers first, first + 1, … of every row, `length` of them, row by row; waits for a GPU.

    >>> ragged(np.array([10, 20]), np.array([2, 3]))
    array([10, 11, 20, 21, 22])
    """
    xp = namespace(length)
    end = length.cumsum(0)
    shift = first - (end - length)
    repeated = shift.repeat_interleave(length) if xp is torch else np.repeat(shift, length)
    return repeated + xp.arange(len(repeated), device=length.device)


def parts(number: int) -> Iterator[slice]:
    """Yield all rows, some at a time."""
    for first in range(0, number, AT_ONCE):
        yield slice(first, min(first + AT_ONCE, number))
