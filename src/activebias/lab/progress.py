"""Progress of trials: bars with rates and the time left on a terminal, a line a result elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from activebias.lab.store import TrialResult
from activebias.lab.tables import display_name
from activebias.lab.trials import EpochDone, Listener


@final
class _Rate(ProgressColumn):
    """Epochs a second, or seconds an epoch where that is the larger number."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f} epochs/s" if speed >= 1 else f"{1 / speed:.1f} s/epoch")


@contextmanager
def show_progress(
    recipe: str, total_epochs: int, num_results: int, *, console: Console, quiet: bool
) -> Iterator[Listener]:
    """Give a listener that shows `total_epochs` epochs coming by and `num_results` results.

    On a terminal that is one bar; otherwise one line for every result, which is what a log file can hold.
    """
    if quiet:
        yield Listener()
    elif total_epochs == 0:
        yield Listener(on_message=lambda text: console.print(text, soft_wrap=True))
    elif console.is_terminal:
        # Short enough for 80 columns with the longest name of a recipe.
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            _Rate(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
        )
        with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
            task = progress.add_task(recipe, total=total_epochs)

            def on_epoch(done: EpochDone) -> None:
                if done.recipe != recipe:
                    # A teacher that is trained first: its epochs were not counted.
                    progress.update(task, description=f"{done.recipe}, epoch {done.epoch}")
                    return
                what = "burn-in" if done.method is None else display_name(done.method)
                text = f"{recipe} {done.seed} {what}"
                progress.update(task, advance=1, description=text)

            yield Listener(on_epoch=on_epoch, on_message=progress.console.print)
    else:
        yield _lines(recipe, num_results, console)


def _lines(recipe: str, num_results: int, console: Console) -> Listener:
    started, count = time.monotonic(), 0

    def on_result(result: TrialResult) -> None:
        nonlocal count
        text = f"{result.recipe}, trial {result.seed}, {display_name(result.method)}: "
        text += f"best test error {result.best_test_error:.2f} %, {result.seconds:.1f} s"
        if result.recipe == recipe:
            count += 1
            left = (time.monotonic() - started) / count * (num_results - count)
            text += f" ({count} of {num_results}" + (f", about {_duration(left)} left)" if left else ")")
        console.print(text, soft_wrap=True, highlight=False)

    return Listener(on_result=on_result, on_message=lambda text: console.print(text, soft_wrap=True))


def _duration(seconds: float) -> str:
    """Return a duration as people say it.

    >>> _duration(8), _duration(200), _duration(9000)
    ('8 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
