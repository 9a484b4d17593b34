"""Progress of trials: a bar with rate and time left on a terminal, lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from activebias.lab.store import TrialResult
from activebias.lab.tables import display_name
from activebias.lab.trials import EpochDone, Listener

# A log file is told this often how far a group is, whose results come all at once.
_SECONDS_BETWEEN_LINES = 60.0


@final
class _Pace:
    """How many epochs are done, how many will be, and how fast.

    By all that were done: side by side, many end at once and then none for minutes.
    """

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self._started = self._last = time.monotonic()

    def count(self) -> None:
        self.done += 1
        self._last = time.monotonic()

    def recount(self, number: int) -> None:
        """Expect so many epochs more. Training begins with the last of these before an epoch ends."""
        self.total += number
        if not self.done:
            self._started = time.monotonic()

    def rate(self) -> float | None:
        """Return the epochs a second until the last one ended."""
        return self.done / max(self._last - self._started, 1e-9) if self.done else None

    def left(self) -> float | None:
        """Return the seconds until all are done, if they go on as fast."""
        rate = self.rate()
        if rate is None:
            return None
        return max(0.0, (self.total - self.done) / rate - (time.monotonic() - self._last))


@final
class _RateAndLeft(ProgressColumn):
    """Epochs a second, or seconds an epoch where that is the larger number, and the time left."""

    def __init__(self, pace: _Pace) -> None:
        super().__init__()
        self.pace = pace

    def render(self, task: Task) -> Text:
        rate, left = self.pace.rate(), self.pace.left()
        if rate is None or left is None:
            return Text("")
        speed = f"{rate:.1f} epochs/s" if rate >= 1 else f"{1 / rate:.1f} s/epoch"
        return Text(f"{speed} {_duration(left)} left")


@contextmanager
def show_progress(
    recipe: str, total_epochs: int, num_results: int, *, console: Console, quiet: bool
) -> Iterator[Listener]:
    """Give a listener that shows `total_epochs` epochs coming by and `num_results` results.

    On a terminal that is one bar; otherwise a line for every result, and one a minute in between, which is
    what a log file can hold.
    """
    if quiet:
        yield Listener()
    elif total_epochs == 0:
        yield Listener(on_message=lambda text: console.print(text, soft_wrap=True))
    elif console.is_terminal:
        with _bar(recipe, _Pace(total_epochs), console) as listener:
            yield listener
    else:
        yield _lines(recipe, _Pace(total_epochs), num_results, console)


@contextmanager
def _bar(recipe: str, pace: _Pace, console: Console) -> Iterator[Listener]:
    # Short enough for 80 columns with the longest name of a recipe.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        _RateAndLeft(pace),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(recipe, total=pace.total)

        def on_epoch(done: EpochDone) -> None:
            if done.recipe != recipe:
                # A teacher that is trained first: its epochs were not counted.
                progress.update(task, description=f"{done.recipe}, epoch {done.epoch}")
                return
            pace.count()
            what = "burn-in" if done.method is None else display_name(done.method)
            progress.update(task, completed=pace.done, description=f"{recipe} {done.seed} {what}")

        def on_recount(number: int) -> None:
            pace.recount(number)
            progress.update(task, total=pace.total)

        yield Listener(on_epoch=on_epoch, on_message=progress.console.print, on_recount=on_recount)


def _lines(recipe: str, pace: _Pace, num_results: int, console: Console) -> Listener:
    count, told = 0, time.monotonic()

    def tell(text: str) -> None:
        nonlocal told
        told = time.monotonic()
        console.print(text, soft_wrap=True, highlight=False)

    def and_left() -> str:
        return f", about {_duration(left)} left" if pace.done < pace.total and (left := pace.left()) else ""

    def on_epoch(done: EpochDone) -> None:
        if done.recipe == recipe:
            pace.count()
            if not done.more_follow and time.monotonic() - told >= _SECONDS_BETWEEN_LINES:
                tell(f"{recipe}: {pace.done} of {pace.total} epochs{and_left()}")

    def on_result(result: TrialResult) -> None:
        nonlocal count
        text = f"{result.recipe}, trial {result.seed}, {display_name(result.method)}: "
        text += f"best test error {result.best_test_error:.2f} %, {result.seconds:.1f} s"
        if result.recipe == recipe:
            count += 1
            text += f" ({count} of {num_results}{and_left()})"
        tell(text)

    return Listener(on_epoch=on_epoch, on_result=on_result, on_message=tell, on_recount=pace.recount)


def _duration(seconds: float) -> str:
    """Return a duration as people say it.

    >>> _duration(8), _duration(200), _duration(9000)
    ('8 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
