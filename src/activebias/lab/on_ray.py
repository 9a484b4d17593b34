"""Trials on an existing Ray cluster: a task per share. Ray schedules, and retries after a lost worker.

A worker trains in a temporary folder. A folder that a killed worker leaves behind is deleted by the next task
on that machine. A worker needs this package, but no data: data set and teacher come with the task. The
results go back to this process, which appends them to the one store.
"""

import fcntl
import importlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, final

from activebias.internal import replacing
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.prepared import load_data
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
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

_MOST_RETRIES = 3
_SECONDS_TO_ANSWER = 10.0
_FOLDERS = "activebias-ray-"

Models = dict[str, bytes]
"""Files of the folder `models`, by name."""


class Trained(NamedTuple):
    """What a task returns: results, the worker's events, and the files of kept models."""

    results: list[TrialResult]
    events: list[Event]
    models: Models


@final
@dataclass(frozen=True)
class OnRay:
    """Trains trials on the Ray cluster at `address`, on its GPUs, or on its CPUs if it has none.

    Every task takes one GPU or one CPU. The progress of a share is told when the share is done.
    """

    address: str
    device: str | None = None

    def __call__(
        self, recipe: Recipe, missing: Missing, place: Place, listener: Listener, dataset: Dataset | None
    ) -> None:
        """Train the missing trials; raise the first error of a task."""
        ray = _import_ray()
        dataset = load_data(recipe, place.data) if dataset is None else dataset
        _connect(ray, self.address)
        try:
            tasks = _Tasks(ray, self._find_device(ray), ray.put(dataset))
            if (teacher := teacher_share(recipe, place)) is not None:
                tasks.train([teacher], silent_about_epochs(listener), {})
            shares = in_shares(recipe, missing, place, tasks.num_workers)
            listener.on_recount(sum(share.epochs for share in shares) - count_epochs(recipe, missing))
            listener.on_message(
                f"{recipe.name}: {len(shares)} tasks for {tasks.num_workers} × {tasks.device} of Ray."
            )
            tasks.train(shares, listener, _models_for(recipe, place))
        finally:
            ray.shutdown()

    def _find_device(self, ray: ModuleType) -> str:
        resources = ray.cluster_resources()
        device = self.device or ("cuda" if resources.get("GPU", 0) >= 1 else "cpu")
        if resources.get(_resource(device), 0) < 1:
            raise ValueError(
                f"The Ray cluster at {self.address} has no {_resource(device)}: choose another `--device`."
            )
        return device


def _resource(device: str) -> str:
    return "GPU" if device == "cuda" else "CPU"


def _import_ray() -> ModuleType:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ValueError("`--ray` needs Ray, which is not installed: pip install activebias[ray].") from None


def _connect(ray: ModuleType, address: str) -> None:
    """Connect this process to the cluster; raise at once if nobody answers, where Ray tries for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    try:
        if colon and port.isdigit():
            socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (OSError, OverflowError, ValueError) as error:
        raise ValueError(
            f"Expected `--ray` to be the address of a running Ray cluster, but got {address!r} ({error}): "
            "start a cluster with `ray start --head`, which prints its address."
        ) from None


def _models_for(recipe: Recipe, place: Place) -> Models:
    """Return the file of the recipe's teacher, if the recipe has a teacher."""
    if recipe.teacher is None:
        return {}
    path = place.model_path(recipe.teacher, "scan", 0)
    return {path.name: path.read_bytes()}


@final
@dataclass(frozen=True)
class _Tasks:
    """Shares as tasks of a Ray cluster that this process is connected to."""

    ray: Any
    device: str
    dataset: Any

    @property
    def num_workers(self) -> int:
        """The number of tasks that run at once."""
        return int(self.ray.cluster_resources()[_resource(self.device)])

    def train(self, shares: list[Share], listener: Listener, models: Models) -> None:
        """Train the shares, and store the results of each share as soon as it is done."""
        ray = self.ray
        resource = {"num_gpus": 1} if self.device == "cuda" else {"num_cpus": 1}
        task = ray.remote(max_retries=_MOST_RETRIES, **resource)(train_task)
        files = ray.put(models)
        pending = {}
        for share in shares:
            on_device = replace(share, place=replace(share.place, device=self.device))
            pending[task.remote(on_device, self.dataset, files)] = share
        # After an error or Ctrl-C, `ray.shutdown` ends the tasks of this process. `ray.cancel` of a task that
        # is just done can crash the process (Ray 2.60: "Tried to complete task that was not pending").
        while pending:
            (done,), _ = ray.wait(list(pending), num_returns=1)
            _take_in(pending.pop(done), self._result(done), listener)

    def _result(self, task: Any) -> Trained:
        lost = self.ray.exceptions
        try:
            return self.ray.get(task)  # type: ignore[no-any-return]
        except lost.RayTaskError as error:
            raise error.cause from None  # the error itself, without the traceback of the worker in its text
        except (lost.WorkerCrashedError, lost.NodeDiedError, lost.OutOfMemoryError) as error:
            raise RuntimeError(
                f"Ray lost the workers of a task {_MOST_RETRIES + 1} times ({error}): if their RAM is too "
                "small, use `--side-by-side 1`. Finished results are stored."
            ) from None


def _take_in(share: Share, trained: Trained, listener: Listener) -> None:
    for name, content in trained.models.items():
        with replacing(share.place.folder / "models" / name) as temporary:
            temporary.write_bytes(content)
    share.place.store.append(trained.results)
    tell(listener, trained.events)


def train_task(share: Share, dataset: Dataset, models: Models) -> Trained:
    """Train a share in a temporary folder, on the machine of a worker."""
    events: list[Event] = []
    with worker_folder() as folder:
        kept = folder / "models"
        kept.mkdir()
        for name, content in models.items():
            (kept / name).write_bytes(content)
        place = replace(share.place, folder=folder)
        results = replace(share, place=place, dataset=dataset).train(told_by(events.append))
        new = {path.name: path.read_bytes() for path in kept.iterdir() if path.name not in models}
    return Trained(results, events, new)


@contextmanager
def worker_folder() -> Iterator[Path]:
    """Yield a temporary folder and delete it at the end; first delete the folders of killed workers.

    A worker locks its folder. The system unlocks the folder when the worker ends, in whatever way.
    """
    base = Path(tempfile.gettempdir())
    for folder in base.glob(f"{_FOLDERS}*"):
        _delete_unlocked(folder)
    folder = Path(tempfile.mkdtemp(prefix="activebias-"))
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Only now the name that other workers look for: before, the folder was not locked.
        folder = folder.rename(base / f"{_FOLDERS}{folder.name}")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _delete_unlocked(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # deleted just now, or another user's
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass  # a worker trains in it
    finally:
        os.close(descriptor)
