"""Checkpoints of training: written whole or not at all, at most about once a second, removed when done."""

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import torch

from activebias.internal import remove_leftovers, replacing

_LEAST_RATIO = 20
_log = logging.getLogger(__name__)


@final
class Checkpoint:
    """One file that holds where a run stands.

    After an epoch it is `due` unless the last write is less than `interval` seconds old: an epoch of the
    digits takes a hundredth of a second, and writing would take longer than training. So a process that is
    killed loses the epoch under way, or its last second. The states of a hundred models are gigabytes:
    writing them takes at most a 20th of the time.

    A checkpoint that was written with another `fingerprint` is of other data or settings, and is not read.
    """

    def __init__(self, path: Path, *, interval: float = 1.0, fingerprint: str | None = None) -> None:
        """Use `path`, whose folder is made when something is written."""
        self.path, self.interval, self.fingerprint = path, interval, fingerprint
        self._written = time.monotonic()
        self._cost = 0.0

    def due(self) -> bool:
        """Tell whether the last write is old enough for another one."""
        wait = max(self.interval, _LEAST_RATIO * self._cost) if self.interval else 0.0
        return time.monotonic() - self._written >= wait

    def write(self, state: dict[str, Any]) -> None:
        """Write so that the file holds either the old state or the whole new one, even after a power cut."""
        started = time.monotonic()
        try:
            self._write(state)
        except FileNotFoundError:
            # Another process that works on the same trial has finished it and cleaned up: nothing to keep.
            _log.info("%s was removed by another process.", self.path.parent)
        finally:
            self._written = time.monotonic()
            self._cost = self._written - started

    def _write(self, state: dict[str, Any]) -> None:
        if self.fingerprint is not None:
            state = state | {"fingerprint": self.fingerprint}
        # Given a name instead of a file, torch would hide the reason of an error.
        with replacing(self.path) as temporary, open(temporary, "wb") as file:
            torch.save(state, file)

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None where there is none; no code in the file is ever run."""
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            return None
        except Exception as error:  # torch raises many kinds for a damaged file
            _log.warning("%s cannot be read (%s): training begins again.", self.path, error)
            return None
        if not isinstance(state, dict) or state.pop("fingerprint", None) != self.fingerprint:
            return None
        return state

    def remove(self) -> None:
        """Delete the file and what a killed process left of it, and the folder if that was all."""
        self.path.unlink(missing_ok=True)
        remove_leftovers(self.path)
        with suppress(OSError):  # not empty, or another process was faster
            self.path.parent.rmdir()


def checkpoint_beside(path: Path, fingerprint: str) -> Checkpoint:
    """Return the checkpoint of the run that is to be written to `path`."""
    file = path.with_name(f".{path.name}.checkpoint.pt")
    return Checkpoint(file, interval=5.0, fingerprint=fingerprint)
