"""The past true-class probabilities of every instance, in a ring (window) or in full."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from activebias import checks
from activebias._arrays import Array, as_tensor, namespace, native
from activebias.rows import RaggedRows, ragged

STORAGE = {"float32": torch.float32, "float16": torch.float16}

# CHUNK instances are read at a time: at 100 million instances a copy of everything would not fit. Fewer are
# read if an instance has more than MANY_ENTRIES entries.
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
    folded = xp.where(prob > 0.5, -(1 - prob), abs(prob))
    return xp.asarray(folded, dtype=xp.float16, device=prob.device)


def decode(stored: Array, storage: str) -> Array:
    """Turn the stored form into float32 probabilities."""
    if storage == "float32":
        return stored
    xp = namespace(stored)
    folded = xp.asarray(stored, dtype=xp.float32, device=stored.device)
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
        place = checks.device_of_state(device)
        count = torch.ones(num_instances + 1, dtype=self._count_dtype(), device=place)
        self.device = count.device
        self._count: Array = native(count)  # a NumPy array on a CPU, a tensor on a GPU
        self.on_gpu = isinstance(self._count, torch.Tensor)  # then nobody looks at values within an epoch
        # Full rows, or a table of rings.
        self._rows: RaggedRows | None = None
        self._table: Array = None
        first = native(encode(torch.tensor(initial, dtype=torch.float32, device=self.device), storage))
        if self.window is None and path is None:
            self._rows = RaggedRows(num_instances, dtype=STORAGE[storage], device=self.device)
            self._rows.values[:] = first
        else:
            self._table = self._make_table(path)
            self._table[:, 0] = first

    def _count_dtype(self) -> torch.dtype:
        """In a window the count stays below 2·window, so that one byte is mostly enough."""
        if self.window is None or self.window > 16383:
            return torch.int32
        return torch.uint8 if self.window <= 127 else torch.int16

    def _make_table(self, path: str | PathLike[str] | None) -> Array:
        shape, dtype = (self.num_instances + 1, self.window or 0), STORAGE[self.storage]
        if path is None:
            return native(torch.zeros(shape, dtype=dtype, device=self.device))
        if self.window is None or self.device.type != "cpu":
            raise ValueError(
                "A history in a memory-mapped file needs a fixed `window` and `device='cpu'`, but got "
                f"window={self.window!r}, device={str(self.device)!r}."
            )
        size = Path(path).stat().st_size if Path(path).exists() else 0
        if size not in (0, shape[0] * shape[1] * dtype.itemsize):
            raise FileExistsError(
                f"{path} exists, and is no history of {self.num_instances} instances with window "
                f"{self.window} and storage {self.storage!r}: remove it, or name another file."
            )
        return np.memmap(path, dtype=self.storage, mode="w+", shape=shape)

    @property
    def _values(self) -> Array:
        """All entries, flat."""
        return self._table.reshape(-1) if self._rows is None else self._rows.values

    def _place(self, index: Array) -> tuple[Array, Array]:
        """Return the positions of the first entries of instances, and how many entries have room."""
        return (index * self.window, self.window) if self._rows is None else self._rows.place(index)

    @property
    def layout(self) -> tuple[int, int, bool] | None:
        """The storage that a CUDA graph of `append` depends on: drop the graph when this changes."""
        return None if self._rows is None else self._rows.layout

    @property
    def in_file(self) -> bool:
        """Whether the history is in a memory-mapped file."""
        return isinstance(self._table, np.memmap)

    @property
    def stored_initial(self) -> float:
        """The entry that every history starts with, as it is read back."""
        initial = torch.tensor(self.initial, dtype=torch.float32, device="cpu")
        return float(decode(encode(initial, self.storage), self.storage))

    @property
    def capacity(self) -> int:
        """How many entries have room, of the instance with the most room; asking waits for the device."""
        return self.window or 0 if self._rows is None else int(self._rows.room()[:-1].max())

    @property
    def num_bytes(self) -> int:
        """How many bytes the history takes."""
        stored = self._table.nbytes if self._rows is None else self._rows.num_bytes
        return int(stored + self._count.nbytes)

    @property
    def num_overwritten(self) -> int:
        """How many entries of a full history on a GPU found no room; asking waits for the device."""
        if self._rows is None:
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
        count = xp.asarray(self._count[index], dtype=xp.int64, device=index.device)
        after = count + visits.multiplicity
        if on_gpu:
            self._captured |= torch.cuda.is_current_stream_capturing()
        if self._rows is not None:
            self._rows.make_place(index, visits.turn == 0, after, self._count)
        first, room = self._place(index)
        position = first + (count + visits.turn) % room
        if not isinstance(visits.turn, int):
            # More visits in one batch than there is room for: only the latest are kept.
            nowhere = 0 if self.window is None else self.num_instances * self.window
            position = xp.where(visits.turn < visits.multiplicity - room, nowhere, position)
        self._values[position] = encode(visits.prob, self.storage)
        if self.window is not None:
            after = after % self.window + self.window * (after >= self.window)
        self._count[index] = xp.asarray(after, dtype=self._count.dtype, device=index.device)
        # The row that does not count must not count up.
        if on_gpu:
            self._count[self.num_instances :].fill_(1)
        else:
            self._count[self.num_instances] = 1

    def rows(self, index: Array) -> tuple[Array, Array]:
        """Return the rows of `index`, with which `put_back` undoes an `append`."""
        # An entry of a full history stands behind the others, and is gone with its count.
        return None if self._rows is not None else self._table[index], self._count[index]

    def put_back(self, index: Array, rows: tuple[Array, Array]) -> None:
        """Undo every `append` to `index` since `rows`."""
        rings, self._count[index] = rows
        if rings is not None:
            self._table[index] = rings

    def entries(self, index: Array) -> tuple[Array, Array]:
        """Return the stored probabilities of `index`, (…, L) in no order, and how many of the L count.

        `estimate` takes both. On a CPU the arrays are NumPy's.
        """
        xp = torch if isinstance(index, torch.Tensor) else np
        count = xp.asarray(self._count[index], dtype=xp.int64, device=index.device)
        if self._rows is not None:
            rows, count = self._rows.read(index, count)
        else:
            # NumPy's `take` copies whole rows, in half the time of indexing.
            rows = self._table[index] if xp is torch else self._table.take(index, axis=0)
            count = count.clip(max=self.window) if xp is torch else np.minimum(count, rows.shape[-1])
        return decode(rows, self.storage), count

    def stored(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return all stored entries, flat; of each instance of `index` the first position and the number.

        For kernels. The entries of an instance stand one behind the other, in no order.
        """
        first, room = self._place_of(index)
        return as_tensor(self._values), first, as_tensor(self._count)[index].long().minimum(room)

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
        count, (first, room) = as_tensor(self._count)[index].long(), self._place_of(index)
        kept = count.minimum(room)
        turn = torch.arange(int(kept.max()) if kept.numel() else 0, device=self.device)
        valid = turn < kept[..., None]
        oldest = torch.where(count > room, count % room, 0)
        slot = torch.where(valid, (oldest[..., None] + turn) % room[..., None], 0)
        values: torch.Tensor = decode(as_tensor(self._values)[first[..., None] + slot], self.storage)
        return values.masked_fill(~valid, 0.0), valid

    def latest(self, index: torch.Tensor) -> torch.Tensor:
        """Return the newest entry of the given instances, float32."""
        rows = native(index)
        first, room = self._place(rows)
        return as_tensor(decode(self._values[first + (self._count[rows] - 1) % room], self.storage))

    def _place_of(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the result of `_place` as tensors."""
        first, room = self._place(native(index))
        return as_tensor(first), torch.full_like(index, room) if isinstance(room, int) else as_tensor(room)

    def make_room(self, num_entries: int) -> None:
        """Make sure that every instance has room for `num_entries` more; waits for the device.

        A CUDA graph that holds `append` holds the storage's address too: make room before the capture.
        """
        if self._rows is not None and not self._captured:
            self._num_overwritten += self._rows.straighten(self._count)
            self._rows.make_room(self._count, num_entries)

    def make_room_for_draws(self, expected: torch.Tensor) -> None:
        """Make room on a GPU for the `expected` visits (N,) of the instances in an epoch; waits for the GPU.

        A row that gets more visits moves in the step.
        """
        if self._rows is not None and not self._captured:
            self._num_overwritten += self._rows.straighten(self._count)
            self._rows.make_room_for_draws(self._count, expected)

    @contextmanager
    def own_capture(self) -> Iterator[None]:
        """Capture `append` in a graph that will be dropped when the storage moves."""
        captured = self._captured
        try:
            yield
        finally:
            self._captured = captured

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything stored: the rows one behind the other, or the table of rings."""
        if self._rows is None:
            values = as_tensor(self._table)[:-1, : int(self._count[:-1].max())].clone()
        else:
            self._num_overwritten += self._rows.straighten(self._count)
            values = self._rows.joined(self._count[:-1])
        return {
            "values": values,
            "count": as_tensor(self._count)[:-1].clone(),
            "num_overwritten": self._num_overwritten,
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if `state` does not fit."""
        values, count = state["values"], state["count"]
        checks.stored("count", count, (self.num_instances,), self._count_dtype())
        shape: tuple[int, ...] = (int(count.sum()),)
        most = math.inf
        if self.window is not None:
            width = min(values.shape[-1], self.window)
            # A full ring counts on.
            shape, most = (self.num_instances, width), 2 * width - 1 if width == self.window else width
        checks.stored("history", values, shape, STORAGE[self.storage])
        if int(count.min()) < 1 or int(count.max()) > most:
            raise ValueError("The stored history has counts that no history has.")
        checks.integer("num_overwritten", state["num_overwritten"], at_least=0)
        if self._captured and self._rows is not None and not self._rows.fits(count):
            raise ValueError(
                "The state needs a larger storage, but a CUDA graph holds this one's address: load the state "
                "before the capture."
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        self.check_state(state)
        self._num_overwritten = state["num_overwritten"]
        as_tensor(self._count)[:-1] = state["count"].to(self.device)
        values = state["values"].to(self.device)
        if self._rows is not None:
            self._rows.load(values, self._count)
        else:
            as_tensor(self._table)[:-1, : values.shape[1]] = values


def rows_of_state(state: dict[str, Any], index: torch.Tensor) -> dict[str, Any]:
    """Return the state of a history that has only the given rows, in this order."""
    values, count = state["values"], state["count"].long()
    kept = index if values.dim() == 2 else ragged((count.cumsum(0) - count)[index], count[index])
    return {**state, "values": values[kept], "count": state["count"][index]}
