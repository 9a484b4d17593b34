"""Methods × repeated splits of a user's data: trained in whole splits, within a budget of minutes."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, final

from activebias import Method
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import EpochDone, Listener, Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import Side, find_side
from activebias.lab.trials import count_epochs, missing_runs, run_trials
from activebias.training.progress import Progress, duration, error_console, show_epochs

# Splits are trained in turns of about this length: a stopped command keeps the splits of finished turns.
_SECONDS_PER_TURN: Final = 60.0
# A log file gets a line at least this often.
_SECONDS_BETWEEN_LINES: Final = 15.0
# A turn that takes longer than its estimate may exceed the budget by this factor.
_GRACE: Final = 1.25


def best_by_method(results: Iterable[TrialResult]) -> list[TrialResult]:
    """Return one result for every split and method: that with the lowest validation error, else the first."""
    best: dict[tuple[int, str], TrialResult] = {}
    for result in results:
        known = best.setdefault((result.seed, result.method), result)
        if result.best_validation_error < known.best_validation_error:
            best[result.seed, result.method] = result
    return list(best.values())


class _OutOfTimeError(Exception):
    """The budget is spent."""


@final
@dataclass(frozen=True)
class Budget:
    """The seconds that a comparison may take, from `started` on."""

    seconds: float | None
    started: float

    @staticmethod
    def of_minutes(minutes: float | None) -> "Budget":
        """Return a budget that begins now; None is no limit."""
        if minutes is not None and not minutes > 0:
            raise ValueError(f"Expected `minutes` to be above 0, but got {minutes:g}.")
        return Budget(None if minutes is None else 60 * minutes, time.monotonic())

    @property
    def left(self) -> float:
        """The seconds left."""
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self.started)

    def overdrawn(self, factor: float) -> bool:
        """Return whether more than `factor` times the budget is spent."""
        return self.seconds is not None and time.monotonic() - self.started > factor * self.seconds


def run_splits(
    recipe: Recipe,
    dataset: Dataset,
    methods: Sequence[str | Method | Side],
    *,
    place: Place,
    minutes: float | None = None,
    listener: Listener | None = None,
    quiet: bool = False,
) -> list[TrialResult]:
    """Train every method on every split, and return the results of the finished splits.

    The results are in the order of the splits, then of the methods. Splits with stored results are not
    trained again. With a budget of `minutes`, fewer splits may be finished; all methods have the same splits.
    Raises if not one split can be finished.
    """
    budget = Budget.of_minutes(minutes)
    resolved = [find_side(method) for method in methods]
    seeds = range(recipe.trials)
    missing = missing_runs(recipe, resolved, seeds, place)
    stored = [seed for seed in seeds if seed not in missing]
    with _listening(recipe, resolved, missing, place, budget, listener, quiet) as told:
        if stored:
            told.on_message(
                f"{len(stored)} of {len(seeds)} splits are read from {place.store.path(recipe.name)}, "
                "not trained again."
            )
        turns = _Turns(recipe, dataset, resolved, place, told, budget)
        turns.train(list(missing))
    unfinished = missing_runs(recipe, resolved, seeds, place)
    done = [seed for seed in seeds if seed not in unfinished]
    if not done:
        raise RuntimeError(
            f"No split was finished within `minutes`, {minutes:g}: one split takes about "
            f"{duration(turns.seconds_per_split or 0)}. Give more minutes, or fewer epochs or "
            "methods."
        )
    return run_trials(recipe, methods=resolved, seeds=done, place=place, dataset=dataset)


@final
class _Turns:
    """Trains splits in turns: one split, then as many as fit into a turn and into the budget."""

    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        methods: Sequence[Side],
        place: Place,
        listener: Listener,
        budget: Budget,
    ) -> None:
        self.recipe, self.dataset, self.methods, self.place = recipe, dataset, methods, place
        self.listener, self.budget = listener, budget
        self.done: list[int] = []
        self.seconds_per_split: float | None = None
        self._epochs = 0
        self._first: tuple[float, int] | None = None  # when the first epochs of a turn ended, and how many

    def train(self, waiting: Sequence[int]) -> None:
        """Train the waiting splits, until all are done or the budget is spent."""
        while waiting and (number := self._number()):
            turn, waiting = waiting[:number], waiting[number:]
            started, self._epochs, self._first = time.monotonic(), 0, None
            try:
                run_trials(
                    self.recipe,
                    methods=self.methods,
                    seeds=turn,
                    place=self.place,
                    dataset=self.dataset,
                    listener=replace(self.listener, on_epoch=self._on_epoch),
                )
            except _OutOfTimeError:
                total = count_epochs(self.recipe, dict.fromkeys(turn, self.methods))
                self.seconds_per_split = self._pace(started) * total / len(turn)
                return
            self.done += turn
            self.seconds_per_split = max(time.monotonic() - started, 1e-3) / len(turn)

    def _number(self) -> int:
        """Return the number of splits of the next turn; 0 if the budget does not allow another split."""
        if self.budget.left <= 0:
            return 0
        if self.seconds_per_split is None:
            return 1
        if self.budget.left < self.seconds_per_split:
            return 0
        return max(1, int(min(self.budget.left, _SECONDS_PER_TURN) / self.seconds_per_split))

    def _on_epoch(self, seen: EpochDone) -> None:
        self._epochs += 1
        self.listener.on_epoch(seen)
        if seen.more_follow:
            return
        first = self._first is None
        self._first = self._first or (time.monotonic(), self._epochs)
        # The first epochs may be a fraction of a second, which tells nothing of the time that a split takes.
        is_short = self.budget.seconds is not None and self.budget.seconds < _SECONDS_BETWEEN_LINES
        if self.budget.overdrawn(_GRACE if self.done else 1) and not (first and is_short):
            raise _OutOfTimeError

    def _pace(self, started: float) -> float:
        """Return the seconds an epoch, without the first epochs, which include building the models."""
        assert self._first is not None
        ended, epochs = self._first
        if self._epochs == epochs:
            return (ended - started) / epochs
        return (time.monotonic() - ended) / (self._epochs - epochs)


@contextmanager
def _listening(
    recipe: Recipe,
    sides: Sequence[Side],
    missing: Mapping[int, Sequence[Side]],
    place: Place,
    budget: Budget,
    listener: Listener | None,
    quiet: bool,
) -> Iterator[Listener]:
    """Yield the user's listener, or one that shows the progress on stderr."""
    if listener is not None or quiet:
        yield listener or Listener()
    else:
        with show_epochs(recipe.name, count_epochs(recipe, missing), error_console()) as progress:
            progress.pace.most_seconds = budget.left
            known = place.store.load(recipe.name, recipe.config())
            yield _shown(recipe, sides, missing, known, progress)


