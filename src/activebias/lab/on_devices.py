"""Trials on several devices of this machine: one process per share, one store, and shares that survive kills.

A process appends to the store itself, and writes checkpoints beside it. If a process is killed, its share
goes on from there in another process.
"""

import multiprocessing
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, final

import torch

from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.sides import Missing
from activebias.lab.shares import (
    Event,
    Share,
    in_shares,
    silent_about_epochs,
    teacher_share,
    tell,
    told_by,
)
from activebias.lab.trials import count_epochs

# A share whose processes were killed so often is probably the cause.
_MOST_KILLS = 3
_SECONDS_TO_STOP = 5.0


@final
@dataclass(frozen=True)
class OnDevices:
    """Trains trials on several devices of this machine; a device named twice gets two processes.

    In a program of your own, call it below `if __name__ == "__main__":`, because the processes import the
    program.
    """

    devices: Sequence[str]

    def __call__(
        self, recipe: Recipe, missing: Missing, place: Place, listener: Listener, dataset: Dataset | None
    ) -> None:
        """Train the missing trials; raise the first error of a process, after all processes ended."""
        if (teacher := teacher_share(recipe, place, dataset)) is not None:
            _Crew(self.devices, silent_about_epochs(listener)).train([teacher])
        shares = in_shares(recipe, missing, place, len(self.devices), dataset)
        listener.on_recount(sum(share.epochs for share in shares) - count_epochs(recipe, missing))
        sizes = " + ".join(str(share.num_results) for share in shares)
        listener.on_message(f"{recipe.name}: {sizes} models on {', '.join(self.devices)}.")
        _Crew(self.devices, listener).train(shares)


@final
@dataclass
class _Worker:
    """A process that trains a share on a device, and the end of the pipe that it tells its events by."""

    share: Share
    device: str
    kills: int
    process: BaseProcess
    pipe: Connection
    epochs_left: int
    error: BaseException | None = None
    is_done: bool = False

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.join(_SECONDS_TO_STOP)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


@final
@dataclass
class _Crew:
    """The processes of all devices. Each process has a pipe of its own: a kill damages no other's pipe."""

    devices: Sequence[str]
    listener: Listener
    workers: dict[Connection, _Worker] = field(default_factory=dict)

    def train(self, shares: Iterable[Share]) -> None:
        """Train the shares, each on the next free device."""
        waiting = deque((share, 0) for share in shares)
        free = deque(self.devices)
        try:
            while waiting or self.workers:
                while waiting and free:
                    self._start(*waiting.popleft(), free.popleft())
                ready = wait(list(self.workers))
                for worker in [worker for pipe, worker in self.workers.items() if pipe in ready]:
                    if self._hear(worker):
                        continue
                    free.append(worker.device)
                    if (left := self._ended(worker)) is not None:
                        waiting.appendleft((left, worker.kills + 1))
        finally:
            for worker in self.workers.values():
                worker.stop()

    @cached_property
    def _context(self) -> Any:
        """The way to start processes: on CPUs as forks of a server that imports torch once."""
        if any(device != "cpu" for device in self.devices):
            return multiprocessing.get_context(
                "spawn"
            )  # a fork of a process that counted GPUs cannot use them
        context = multiprocessing.get_context("forkserver")
        # The first optimiser of a process imports torch._dynamo, which takes seconds.
        context.set_forkserver_preload(["activebias.lab.on_devices", "torch._dynamo"])
        return context

    def _start(self, share: Share, kills: int, device: str) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        threads = max(1, torch.get_num_threads() // list(self.devices).count("cpu")) if device == "cpu" else 0
        on_device = replace(share, place=replace(share.place, device=device))
        process = self._context.Process(target=_work, args=(on_device, theirs, threads), daemon=True)
        process.start()
        theirs.close()  # the pipe ends with the process
        self.workers[ours] = _Worker(share, device, kills, process, ours, share.epochs)

    def _hear(self, worker: _Worker) -> bool:
        """Take in the worker's next event; return False if the pipe has ended."""
        try:
            name, value = worker.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return False
        if name == "error":
            worker.error = value
        elif name == "done":
            worker.is_done = True
        else:
            if name == "on_epoch":
                worker.epochs_left -= 1
            elif name == "on_recount":
                worker.epochs_left += value
            tell(self.listener, [(name, value)])
        return True

    def _ended(self, worker: _Worker) -> Share | None:
        """Return the rest of a killed worker's share, or None; raise the error that a worker has sent."""
        del self.workers[worker.pipe]
        worker.pipe.close()
        worker.process.join()
        if worker.error is not None:
            raise worker.error
        if worker.is_done:
            return None
        left = worker.share.left()
        self.listener.on_recount(left.epochs - worker.epochs_left)
        how = _how_it_ended(worker.process.exitcode)
        about = f"{left.recipe.name}: the process on {worker.device} was ended by {how}"
        if worker.kills + 1 == _MOST_KILLS and left.missing:
            raise RuntimeError(
                f"{about}, as {_MOST_KILLS - 1} before it with the same trials: if the RAM is too small, use "
                "`--side-by-side 1` or fewer devices; finished results are stored."
            )
        models = "model" if left.num_results == 1 else "models"
        self.listener.on_message(f"{about}; its {left.num_results} {models} go on in another process.")
        return left if left.missing else None


def _how_it_ended(code: int | None) -> str:
    """Return the end of a process in words.

    >>> _how_it_ended(-9), _how_it_ended(3)
    ('SIGKILL', 'exit code 3')
    """
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _work(share: Share, pipe: Connection, threads: int) -> None:
    """Train a share in a process of its own; the events go into the pipe."""
    # Ctrl-C reaches all processes of a terminal: the first process then stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if threads:
        torch.set_num_threads(threads)
    last: Event = ("done", None)
    try:
        share.train(told_by(pipe.send))
    except BrokenPipeError:
        return  # the first process was killed, and the same command goes on from the checkpoint
    except Exception as error:
        note = f"In the process on {share.place.device}:\n{traceback.format_exc()}"
        if sys.version_info >= (3, 11):
            error.add_note(note)
        else:  # errors take no notes
            print(note, file=sys.stderr)
        last = ("error", _portable(error))
    pipe.send(last)


def _portable(error: Exception) -> Exception:
    """Return the error, or its text if the error itself cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
