"""Checkpoints of training: written atomically, at most about once a second, removed after the training."""

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import torch

from activebias.internal import has_our_format, remove_leftovers, replacing, until_written

_LEAST_RATIO = 20
_log = logging.getLogger(__name__)


@final
class Checkpoint:
    """A file with the state of an unfinished run.

    After an epoch a checkpoint is `due` unless the last write is less than `interval` seconds old: an epoch
    of the digits takes a hundredth of a second, less than a write. A killed process therefore loses its
    current epoch, or its last second. The states of a hundred models are gigabytes: writing them takes at
    most a 20th of the time.

    A checkpoint with another `fingerprint` belongs to other data or settings, and is not read.
    """

    def __init__(self, path: Path, *, interval: float = 1.0, fingerprint: str | None = None) -> None:
        """Use the file `path`; the first write creates its folder."""
        self.path, self.interval, self.fingerprint = path, interval, fingerprint
        self._written = time.monotonic()
        self._cost = 0.0

    def due(self) -> bool:
        """Return whether the last write is old enough for another write."""
        wait = max(self.interval, _LEAST_RATIO * self._cost) if self.interval else 0.0
        return time.monotonic() - self._written >= wait

    def write(self, state: dict[str, Any]) -> None:
        """Write atomically: even after a power cut, the file holds the old state or the new state."""
        started = time.monotonic()
        try:
            self._write(state)
        except FileNotFoundError:
            # Another process has finished the same trial and deleted the folder: no state to keep.
            _log.info("%s was removed by another process.", self.path.parent)
        finally:
            self._written = time.monotonic()
            self._cost = self._written - started

    def _write(self, state: dict[str, Any]) -> None:
        if self.fingerprint is not None:
            state = state | {"fingerprint": self.fingerprint}
        # torch.save hides the cause of an error if it receives a path instead of an open file.
        with until_written(), replacing(self.path) as temporary, open(temporary, "wb") as file:
            torch.save(state, file)

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None if there is no usable file; code in the file is never run."""
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            return None
        except Exception as error:  # torch raises many exception types for a damaged file
            _log.warning("%s cannot be read (%s): training begins again.", self.path, error)
            return None
        if not isinstance(state, dict) or state.pop("fingerprint", None) != self.fingerprint:
            return None
        return state

    def read_run(self) -> dict[str, Any] | None:
        """Return the state of a `Run`; None too if its histories have the format of another release."""
        state = self.read()
        if state is not None and not all(map(has_our_format, state["biases"].values())):
            _log.warning("%s is of another release: training begins again.", self.path)
            return None
        return state

    def remove(self) -> None:
        """Delete the file and temporary files of killed processes, and the folder if it is empty then."""
        self.path.unlink(missing_ok=True)
        remove_leftovers(self.path)
        with suppress(OSError):  # not empty, or another process was faster
            self.path.parent.rmdir()


def checkpoint_beside(path: Path, fingerprint: str) -> Checkpoint:
    """Return the checkpoint for a run that will be written to `path`."""
    file = path.with_name(f".{path.name}.checkpoint.pt")
    return Checkpoint(file, interval=5.0, fingerprint=fingerprint)
