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


def test_several_models_are_counted_one_after_the_other(monkeypatch):
    """The second model was resumed after its second epoch: its first two are not waited for."""
    clock = itertools.count(0, 10)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    file = io.StringIO()
    with progress.show_training("wine", 4, quiet=False, num_models=3, console=Console(file=file)) as on_epoch:
        for epoch in (1, 2, 3, 4, 3, 4, 1, 2, 3, 4):
            on_epoch(EpochSeen(epoch, 20.0, 12.5, True))
    lines = file.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *["wine, judge 1 of 3"] * 4,
        *["wine, judge 2 of 3"] * 2,
        *["wine, judge 3 of 3"] * 4,
    ]
    assert lines[-1] == "wine, judge 3 of 3: epoch 4 of 4, validation error 12.5 %"
