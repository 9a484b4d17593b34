"""Where the lab puts what it trains, and who is told about it."""

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
    """What a progress bar needs to know: an epoch is over. `method` is None while methods share it.

    `more_follow`: other models, trained at the same time, end theirs at this moment, and are told of next.
    """

    recipe: str
    seed: int
    method: str | None
    epoch: int
    test_error: float
    more_follow: bool = False


def check_folder(folder: Path, argument: str) -> None:
    """Raise unless `folder` is one, or can become one: what stands at its place is no file."""
    found = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if found is not None and not found.is_dir():
        raise ValueError(f"Expected `{argument}` to be a folder, but {found} is a file: choose another name.")


@final
@dataclass(frozen=True)
class Place:
    """Where everything of the lab lies: results, checkpoints, models and figures under one folder.

    `side_by_side` is the most models that are trained at once; None for as many as memory and use allow.
    """

    folder: Path
    data: str | Path | None = None
    device: str = "cpu"
    interval: float = 1.0
    side_by_side: int | None = None

    def __post_init__(self) -> None:
        """Refuse a folder that is none, and a number of models that trains nothing."""
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
        """Return the files beside the checkpoints of a recipe's trials whose names match."""
        folders = f"{recipe.name}-{config_hash(recipe.config())}-*"
        return sorted((self.folder / "checkpoints").glob(f"{folders}/{pattern}"))

    def model_path(self, recipe: Recipe, method: str, seed: int) -> Path:
        """Return the file of a trained model with its history."""
        name = f"{recipe.name}-{config_hash(recipe.config())}-{method}-{seed}.pt"
        return self.folder / "models" / name


@final
@dataclass(frozen=True)
class Listener:
    """Who wants to know: called after every epoch, for every result, and with what is worth saying.

    `on_recount` is told how many epochs more than were counted before will come; fewer, if it is below 0. It
    is called, if need be with 0, when the data is there and training begins.
    """

    on_epoch: Callable[[EpochDone], object] = lambda done: None
    on_result: Callable[[TrialResult], object] = lambda result: None
    on_message: Callable[[str], object] = lambda text: None
    on_recount: Callable[[int], object] = lambda number: None