def _shown(
    recipe: Recipe,
    sides: Sequence[Side],
    missing: Mapping[int, Sequence[Side]],
    known: Iterable[TrialResult],
    progress: Progress,
) -> Listener:
    """Return a listener with a line for every finished split, and lines in between."""
    stored = {result.key[2:]: result for result in known}
    finished = recipe.trials - len(missing)

    def on_epoch(done: EpochDone) -> None:
        progress.count(f"{recipe.name}, split {done.seed + 1}, {done.method or 'burn-in'}")
        if not done.more_follow and progress.seconds_since_line() >= _SECONDS_BETWEEN_LINES:
            pace = progress.pace
            progress.log(f"{recipe.name}: {pace.done} of {pace.total} epochs{progress.and_left()}")

    def on_result(result: TrialResult) -> None:
        nonlocal finished
        stored[result.key[2:]] = result
        found = [stored.get(side.key(result.seed)) for side in sides]
        if all(found):
            finished += 1
            best = best_by_method(filter(None, found))
            texts = ", ".join(f"{each.method} {each.chosen_test_error:.1f}" for each in best)
            progress.log(
                f"{recipe.name}, split {result.seed + 1}: {recipe.measure} {texts} % "
                f"({finished} of {recipe.trials} splits{progress.and_left()})"
            )

    return Listener(
        on_epoch=on_epoch, on_result=on_result, on_message=progress.tell, on_recount=progress.recount
    )
