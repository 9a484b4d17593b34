"""Lines of progress off a terminal."""

import io
import itertools

from rich.console import Console

from activebias.training import progress
from activebias.training.loop import EpochSeen


def test_lines_say_the_time_left(monkeypatch):
    clock = itertools.count(0, 10)  # every look at the clock is ten seconds later
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    file = io.StringIO()
    with progress.show_training("wine", 10, quiet=False, console=Console(file=file)) as on_epoch:
        for epoch in range(1, 11):
            on_epoch(EpochSeen(epoch, 20.0, 12.5, False))
    lines = file.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("wine: epoch 1 of 10, validation error 12.5 %, burn-in, about ")
    assert lines[0].endswith(" left")
    assert lines[-1] == "wine: epoch 10 of 10, validation error 12.5 %, burn-in"
