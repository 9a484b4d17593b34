"""Progress of trials side by side, whose epochs end together and whose results come at once."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from activebias.commands.running import show_trials
from activebias.lab import Place, get_recipe, run_trials
from activebias.lab.experiment.place import EpochDone
from activebias.training import progress


@pytest.fixture
def clock(monkeypatch):
    """A time that passes when told to."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def train_epoch(listener, number, epoch):
    for seed in range(number):
        done = EpochDone("digits", seed, "wpv", epoch, 5.0, more_follow=seed < number - 1)
        listener.on_epoch(done)


def test_the_bar_says_the_time_left_where_many_epochs_end_at_once(clock):
    """Ten models side by side, 40 s an epoch."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with show_trials("digits", 90, 10, console=console, quiet=False) as listener:
        clock.now += 1000  # loading the data
        listener.on_recount(-40)  # a stopped run had done them
        for epoch in (1, 2):
            clock.now += 40
            train_epoch(listener, 10, epoch)
        clock.now += 35
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())
    assert "20/50 4.0 s/epoch 85 s left" in text.split("digits 9 WPV")[-1]  # of 120 s, 35 s later


def test_the_lines_of_a_log_say_the_time_left_and_come_in_between(clock, tmp_path):
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    recipe = get_recipe("digits").shortened(1)
    (result,) = run_trials(recipe, methods=["scan"], seeds=[0], place=Place(tmp_path))
    with show_trials("digits", 90, 20, console=console, quiet=False) as listener:
        listener.on_recount(-40)
        clock.now += 50
        train_epoch(listener, 10, 1)
        assert console.file.getvalue() == ""
        clock.now += 50
        train_epoch(listener, 10, 2)
        listener.on_result(result)
        clock.now += 150
        train_epoch(listener, 30, 3)
        listener.on_result(result)
    first, second, third, fourth = console.file.getvalue().splitlines()
    assert first == "digits: 20 of 50 epochs, about 2 min left"
    assert second.endswith("(1 of 20, about 2 min left)")
    assert third == "digits: 50 of 50 epochs"
    assert fourth.endswith("(2 of 20)")
