"""Missing trials divided into shares: a share can be trained by another process or on another machine."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, final

from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import Missing, find_side
from activebias.lab.side_by_side import in_groups, lanes_of
from activebias.lab.trials import count_epochs, missing_runs, train_trials

Event = tuple[str, Any]
"""The name of a listener's function, and its argument."""


@final
@dataclass(frozen=True)
class Share:
    """Trials for one worker. It can be pickled. Without a data set, the worker loads the recipe's."""

    recipe: Recipe
    missing: Missing
    place: Place
    dataset: Dataset | None = None
    keep_models: bool = False

    @property
    def epochs(self) -> int:
        """The number of epochs to train."""
        return count_epochs(self.recipe, self.missing)

    @property
    def num_results(self) -> int:
        """The number of results to come."""
        return sum(map(len, self.missing.values()))

    def left(self) -> "Share":
        """Return the trials of the share that the place's store still lacks."""
        sides = dict.fromkeys(chain(*self.missing.values()))
        now = missing_runs(self.recipe, sides, self.missing, self.place, keep_models=self.keep_models)
        wanted = {seed: [side for side in group if side in self.missing[seed]] for seed, group in now.items()}
        return replace(self, missing={seed: group for seed, group in wanted.items() if group})

    def train(self, listener: Listener) -> list[TrialResult]:
        """Train the share in this process, store its results in the share's place, and return them."""
        self.place.folder.mkdir(parents=True, exist_ok=True)
        train_trials(
            self.recipe, self.missing, self.place, listener, self.dataset, keep_models=self.keep_models
        )
        stored = self.place.store.load(self.recipe.name, self.recipe.config())
        wanted = {side.key(seed) for seed, group in self.missing.items() for side in group}
        return [result for result in stored if result.key[2:] in wanted]


def in_shares(
    recipe: Recipe, missing: Missing, place: Place, num_workers: int, dataset: Dataset | None = None
) -> list[Share]:
    """Divide the missing trials evenly among the workers, largest share first.

    Methods that scan and methods that draw are never side by side, and so have shares of their own. A
    worker divides a share that is too large for its RAM, or larger than `place.side_by_side`.
    """
    shares = []
    total = sum(map(len, missing.values()))
    for scans in (True, False):
        lanes = lanes_of(missing, scans=scans)
        if not lanes:
            continue
        most = -(-total // num_workers)
        trial = max(Counter(lane.seed for lane in lanes).values())
        if most > trial:  # whole trials, which share their burn-in
            most = trial * round(most / trial)
        for group in in_groups(lanes, most):
            wanted: dict[int, list[Any]] = {}
            for lane in group:
                wanted.setdefault(lane.seed, []).append(lane.side)
            shares.append(Share(recipe, wanted, place, dataset))
    return sorted(shares, key=lambda share: -share.epochs)


def teacher_share(recipe: Recipe, place: Place, dataset: Dataset | None = None) -> Share | None:
    """Return the training of the recipe's teacher; None if there is no teacher, or its model is stored."""
    if recipe.teacher is None or place.model_path(recipe.teacher, "scan", 0).exists():
        return None
    return Share(recipe.teacher, {0: [find_side("scan")]}, place, dataset, keep_models=True)


def silent_about_epochs(listener: Listener) -> Listener:
    """Return the listener for a teacher: the total of epochs excludes the teacher."""
    return replace(listener, on_recount=lambda number: None)


def tell(listener: Listener, events: Sequence[Event]) -> None:
    """Pass the events of a worker on to the listener."""
    for name, value in events:
        getattr(listener, name)(value)


def told_by(send: Any) -> Listener:
    """Return a listener that sends each event as a pair of name and argument."""

    def sender(name: str) -> Any:
        return lambda value: send((name, value))

    return Listener(*(sender(name) for name in ("on_epoch", "on_result", "on_message", "on_recount")))
