"""The lab's folder, and the listener for epochs and results."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult, config_hash
from activebias.lab.experiment.store import ResultStore
from activebias.training.checkpoints import Checkpoint


@final
@dataclass(frozen=True)
class EpochDone:
    """A finished epoch, for progress bars. `method` is None during a shared burn-in.

    `more_follow` is True if other models of the same group finish an epoch at this moment and come next.
    """

    recipe: str
    seed: int
    method: str | None
    epoch: int
    test_error: float
    more_follow: bool = False


def check_folder(folder: Path, argument: str) -> None:
    """Raise if `folder` cannot be a folder, because it or a parent is a file."""
    found = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if found is not None and not found.is_dir():
        raise ValueError(f"Expected `{argument}` to be a folder, but {found} is a file: choose another name.")


@final
@dataclass(frozen=True)
class Place:
    """The folder of results, checkpoints, models and figures, the data folder, and the device.

    `side_by_side` is the most models that are trained at once. None chooses as many as fit and save time.
    """

    folder: Path
    data: str | Path | None = None
    device: str = "cpu"
    interval: float = 1.0
    side_by_side: int | None = None

    def __post_init__(self) -> None:
        """Raise if the folder is a file, or if `side_by_side` is below 1."""
        check_folder(self.folder, "folder")
        if self.side_by_side is not None and self.side_by_side < 1:
            raise ValueError(
                f"Expected `side_by_side` to be at least 1, or None, but got {self.side_by_side}."
            )

    @property
    def store(self) -> ResultStore:
        """The result store."""
        return ResultStore(self.folder)

    def checkpoint(self, recipe: Recipe, seed: int, name: str) -> Checkpoint:
        """Return the checkpoint of one run of a trial."""
        folder = self.folder / "checkpoints" / f"{recipe.name}-{config_hash(recipe.config())}-{seed}"
        return Checkpoint(folder / f"{name}.pt", interval=self.interval)

    def checkpoint_files(self, recipe: Recipe, pattern: str) -> list[Path]:
        """Return the files in the checkpoint folders of a recipe's trials that match the pattern."""
        folders = f"{recipe.name}-{config_hash(recipe.config())}-*"
        return sorted((self.folder / "checkpoints").glob(f"{folders}/{pattern}"))

    def model_path(self, recipe: Recipe, method: str, seed: int) -> Path:
        """Return the file of a trained model with its history."""
        name = f"{recipe.name}-{config_hash(recipe.config())}-{method}-{seed}.pt"
        return self.folder / "models" / name


@final
@dataclass(frozen=True)
class Listener:
    """Functions that are called after every epoch, for every result, and with messages to the user.

    `on_recount` receives the number of additional epochs, which is negative if fewer epochs are left than
    counted. It is also called, with 0 if nothing changed, when the data is loaded and training begins.
    """

    on_epoch: Callable[[EpochDone], object] = lambda done: None
    on_result: Callable[[TrialResult], object] = lambda result: None
    on_message: Callable[[str], object] = lambda text: None
    on_recount: Callable[[int], object] = lambda number: None
