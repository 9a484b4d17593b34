"""The past true-class probabilities of every instance, in a ring (window) or in full."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from activebias import checks
from activebias._arrays import Array, as_tensor, namespace, native
from activebias.rows import LARGEST_MOVED, SHARE, UNIT, FixedRows, RaggedRows, parts, ragged, with_share

STORAGE = {"float32": torch.float32, "float16": torch.float16}

# Instances read at a time: at 100 million of them, copies of everything would not fit. Fewer are read where
# one has more than so many entries.
CHUNK, MANY_ENTRIES = 2**18, 128


class Visits(NamedTuple):
    """One batch of (index, prob), sorted by index so that visits to one instance stand together.

    `turn` numbers the visits to one instance within the batch, in the order they came; `multiplicity` is
    how many there are. Where no instance comes twice they may be the plain numbers 0 and 1.
    """

    index: Array
    prob: Array
    turn: Array
    multiplicity: Array


def sort_visits(index: Array, prob: Array) -> Visits:
    """Sort a batch by instance, along the last dimension."""
    xp: ModuleType = torch if isinstance(index, torch.Tensor) else np
    if xp is torch:
        index, order = index.sort(dim=-1, stable=True)
        prob = prob.gather(-1, order)
    else:
        order = index.argsort(-1, kind="stable")
        index, prob = index[order], prob[order]
        if not np.count_nonzero(index[1:] == index[:-1]):
            return Visits(index, prob, 0, 1)
    first = xp.searchsorted(index, index, side="left")
    after = xp.searchsorted(index, index, side="right")
    return Visits(index, prob, xp.arange(index.shape[-1], device=index.device) - first, after - first)


def encode(prob: Array, storage: str) -> Array:
    """Turn probabilities into the stored form.

    A float16 has 11 bits: fine near 0, but near 1, where most instances end, it cannot tell 0.9996 from 1.
    So above ½ the distance to 1 is stored, with a minus sign, and both ends are equally fine.
    """
    if storage == "float32":
        return prob
    xp = namespace(prob)
    # A probability may be -0.0.
    return xp.asarray(xp.where(prob > 0.5, -(1 - prob), abs(prob)), dtype=xp.float16)


def decode(stored: Array, storage: str) -> Array:
    """Turn the stored form into float32 probabilities."""
    if storage == "float32":
        return stored
    xp = namespace(stored)
    folded = xp.asarray(stored, dtype=xp.float32)
    return folded + xp.signbit(folded)


class PredictionHistory:
    """Per instance the probabilities p(y|x) of its visits, starting with the one entry `initial` = 1/C.

    With a `window` only the latest entries are kept, in a ring. Without one every entry is kept, in rows of
    different lengths; a full row moves to a larger place. On a CPU it moves when a visit needs it. On a GPU
    looking at the counts in the middle of training would wait for the device: there rows get room in
    `make_room`. After `make_room_for_draws` they also move in a step. A row without room becomes a ring.

    The storage has one row more than there are instances. On a GPU visits that must not count go there:
    every shape stays fixed, and nothing waits for the device.

    >>> import numpy as np
    >>> history = PredictionHistory(3, initial=0.5, window=2)
    >>> history.append(sort_visits(np.array([1, 1]), np.array([0.75, 0.25])))
    >>> history.values([0, 1])[0]
    tensor([[0.5000, 0.0000],
            [0.7500, 0.2500]])
    >>> history.values([0, 1])[1]
    tensor([[ True, False],
            [ True,  True]])
    """

    def __init__(
        self,
        num_instances: int,
        *,
        initial: float,
        window: int | None = None,
        storage: str = "float32",
        device: torch.device | str = "cpu",
        path: str | PathLike[str] | None = None,
    ) -> None:
        """Allocate; `path` puts a windowed history on the CPU into a memory-mapped file."""
        if storage not in STORAGE:
            raise ValueError(f"Expected `storage` to be one of {tuple(STORAGE)}, but got {storage!r}.")
        self.num_instances = num_instances
        self.window = None if window is None else checks.integer("window", window, at_least=1)
        self.storage = storage
        self.initial = initial
        self._num_overwritten = 0
        self._captured = False
        count = torch.ones(num_instances + 1, dtype=self._count_dtype(), device=device)
        self.device = count.device
        self._count: Array = native(count)  # a NumPy array on a CPU, a tensor on a GPU
        self.on_gpu = isinstance(self._count, torch.Tensor)  # then nobody looks at values within an epoch
        self._rows_move = not self.on_gpu
        if path is not None and (window is None or self.device.type != "cpu"):
            raise ValueError(
                "A history in a memory-mapped file needs a fixed `window` and `device='cpu'`, but got "
                f"window={window!r}, device={str(self.device)!r}."
            )
        dtype = STORAGE[storage]
        self._rows: FixedRows | RaggedRows
        if self.window is None:
            self._rows = RaggedRows(num_instances, dtype=dtype, device=self.device)
        else:
            self._rows = FixedRows(num_instances, self.window, dtype=dtype, device=self.device, path=path)
        self._rows.values[:: self._rows.width] = native(
            encode(torch.tensor(initial, device=self.device), storage)
        )

    def _count_dtype(self) -> torch.dtype:
        """In a window the count stays below 2·window, so that one byte is mostly enough."""
        if self.window is None or self.window > 16383:
            return torch.int32
        return torch.uint8 if self.window <= 127 else torch.int16

    @property
    def in_file(self) -> bool:
        """Whether the history is in a memory-mapped file."""
        return isinstance(self._rows.values, np.memmap)

    @property
    def stored_initial(self) -> float:
        """The entry that every history starts with, as it is read back."""
        initial = torch.tensor(self.initial, dtype=torch.float32, device="cpu")
        return float(decode(encode(initial, self.storage), self.storage))

    @property
    def capacity(self) -> int:
        """How many entries have room, of the instance with the most room; asking waits for the device."""
        rows = self._rows
        return rows.width if isinstance(rows, FixedRows) else int(rows.room()[:-1].max())

    @property
    def num_bytes(self) -> int:
        """How many bytes the history takes."""
        return int(self._rows.num_bytes + self._count.nbytes)

    @property
    def num_overwritten(self) -> int:
        """How many entries of a full history on a GPU found no room; asking waits for the device."""
        if isinstance(self._rows, FixedRows):
            return 0
        return self._num_overwritten + int((self._count - self._rows.room()).clip(0)[:-1].sum())

    def take_in(self, index: Array, prob: Array) -> tuple[Visits, Array, Array]:
        """Append a batch in any order; return its visits, sorted, and the `entries` of their instances."""
        visits = sort_visits(index, prob)
        self.append(visits)
        return visits, *self.entries(visits.index)

    def append(self, visits: Visits) -> None:
        """Append a batch; an instance visited twice in it gets both entries, in order."""
        index, on_gpu = visits.index, isinstance(visits.index, torch.Tensor)
        xp = torch if on_gpu else np
        count = xp.asarray(self._count[index], dtype=xp.int64)
        after = count + visits.multiplicity
        if on_gpu:
            self._captured |= torch.cuda.is_current_stream_capturing()
        if self._rows_move and isinstance(self._rows, RaggedRows):
            self._rows.make_place(index, visits.turn == 0, after, self._count)
        first, room = self._rows.place(index)
        position = first + (count + visits.turn) % room
        if not isinstance(visits.turn, int):
            # More visits in one batch than there is room for: only the latest are kept.
            nowhere = 0 if self.window is None else self.num_instances * self.window
            position = xp.where(visits.turn < visits.multiplicity - room, nowhere, position)
        self._rows.values[position] = encode(visits.prob, self.storage)
        if self.window is not None:
            after = after % self.window + self.window * (after >= self.window)
        self._count[index] = xp.asarray(after, dtype=self._count.dtype)
        # The row that does not count must not count up.
        if on_gpu:
            self._count[self.num_instances :].fill_(1)
        else:
            self._count[self.num_instances] = 1

    def rows(self, index: Array) -> tuple[Array, Array]:
        """Return what `put_back` needs to undo an `append` to `index`."""
        # An entry of a full history stands behind the others, and is gone with its count.
        return None if self.window is None else self._rows.read(index, self.window), self._count[index]

    def put_back(self, index: Array, rows: tuple[Array, Array]) -> None:
        """Undo every `append` to `index` since `rows`."""
        ring, self._count[index] = rows
        if isinstance(self._rows, FixedRows):
            self._rows.table[index] = ring

    def entries(self, index: Array) -> tuple[Array, Array]:
        """Return the stored probabilities of `index`, (…, L) in no order, and how many of the L count.

        This is what `estimate` takes. On a CPU the arrays are NumPy's.
        """
        if isinstance(index, torch.Tensor):
            count, width = self._count[index].long().clip(max=self._rows.place(index)[1]), self._rows.width
        elif self.window is None:
            count = self._count[index].astype(np.int64)
            width = int(count.max(initial=0))
        else:
            count, width = np.minimum(self._count[index].astype(np.int64), self.window), self.window
        return decode(self._rows.read(index, width), self.storage), count

    def chunks(self) -> Iterator[torch.Tensor]:
        """Yield the indices of all instances, some at a time."""
        most = max(1, CHUNK * MANY_ENTRIES // max(MANY_ENTRIES, self.capacity))
        for first in range(0, self.num_instances, most):
            yield torch.arange(first, min(first + most, self.num_instances), device=self.device)

    def values(self, index: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the probabilities stored for the given instances, oldest first, and which entries count.

        Both have one row per instance; an entry that does not count is 0. Without `index`, all instances.
        """
        if index is None:
            index = torch.arange(self.num_instances, device=self.device)
        index = checks.index_tensor(index, self.device)
        checks.index_range(index.cpu(), self.num_instances)
        position, valid = self._positions(index)
        values: torch.Tensor = decode(as_tensor(self._rows.values)[position], self.storage)
        return values.masked_fill(~valid, 0.0), valid

    def _positions(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where the entries of the given instances are stored, oldest first, and which count."""
        count, (first, room) = as_tensor(self._count)[index].long(), self._place(index)
        kept = count.minimum(room)
        turn = torch.arange(int(kept.max()) if kept.numel() else 0, device=self.device)
        valid = turn < kept[..., None]
        oldest = torch.where(count > room, count % room, 0)
        slot = (oldest[..., None] + turn) % room[..., None]
        return torch.where(valid, first[..., None] + slot, 0), valid

    def _place(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, room = self._rows.place(native(index))
        return as_tensor(first), torch.full_like(index, room) if isinstance(room, int) else as_tensor(room)

    def latest(self, index: torch.Tensor) -> torch.Tensor:
        """Return the newest entry of the given instances, float32."""
        first, room = self._place(index)
        slot = (as_tensor(self._count)[index].long() - 1) % room
        newest: torch.Tensor = decode(as_tensor(self._rows.values)[first + slot], self.storage)
        return newest

    def make_room(self, num_entries: int) -> bool:
        """Make sure that every instance has room for `num_entries` more; waits for the device.

        Returns whether the storage has moved.

        A CUDA graph that holds `append` holds the storage's address too: make room before the capture.
        """
        if isinstance(self._rows, FixedRows) or self._captured:
            return False
        self._straighten()
        had_moved, self._rows_move = self._rows_move, not self.on_gpu
        moved = had_moved is not self._rows_move
        if bool((self._count + num_entries > self._rows.room())[:-1].any()):
            # By half at least, so that copies are rare and graphs last.
            moved |= self._rows.lay_out(self._count, self._count + (self._count // 2).clip(num_entries))
        return self._widen(self.capacity) or moved

    def make_room_for_draws(self, expected: torch.Tensor) -> bool:
        """Make room on a GPU for an epoch that visits each instance about so often, (N,); waits for it.

        A row that gets more visits moves in the step. Returns whether the storage has moved.
        """
        if isinstance(self._rows, FixedRows) or self._captured:
            return False
        self._straighten()
        had_moved, self._rows_move = self._rows_move, True
        count = self._count[:-1]
        generous = 32 + 4 * expected
        wanted = count + 1 + expected + 2 * expected.sqrt()
        wanted = torch.where(wanted > LARGEST_MOVED, count + generous, wanted).long()
        widest = int(wanted.max() + generous.max())
        spare = widest + int(count.sum()) // SHARE
        moved = self._rows.lay_out(self._count, torch.cat([wanted, wanted.new_ones(1)]), spare=spare)
        if widest > self._rows.width:
            moved |= self._widen(widest + widest // 4)
        return moved or not had_moved

    def _widen(self, num_entries: int) -> bool:
        """Let a step on a GPU read so many entries of a row; return whether it read fewer."""
        assert isinstance(self._rows, RaggedRows)
        widens = num_entries > self._rows.width
        if widens:
            self._rows.width = -(-num_entries // UNIT) * UNIT
        return widens

    @contextmanager
    def own_capture(self) -> Iterator[None]:
        """Capture `append` in a graph that will be dropped when the storage moves."""
        captured = self._captured
        try:
            yield
        finally:
            self._captured = captured

    def _straighten(self) -> None:
        """Bring the oldest entry of the rows that overflowed, on a GPU, to the front."""
        if not self.on_gpu or isinstance(self._rows, FixedRows):
            return
        overflowed = (self._count > self._rows.room())[:-1].nonzero().squeeze(1)
        if not overflowed.numel():
            return
        self._num_overwritten = self.num_overwritten
        position, valid = self._positions(overflowed)
        first, room = self._place(overflowed)
        values = self._rows.values
        values[ragged(first, room)] = values[position[valid]]
        self._count[overflowed] = room.to(self._count.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything stored: with a window as a table, else row behind row."""
        self._straighten()
        count, rows = self._count[:-1], self._rows
        if isinstance(rows, FixedRows):
            values = as_tensor(rows.table)[:-1, : min(rows.width, int(count.max()))].clone()
        else:
            values = torch.cat([as_tensor(rows.values[each]) for each in self._rows_by_part()])
        return {
            "values": values,
            "count": as_tensor(count).clone(),
            "num_overwritten": self._num_overwritten,
        }

    def _rows_by_part(self) -> Iterator[Array]:
        """Yield the positions of all entries of a full history, row behind row, some rows at a time."""
        for part in parts(self.num_instances):
            index = native(torch.arange(part.start, part.stop, device=self.device))
            yield ragged(self._rows.place(index)[0], self._count[part])

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if `state` does not fit."""
        values, count = state["values"], state["count"]
        if count.shape != (self.num_instances,) or values.dim() != (1 if self.window is None else 2):
            raise ValueError(
                f"The stored history has values of shape {tuple(values.shape)} and counts of shape "
                f"{tuple(count.shape)}, but this one has {self.num_instances} instances."
            )
        if values.dtype != STORAGE[self.storage] or (self.window and values.shape[1] > self.window):
            raise ValueError("The stored history has another storage form or window than this one.")
        if self.window is None:
            possible = int(count.sum()) == len(values)
        else:
            # A ring counts on.
            most = 2 * self.window - 1 if values.shape[1] == self.window else values.shape[1]
            possible = int(count.max()) <= most and len(values) == self.num_instances
        if count.dtype != self._count_dtype() or int(count.min()) < 1 or not possible:
            raise ValueError("The stored history has counts that no history has.")
        if not torch.stack(values.aminmax()).isfinite().all():
            raise ValueError("The stored history has entries that are not finite.")
        checks.integer("num_overwritten", state["num_overwritten"], at_least=0)
        if self._captured and isinstance(self._rows, RaggedRows):
            fits = int(count.max()) <= self._rows.width and self._rows.fits(with_share(count))
            if not fits:
                raise ValueError(
                    "The state needs a larger storage, but a CUDA graph holds this one's address: load the "
                    "state before the capture."
                )

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Take over what `state_dict` returned; return whether the storage has moved."""
        self.check_state(state)
        values, count = state["values"].to(self.device), state["count"].to(self.device)
        self._num_overwritten = state["num_overwritten"]
        as_tensor(self._count)[:-1] = count
        if isinstance(self._rows, FixedRows):
            as_tensor(self._rows.table)[:-1, : values.shape[1]] = values
            return False
        moved = self._rows.lay_out(self._count * 0, with_share(self._count))
        first = 0
        for positions in self._rows_by_part():
            self._rows.values[positions] = native(values[first : first + len(positions)])
            first += len(positions)
        return self._widen(self.capacity) or moved


def rows_of_state(state: dict[str, Any], index: torch.Tensor) -> dict[str, Any]:
    """Return the state of a history that has only the given rows, in this order."""
    values, count = state["values"], state["count"].long()
    if values.dim() == 1:
        first = count.cumsum(0) - count
        index_of_values = ragged(first[index], count[index])
    else:
        index_of_values = index
    return {**state, "values": values[index_of_values], "count": state["count"][index]}
