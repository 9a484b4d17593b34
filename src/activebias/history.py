"""The past true-class probabilities of every instance, in a ring (window) or in full."""

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

STORAGE = {"float32": torch.float32, "float16": torch.float16}

# Entries that a full history has room for at first, and the factor by which it grows: little waste at many
# instances, and a copy so seldom that it does not show.
FIRST_CAPACITY, GROWTH = 8, 1.5

# Instances read at a time: at 100 million of them, copies of everything would not fit.
CHUNK = 2**18


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

    With a `window` only the latest entries are kept, in a ring. Without one every entry is kept and the
    storage grows: on a CPU when a visit needs it; on a GPU in `make_room`, since looking at the counts in
    the middle of training would wait for the device.

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
        # Both as NumPy arrays on a CPU, as tensors on a GPU.
        self._count: Array = native(count)
        self.on_gpu = isinstance(self._count, torch.Tensor)  # then nobody looks at values within an epoch
        self._values: Array = self._allocate(window or FIRST_CAPACITY, path)
        self._values[:, 0] = native(encode(torch.tensor(initial, device=self.device), storage))

    def _count_dtype(self) -> torch.dtype:
        """In a window the count stays below 2·window, so that one byte is mostly enough."""
        if self.window is None or self.window > 16383:
            return torch.int32
        return torch.uint8 if self.window <= 127 else torch.int16

    def _allocate(self, capacity: int, path: str | PathLike[str] | None = None) -> Array:
        shape, dtype = (self.num_instances + 1, capacity), STORAGE[self.storage]
        if path is None:
            with torch.inference_mode(False):  # a tensor made under inference can never change outside of it
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
    def in_file(self) -> bool:
        """Whether the history is in a memory-mapped file."""
        return isinstance(self._values, np.memmap)

    @property
    def stored_initial(self) -> float:
        """The entry that every history starts with, as it is read back."""
        initial = torch.tensor(self.initial, dtype=torch.float32, device="cpu")
        return float(decode(encode(initial, self.storage), self.storage))

    @property
    def capacity(self) -> int:
        """How many entries an instance has room for at the moment."""
        return int(self._values.shape[1])

    @property
    def num_bytes(self) -> int:
        """How many bytes the history takes."""
        return int(self._values.nbytes + self._count.nbytes)

    @property
    def num_overwritten(self) -> int:
        """How many entries of a full history on a GPU found no room; asking waits for the device."""
        if self.window is not None:
            return 0
        return self._num_overwritten + int((self._count[:-1] - self.capacity).clip(0).sum())

    def take_in(self, index: Array, prob: Array) -> tuple[Visits, Array, Array]:
        """Append a batch in any order; return its visits, sorted, and the `entries` of their instances."""
        visits = sort_visits(index, prob)
        self.append(visits)
        return visits, *self.entries(visits.index)

    def append(self, visits: Visits) -> None:
        """Append a batch; an instance visited twice in it gets both entries, in order."""
        on_gpu = isinstance(visits.index, torch.Tensor)
        xp = torch if on_gpu else np
        count = xp.asarray(self._count[visits.index], dtype=xp.int64)
        after = count + visits.multiplicity
        if on_gpu:
            self._captured |= torch.cuda.is_current_stream_capturing()
        elif self.window is None and (needed := int(after.max(initial=0))) > self.capacity:
            self._grow(needed)
        row, capacity = visits.index, self.capacity
        if not isinstance(visits.turn, int):
            # More visits in one batch than there is room for: only the latest are kept.
            row = xp.where(visits.turn < visits.multiplicity - capacity, self.num_instances, row)
        slot = (count + visits.turn) % capacity
        self._values.reshape(-1)[row * capacity + slot] = encode(visits.prob, self.storage)
        if self.window is not None:
            after = after % self.window + self.window * (after >= self.window)
        self._count[visits.index] = xp.asarray(after, dtype=self._count.dtype)
        # The row that does not count must not count up.
        if on_gpu:
            self._count[self.num_instances :].fill_(1)
        else:
            self._count[self.num_instances] = 1

    def rows(self, index: Array) -> tuple[Array, Array]:
        """Return a copy of the stored form of `index`, to be put back by `put_back`."""
        return self._values[index], self._count[index]

    def put_back(self, index: Array, rows: tuple[Array, Array]) -> None:
        """Undo every `append` to `index` since `rows`."""
        self._values[index, : rows[0].shape[-1]], self._count[index] = rows

    def entries(self, index: Array) -> tuple[Array, Array]:
        """Return the stored probabilities of `index`, (…, L) in no order, and how many of the L count.

        This is what `estimate` takes. On a CPU the arrays are NumPy's.
        """
        if isinstance(index, torch.Tensor):
            rows, count = self._values[index], self._count[index].long().clip(max=self.capacity)
        else:
            # NumPy's `take` copies whole rows, in half the time of indexing.
            rows, count = self._values.take(index, axis=0), self._count[index].astype(np.int64)
            if self.window is None:
                rows = rows[..., : int(count.max(initial=0))]
            else:
                count = np.minimum(count, self.capacity)
        return decode(rows, self.storage), count

    def chunks(self) -> Iterator[torch.Tensor]:
        """Yield the indices of all instances, some at a time."""
        for first in range(0, self.num_instances, CHUNK):
            yield torch.arange(first, min(first + CHUNK, self.num_instances), device=self.device)

    def values(self, index: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the probabilities stored for the given instances, oldest first, and which entries count.

        Both have one row per instance; an entry that does not count is 0. Without `index`, all instances.
        """
        if index is None:
            index = torch.arange(self.num_instances, device=self.device)
        index = checks.index_tensor(index, self.device)
        checks.index_range(index.cpu(), self.num_instances)
        count = as_tensor(self._count)[index].long()
        width = min(self.capacity, int(count.max()) if count.numel() else 0)
        oldest = torch.where(count > self.capacity, count % self.capacity, 0)
        position = torch.arange(width, device=self.device)
        slot = (oldest[..., None] + position) % self.capacity
        valid = position < count[..., None]
        values: torch.Tensor = decode(as_tensor(self._values)[index[..., None], slot], self.storage)
        return values.masked_fill(~valid, 0.0), valid

    def latest(self, index: torch.Tensor) -> torch.Tensor:
        """Return the newest entry of the given instances, float32."""
        slot = (as_tensor(self._count)[index].long() - 1) % self.capacity
        newest: torch.Tensor = decode(as_tensor(self._values)[index, slot], self.storage)
        return newest

    def make_room(self, num_entries: int) -> bool:
        """Make sure that every instance has room for `num_entries` more; waits for the device.

        Returns whether the storage has moved.

        A CUDA graph that holds `append` holds the storage's address too: make room before the capture.
        """
        if self.window is not None or self._captured:
            return False
        most = int(self._count[:-1].max())
        if most + num_entries <= self.capacity:
            return False
        self._grow(most + num_entries)
        return True

    @contextmanager
    def own_capture(self) -> Iterator[None]:
        """Capture `append` in a graph that will be dropped when the storage moves."""
        captured = self._captured
        try:
            yield
        finally:
            self._captured = captured

    def _grow(self, needed: int) -> None:
        capacity = max(needed, int(self.capacity * GROWTH))
        self._straighten()
        grown = self._allocate(capacity)
        grown[:, : self.capacity] = self._values
        self._values = grown

    def _straighten(self) -> None:
        """Bring the oldest entry of the rows that overflowed, on a GPU, to the front."""
        if not self.on_gpu or self.window is not None:
            return
        overflowed = (self._count > self.capacity).nonzero().squeeze(1)
        if not overflowed.numel():
            return
        self._num_overwritten = self.num_overwritten
        slot = self._count[overflowed, None].long() + torch.arange(self.capacity, device=self.device)
        self._values[overflowed] = self._values[overflowed[:, None], slot % self.capacity]
        self._count[overflowed] = self.capacity

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything stored."""
        self._straighten()
        width = min(self.capacity, int(self._count[:-1].max()))
        return {
            "values": as_tensor(self._values)[:-1, :width].clone(),
            "count": as_tensor(self._count)[:-1].clone(),
            "num_overwritten": self._num_overwritten,
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if `state` does not fit."""
        values, count = state["values"], state["count"]
        if values.dim() != 2 or len(values) != self.num_instances or count.shape != (self.num_instances,):
            raise ValueError(
                f"The stored history has values of shape {tuple(values.shape)} and counts of shape "
                f"{tuple(count.shape)}, but this one has {self.num_instances} instances."
            )
        if values.dtype != STORAGE[self.storage] or (self.window and values.shape[1] > self.window):
            raise ValueError("The stored history has another storage form or window than this one.")
        width = values.shape[1]
        most = 2 * width - 1 if width == self.window else width  # a ring counts on
        if count.dtype != self._count_dtype() or int(count.min()) < 1 or int(count.max()) > most:
            raise ValueError("The stored history has counts that no history has.")
        if not torch.stack(values.aminmax()).isfinite().all():
            raise ValueError("The stored history has entries that are not finite.")
        checks.integer("num_overwritten", state["num_overwritten"], at_least=0)
        if self._captured and values.shape[1] > self.capacity:
            raise ValueError(
                "The state needs a larger storage, but a CUDA graph holds this one's address: load the state "
                "before the capture."
            )

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Take over what `state_dict` returned; return whether the storage has moved."""
        self.check_state(state)
        width = state["values"].shape[1]
        moves = bool(width > self.capacity)
        if moves:
            self._grow(width)
        self._num_overwritten = state["num_overwritten"]
        as_tensor(self._values)[:-1, :width] = state["values"].to(self.device)
        as_tensor(self._count)[:-1] = state["count"].to(self.device)
        return moves
