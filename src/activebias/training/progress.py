"""Progress of reading and training on stderr: a bar on a terminal, otherwise lines."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text

from activebias.training.loop import EpochSeen, OnEpoch

# The approximate number of lines that a log file gets for the training of one model.
_LINES = 10


@final
class _Pace:
    """The number of finished epochs, the total, and the rate.

    The rate is the mean over all finished epochs: side by side, many epochs end at once, and then none for
    minutes. `most_seconds` is a budget, after which the remaining epochs are not trained.
    """

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.most_seconds = math.inf
        self._begun = self._started = self._last = time.monotonic()

    def count(self) -> None:
        self.done += 1
        self._last = time.monotonic()

    def recount(self, number: int) -> None:
        """Add `number` epochs to the total; before the first epoch ends, also restart the clock."""
        self.total += number
        if not self.done:
            self._started = time.monotonic()

    def rate(self) -> float | None:
        """Return the epochs per second up to the end of the last epoch."""
        return self.done / max(self._last - self._started, 1e-9) if self.done else None

    def left(self) -> float | None:
        """Return the seconds until the last epoch ends, if the rate does not change."""
        rate = self.rate()
        if rate is None:
            return None
        most = self.most_seconds - (time.monotonic() - self._begun)
        return max(0.0, min((self.total - self.done) / rate - (time.monotonic() - self._last), most))


@final
class _RateAndLeft(rich_progress.ProgressColumn):
    """Epochs per second, or seconds per epoch if an epoch takes longer than a second, and the time left."""

    def __init__(self, pace: _Pace) -> None:
        super().__init__()
        self.pace = pace

    def render(self, task: rich_progress.Task) -> Text:
        rate, left = self.pace.rate(), self.pace.left()
        if rate is None or left is None:
            return Text("")
        speed = f"{rate:.1f} epochs/s" if rate >= 1 else f"{1 / rate:.1f} s/epoch"
        return Text(f"{speed} {duration(left)} left")


@final
class Progress:
    """Shows finished epochs out of `pace.total`: as a bar, or as lines without a terminal."""

    def __init__(self, total: int, console: Console, bar: rich_progress.Progress | None, name: str) -> None:
        """Start to count; `bar` is None without a terminal."""
        self.pace = _Pace(total)
        self._console, self._bar, self._told = console, bar, time.monotonic()
        if bar is not None:
            bar.columns = (*bar.columns, _RateAndLeft(self.pace))
            self._task = bar.add_task(name, total=total)

    def count(self, doing: str) -> None:
        """Count a finished epoch, and show `doing` in the bar."""
        self.pace.count()
        self.say_doing(doing)

    def say_doing(self, doing: str) -> None:
        """Show `doing` in the bar: the name of the current work."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self.pace.done, description=doing)

    def recount(self, number: int) -> None:
        """Add `number` epochs to the total; a negative number removes epochs."""
        self.pace.recount(number)
        if self._bar is not None:
            self._bar.update(self._task, total=self.pace.total)

    def tell(self, text: str) -> None:
        """Write a line, above the bar if there is a bar."""
        self._told = time.monotonic()
        (self._console if self._bar is None else self._bar.console).print(text, soft_wrap=True)

    def log(self, text: str) -> None:
        """Write a line, unless there is a bar."""
        if self._bar is None:
            self.tell(text)

    def seconds_since_line(self) -> float:
        """Return the seconds since the last line."""
        return time.monotonic() - self._told

    def and_left(self) -> str:
        """Return the time left, as the end of a sentence."""
        left = self.pace.left() if self.pace.done < self.pace.total else None
        return f", about {duration(left)} left" if left is not None and left >= 0.5 else ""


@contextmanager
def show_epochs(name: str, total: int, console: Console) -> Iterator[Progress]:
    """Show the progress of `total` epochs."""
    if not console.is_terminal:
        yield Progress(total, console, None, name)
        return
    # Short enough for 80 columns with the longest recipe name.
    columns = (
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(bar_width=12),
        rich_progress.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
    )
    with rich_progress.Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        yield Progress(total, console, bar, name)


@contextmanager
def show_training(
    name: str, epochs: int, *, quiet: bool, num_models: int = 1, console: Console | None = None
) -> Iterator[OnEpoch]:
    """Yield the function to call after every epoch of one model, or of several, one after the other."""
    if quiet:
        yield lambda seen: None
        return
    every = max(epochs * num_models // _LINES, 1)
    with show_epochs(name, epochs * num_models, console or error_console()) as progress:
        model, last = 0, epochs

        def on_epoch(seen: EpochSeen) -> None:
            nonlocal model, last
            if seen.epoch <= last:  # the next model
                model += 1
                progress.recount(1 - seen.epoch)  # a resumed run skips its first epochs
            last = seen.epoch
            which = f", judge {model} of {num_models}" if num_models > 1 else ""
            phase = "" if seen.emphasises else ", burn-in"
            text = f"validation error {seen.test_error:.1f} %{phase}"
            progress.count(f"{name}{which}: {text}")
            if seen.epoch % every == 0 or seen.epoch == epochs:
                progress.log(f"{name}{which}: epoch {seen.epoch} of {epochs}, {text}{progress.and_left()}")

        yield on_epoch


@contextmanager
def show_reading(
    what: str, *, quiet: bool, console: Console | None = None
) -> Iterator[Callable[[int], object]]:
    """Yield the function to call after every file, with the total number of files."""
    console = console or error_console()
    if quiet or not console.is_terminal:
        yield lambda total: None
        return
    columns = (
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"Reading {what}", total=None)
        yield lambda total: bar.update(task, total=total, advance=1)


def error_console() -> Console:
    """Return a console for stderr; stdout is for results."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a readable duration.

    >>> duration(8), duration(200), duration(9000)
    ('8 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
