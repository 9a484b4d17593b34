"""Runs trials for a command, with progress on stderr."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from activebias.commands.shared import say
from activebias.lab.experiment.place import EpochDone, Listener, Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import Side
from activebias.lab.trials import (
    Spread,
    UnlearntWarning,
    count_epochs,
    missing_runs,
    nothing_to_learn_from,
    run_trials,
)
from activebias.training.progress import Progress, error_console, show_epochs

# The results of a group come at the same time. In between, a log file gets a line at this interval.
_SECONDS_BETWEEN_LINES = 60.0


def trial_name(result: TrialResult) -> str:
    """Return how progress names a trial: "trial 3, wtc+gce (q 0.7)"."""
    return f"trial {result.seed}, {result.method}" + (f" ({result.rule})" if result.rule else "")


def run(
    recipe: Recipe,
    methods: Sequence[str | Side],
    seeds: Sequence[int],
    place: Place,
    *,
    quiet: bool,
    keep_models: bool = False,
    spread: Spread | None = None,
    named: Callable[[TrialResult], str] = trial_name,
) -> list[TrialResult]:
    """Train the missing trials, with progress on stderr, and return all results."""
    if text := nothing_to_learn_from(recipe, methods):
        say(f"Warning: {text}")
    missing = missing_runs(recipe, methods, seeds, place, keep_models=keep_models)
    number = sum(len(group) for group in missing.values())
    total = count_epochs(recipe, missing)
    with (
        warnings.catch_warnings(),
        show_trials(
            recipe.name, total, number, console=error_console(), quiet=quiet, named=named
        ) as listener,
    ):
        warnings.simplefilter("ignore", UnlearntWarning)
        return run_trials(
            recipe,
            methods=methods,
            seeds=seeds,
            place=place,
            listener=listener,
            keep_models=keep_models,
            spread=spread,
        )


@contextmanager
def show_trials(
    recipe: str,
    total_epochs: int,
    num_results: int,
    *,
    console: Console,
    quiet: bool,
    named: Callable[[TrialResult], str] = trial_name,
) -> Iterator[Listener]:
    """Yield a listener that shows the progress of `total_epochs` epochs and `num_results` results.

    A terminal has one bar. A log file has a line for every result, and a line per minute in between.
    """
    if quiet:
        yield Listener()
    elif total_epochs == 0:
        yield Listener(on_message=lambda text: console.print(text, soft_wrap=True))
    else:
        with show_epochs(recipe, total_epochs, console) as progress:
            yield _listener(recipe, num_results, progress, named)


def _listener(
    recipe: str, num_results: int, progress: Progress, named: Callable[[TrialResult], str]
) -> Listener:
    count = 0

    def on_epoch(done: EpochDone) -> None:
        if done.recipe != recipe:
            # A teacher is trained first. Its epochs are not in the total.
            progress.say_doing(f"{done.recipe}, epoch {done.epoch}")
            return
        progress.count(f"{recipe} {done.seed} {done.method or 'burn-in'}")
        if not done.more_follow and progress.seconds_since_line() >= _SECONDS_BETWEEN_LINES:
            pace = progress.pace
            progress.log(f"{recipe}: {pace.done} of {pace.total} epochs{progress.and_left()}")

    def on_result(result: TrialResult) -> None:
        nonlocal count
        text = f"{result.recipe}, {named(result)}"
        # A search decides by the validation error.
        has_validation = result.validation_error is not None
        error = result.best_validation_error if has_validation else result.best_test_error
        kind = "lowest validation" if has_validation else "best test"
        text += f": {kind} error {error:.2f} %, {result.seconds:.1f} s"
        if result.recipe == recipe:
            count += 1
            text += f" ({count} of {num_results}{progress.and_left()})"
        progress.log(text)

    return Listener(
        on_epoch=on_epoch, on_result=on_result, on_message=progress.tell, on_recount=progress.recount
    )
