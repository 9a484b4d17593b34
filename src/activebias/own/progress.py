"""Progress of reading and training: a bar on a terminal, about ten lines elsewhere, on the error stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from activebias.own.training import EpochSeen, OnEpoch

_LINES = 10


@contextmanager
def show_training(
    name: str, epochs: int, *, quiet: bool, console: Console | None = None
) -> Iterator[OnEpoch]:
    """Yield what is to be called after every epoch."""
    console = console or Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    if quiet:
        yield lambda seen: None
        return
    if not console.is_terminal:
        every = max(epochs // _LINES, 1)

        def line(seen: EpochSeen) -> None:
            if seen.epoch % every == 0 or seen.epoch == epochs:
                console.print(f"{name}: epoch {seen.epoch} of {epochs}, {_text(seen)}")

        yield line
        return
    with _bar(console) as progress:
        task = progress.add_task(name, total=epochs)

        def advance(seen: EpochSeen) -> None:
            progress.update(task, completed=seen.epoch, description=f"{name}: {_text(seen)}")

        yield advance


@contextmanager
def show_reading(
    what: str, *, quiet: bool, console: Console | None = None
) -> Iterator[Callable[[int], object]]:
    """Yield what is to be called with the total after every file."""
    console = console or Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    if quiet or not console.is_terminal:
        yield lambda total: None
        return
    with _bar(console) as progress:
        task = progress.add_task(f"Reading {what}", total=None)
        yield lambda total: progress.update(task, total=total, advance=1)


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _text(seen: EpochSeen) -> str:
    phase = "" if seen.emphasises else ", burn-in"
    return f"validation error {seen.validation_error:.1f} %{phase}"
