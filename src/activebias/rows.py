"""Rows of different lengths in one array: the storage of full histories."""

from collections.abc import Iterator

import numpy as np
import torch

from activebias._arrays import Array, as_tensor, namespace, native

# The entries of a unit. A row begins at a whole unit: units are copied faster than entries, and the number of
# a unit fits into four bytes.
UNIT = 4

# Rows, and the array behind them, have spare room of about one entry for this many entries.
SHARE = 16

# Entries that have room behind the rows on a GPU in any case: small data sets need no more.
SPARE = 2**16

# Larger rows do not move within a step on a GPU, where the copy is equally wide for all rows of a batch.
LARGEST_MOVED = 1024

# Rows that are copied at a time, to limit RAM.
AT_ONCE = 2**16


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
        self.values: Array = native(torch.zeros((num_rows + 2) * UNIT, dtype=dtype, device=device))
        # The most entries that a row has room for. The array goes on for `width` entries behind the last row,
        # so that `width` entries can be read from the beginning of any row.
        self.width = UNIT
        self._moves_in_step = False
        # On a CPU, the units of every row while all rows have the same number and stand in order, else 0.
        self._stride = 1

    @property
    def num_bytes(self) -> int:
        """How many bytes the rows take."""
        return int(self.values.nbytes + self._start.nbytes + self._room.nbytes)

    @property
    def layout(self) -> tuple[int, int, bool]:
        """The storage that a CUDA graph holds: drop the graph when this changes."""
        return len(self.values), self.width, self._moves_in_step

    def room(self) -> Array:
        """Return how many entries have room in every row."""
        return self._room * UNIT

    def place(self, index: Array) -> tuple[Array, Array]:
        """Return the positions in `values` of the first entries of rows, and how many entries have room."""
        xp = torch if isinstance(index, torch.Tensor) else np
        first = xp.asarray(self._start[index], dtype=xp.int64, device=index.device) * UNIT
        return first, self._room[index] * UNIT

    def read(self, index: Array, count: Array) -> tuple[Array, Array]:
        """Return a copy of rows of `count` entries, with anything behind their ends; on a GPU `width` wide.

        Also returns how many entries count. On a GPU a row may have counted more than it has room for.
        """
        if isinstance(index, torch.Tensor):
            unit = self._start[index].long()[..., None] + torch.arange(
                self.width // UNIT, device=index.device
            )
            return self.values.view(-1, UNIT)[unit].flatten(-2), count.minimum(self._room[index] * UNIT)
        width, values = int(count.max(initial=0)), self.values
        if self._stride:
            every = slice(UNIT, UNIT + (len(self._room) - 1) * self._stride * UNIT)
            # The row that does not count stands in front of them: any other row is read in its place.
            rows = values[every].reshape(-1, self._stride * UNIT).take(index, axis=0, mode="clip")
            return rows[..., :width], count
        # As an array that has, from every unit on, one item as long as a row to read: NumPy copies it whole.
        size = -(-width // UNIT) * UNIT
        item, step = np.dtype((np.void, size * values.itemsize)), (UNIT * values.itemsize,)
        rows = np.ndarray((len(values) - size) // UNIT + 1, item, values, 0, step)[self._start[index]]
        return rows.view(values.dtype).reshape(*index.shape, size)[..., :width], count

    def make_place(self, index: Array, first: Array, after: Array, count: Array) -> None:
        """Move the rows of a batch that have no room for `after` entries.

        `first` marks the first of equal rows. `count` is how many entries each of all rows has.
        """
        if isinstance(index, torch.Tensor):
            if self._moves_in_step:
                self._make_place_in_step(index, first, after)
            return
        full = after > self._room[index] * UNIT
        if not np.count_nonzero(full):
            return
        full &= first
        moved, room = index[full], _larger(after[full])
        end = room.cumsum() + self._end
        width = max(self.width, int(room.max()) * UNIT)
        if self._stride or end[-1] * UNIT + width > len(self.values):
            wanted = with_share(count)
            wanted[index] = with_share(after)
            self._lay_out(count, wanted)
            return
        units, used = _units(self.values), self._room[moved]
        units[ragged(end - room, used)] = units.take(ragged(self._start[moved], used))
        self._start[moved], self._room[moved], self._end[...] = end - room, room, end[-1]
        self.width = width

    def _make_place_in_step(self, index: torch.Tensor, first: torch.Tensor, after: torch.Tensor) -> None:
        """Move rows without waiting for a GPU; a row that finds no place stays."""
        units, widest, nowhere = self.values.view(-1, UNIT), self.width // UNIT, len(self._room) - 1
        used, limit = self._room[index].long(), min(LARGEST_MOVED // UNIT, widest - 1)
        moves = first & (after > used * UNIT) & (used <= limit) & (index < nowhere)
        room = torch.where(moves, _larger(after).clip(max=widest), 0)
        end = room.cumsum(0) + self._end
        moves &= end + widest <= len(units)
        room = torch.where(moves, room, 0)
        start = torch.where(moves, end - room, 0)
        offset = torch.arange(limit, device=index.device)
        source = self._start[index].long()[:, None] + offset
        copied = moves[:, None] & (offset < used[:, None])
        units[torch.where(copied, start[:, None] + offset, 0)] = units[source]
        row = torch.where(moves, index, nowhere)
        self._start[row] = start.int()
        self._room[row] = room.clip(1).int()
        self._end += room.sum()

    def make_room(self, count: Array, num_entries: int) -> None:
        """Give every row room for `num_entries` more, if one has less."""
        self._moves_in_step = False
        if bool((count + num_entries > self.room())[:-1].any()):
            # By half at least, so that copies are rare and graphs last.
            self._lay_out(count, count + (count // 2).clip(num_entries))

    def make_room_for_draws(self, count: torch.Tensor, expected: torch.Tensor) -> None:
        """Give every row room for the `expected` number of visits, and let rows move in a step on a GPU."""
        self._moves_in_step = True
        most = 32 + 4 * expected
        if bool((count[:-1] + most <= self.room()[:-1]).all()):
            return  # `make_room` has made more
        wanted = count[:-1] + 1 + expected + 2 * expected.sqrt()
        wanted = torch.where(wanted > LARGEST_MOVED, count[:-1] + most, wanted).long()
        width = int(wanted.max() + most.max()) + 96
        if width > self.width:
            width += width // 2  # graphs hold it
        wanted = torch.cat([wanted, wanted.new_ones(1)])
        spare = SPARE + int(count.sum()) // SHARE
        self._lay_out(count, wanted, width=width, spare=spare)

    def straighten(self, count: Array) -> int:
        """Bring the oldest entry of rows that overflowed, on a GPU, to the front, and correct their `count`.

        Returns how many entries were overwritten.
        """
        if not isinstance(count, torch.Tensor):
            return 0
        overflowed = (count > self.room())[:-1].nonzero().squeeze(1)
        if len(overflowed) == 0:  # the usual case: each of the sizes below would wait for the device
            return 0
        first, room = self.place(overflowed)
        surplus = count[overflowed] - room
        position, length = ragged(first, room), room.repeat_interleave(room)
        turned = ragged(surplus, room) % length
        self.values[position] = self.values[first.repeat_interleave(room) + turned]
        count[overflowed] = room
        return int(surplus.sum())

    def joined(self, count: Array) -> torch.Tensor:
        """Return a copy of the entries of all rows, one row behind the other."""
        return torch.cat([as_tensor(self.values[each]) for each in self._positions(count)])

    def load(self, values: torch.Tensor, count: Array) -> None:
        """Load the entries that `joined` returned."""
        wanted, first = with_share(count), 0
        if isinstance(count, torch.Tensor) and not self._moves_in_step:
            # A graph of the user's may hold the array: rows share all of it, because none will get more.
            free = (len(self.values) - self._needed(wanted, self.width)) // (len(count) * UNIT) * UNIT
            wanted = wanted.maximum((wanted + free).clip(max=self.width))
        self._lay_out(count * 0, wanted)
        for each in self._positions(count[:-1]):
            self.values[each] = native(values[first : first + len(each)])
            first += len(each)

    def _positions(self, count: Array) -> Iterator[Array]:
        """Yield the positions of the entries of all rows, some rows at a time."""
        xp = namespace(count)
        for part in _parts(len(count)):
            start = xp.asarray(self._start[part], dtype=xp.int64, device=count.device)
            yield ragged(start * UNIT, count[part])

    def fits(self, count: torch.Tensor) -> bool:
        """Return whether `count` entries of every row but the last can be loaded in place."""
        wanted = with_share(torch.cat([count, count[:1]]))
        return self._needed(wanted, self.width) <= len(self.values) and int(wanted.max()) <= self.width

    @staticmethod
    def _needed(wanted: Array, width: int) -> int:
        return (int(((wanted + (UNIT - 1)) // UNIT)[:-1].sum()) + 1) * UNIT + width

    def _lay_out(self, count: Array, wanted: Array, *, width: int = UNIT, spare: int = 0) -> None:
        """Lay all rows out anew, and keep `count` entries of each.

        Every row gets room for the `wanted` number of entries. No row may ever need more than `width`. At
        least `spare` entries fit behind the rows. On a GPU array and width stay if they are large enough,
        because graphs hold them.
        """
        xp, stride = namespace(count), 0
        if xp is np and wanted[:-1].max() <= wanted[:-1].mean() * (1 + 1 / SHARE) + 1:
            wanted[:] = wanted.max() + 1
            stride = -(-int(wanted[0]) // UNIT)
        width = -(-max(width, int(wanted.max())) // UNIT) * UNIT
        if xp is torch:
            width = max(width, self.width)
        needed = self._needed(wanted, width) + spare
        if needed >= 2**31 * UNIT:
            raise MemoryError(f"A full history has room for {2**31 * UNIT} entries at most: set a `window`.")
        stays = xp is torch and needed <= len(self.values)
        # On a GPU the array should last for several epochs, on a CPU little should be wasted.
        more, share = (6 * len(count), SHARE) if xp is torch else (len(count) // 4, 2 * SHARE)
        length = len(self.values) if stays else -(-(needed + needed // share + more) // UNIT) * UNIT
        with torch.inference_mode(False):  # a tensor made under inference can never change outside of it
            new = xp.zeros(length, dtype=self.values.dtype, device=self.values.device)
        room = (wanted + (UNIT - 1)) // UNIT
        used = (count + (UNIT - 1)) // UNIT
        for each in (room, used):
            each[-1:] = 0
        end = room.cumsum(0) + 1
        source, target = _units(self.values), _units(new)
        for rows in _parts(len(count)):
            target[ragged((end - room)[rows], used[rows])] = source[ragged(self._start[rows], used[rows])]
        self._start[...], self._room[...], self._end[...] = end - room, room, end[-1]
        self._start[-1:], self._room[-1:], self.width, self._stride = 0, 1, width, stride
        if stays:
            self.values.copy_(new)
        else:
            self.values = new


def _units(values: Array) -> Array:
    """Return a view of the entries, unit by unit."""
    if isinstance(values, torch.Tensor):
        return values.view(-1, UNIT)
    # A number for a unit: NumPy copies numbers ten times as fast as short rows.
    return values.view(np.complex128 if values.itemsize == 4 else np.float64)


def with_share(count: Array) -> Array:
    """Return the number of entries and some spare room: few copies, and little waste."""
    return count + count // SHARE


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


def _parts(number: int) -> Iterator[slice]:
    """Yield all rows, some at a time."""
    for first in range(0, number, AT_ONCE):
        yield slice(first, min(first + AT_ONCE, number))
