"""Methods × repeated splits of a user's data: trained in whole splits, within a budget of minutes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, final

from activebias import Method, get_method
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import EpochDone, Listener, Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.split_verdict import chosen_error
from activebias.lab.trials import count_epochs, missing_runs, run_trials
from activebias.training.progress import Progress, error_console, show_epochs

# Splits are trained in turns of about this length: a stopped command keeps the splits of finished turns.
_SECONDS_PER_TURN: Final = 60.0
# A log file gets a line at least this often.
_SECONDS_BETWEEN_LINES: Final = 15.0
# A turn that takes longer than its estimate may exceed the budget by this factor.
_GRACE: Final = 1.25


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
    methods: Sequence[str | Method],
    *,
    place: Place,
    minutes: float | None = None,
    listener: Listener | None = None,
    quiet: bool = False,
) -> list[TrialResult]:
    """Train every method on every split, and return the results of the finished splits.

    Splits with stored results are not trained again. With a budget of `minutes`, fewer splits may be
    finished; all methods have the same splits. Raises if not one split can be finished.
    """
    budget = Budget.of_minutes(minutes)
    resolved = [get_method(method) for method in methods]
    seeds = range(recipe.trials)
    missing = missing_runs(recipe, resolved, seeds, place)
    stored = [seed for seed in seeds if seed not in missing]
    with _listening(recipe, missing, budget, listener, quiet) as told:
        if stored:
            told.on_message(
                f"{len(stored)} of {len(seeds)} splits are read from {place.store.path(recipe.name)}, "
                "not trained again."
            )
        done = stored + _train(recipe, dataset, resolved, list(missing), place, told, budget, bool(stored))
    return run_trials(recipe, methods=resolved, seeds=sorted(done), place=place, dataset=dataset)


def _train(
    recipe: Recipe,
    dataset: Dataset,
    methods: Sequence[Method],
    waiting: list[int],
    place: Place,
    listener: Listener,
    budget: Budget,
    something_done: bool,
) -> list[int]:
    """Train the waiting splits in turns: one, then as many as fit. Return the finished splits."""
    done: list[int] = []
    per_split: float | None = None
    while waiting:
        number = 1 if per_split is None else int(min(budget.left, _SECONDS_PER_TURN) / per_split)
        if number < 1 and (budget.left < (per_split or 0) or budget.left <= 0):
            break
        turn, waiting = waiting[: max(number, 1)], waiting[max(number, 1) :]
        started, epochs = time.monotonic(), 0

        def on_epoch(seen: EpochDone) -> None:
            nonlocal epochs
            epochs += 1
            listener.on_epoch(seen)
            if not seen.more_follow and budget.overdrawn(_GRACE if done else 1):  # noqa: B023
                raise _OutOfTimeError

        try:
            run_trials(
                recipe,
                methods=methods,
                seeds=turn,
                place=place,
                dataset=dataset,
                listener=replace(listener, on_epoch=on_epoch),
            )
        except _OutOfTimeError:
            if not done and not something_done:
                total = count_epochs(recipe, dict.fromkeys(turn, methods))
                minutes = (time.monotonic() - started) / 60 * total / max(epochs, 1)
                raise RuntimeError(
                    f"No split was finished within `minutes`, {(budget.seconds or 0) / 60:g}: one split "
                    f"takes about {minutes:.1f} minutes. Give more minutes, or fewer epochs or methods."
                ) from None
            break
        done += turn
        per_split = max(time.monotonic() - started, 1e-3) / len(turn)
    return done


@contextmanager
def _listening(
    recipe: Recipe,
    missing: Mapping[int, Sequence[Method]],
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
            yield _shown(recipe, missing, progress)


def _shown(recipe: Recipe, missing: Mapping[int, Sequence[Method]], progress: Progress) -> Listener:
    """Return a listener with a line for every finished split, and lines in between."""
    errors: dict[int, dict[str, float]] = {}
    finished = recipe.trials - len(missing)

    def on_epoch(done: EpochDone) -> None:
        progress.count(f"{recipe.name}, split {done.seed + 1}, {done.method or 'burn-in'}")
        if not done.more_follow and progress.seconds_since_line() >= _SECONDS_BETWEEN_LINES:
            pace = progress.pace
            progress.log(f"{recipe.name}: {pace.done} of {pace.total} epochs{progress.and_left()}")

    def on_result(result: TrialResult) -> None:
        nonlocal finished
        found = errors.setdefault(result.seed, {})
        found[result.method] = chosen_error(result)
        if len(found) == len(missing[result.seed]):
            finished += 1
            texts = ", ".join(f"{name} {error:.1f}" for name, error in found.items())
            progress.log(
                f"{recipe.name}, split {result.seed + 1}: test error {texts} % "
                f"({finished} of {recipe.trials} splits{progress.and_left()})"
            )

    return Listener(
        on_epoch=on_epoch, on_result=on_result, on_message=progress.tell, on_recount=progress.recount
    )
