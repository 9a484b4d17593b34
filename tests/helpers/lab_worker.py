"""What runs in a process of its own: trials that are killed on the way, and results that are stored."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import torch

from activebias.lab import Listener, Place, get_recipe, run_trials
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.side_by_side import SideBySide
from activebias.training.loop import Run

METHODS = ("scan", "wpv", "spv", "isd")


def small_recipe():
    return replace(get_recipe("digits"), epochs=6, burn_in=3, batch_size=64).limited(300)


def run(folder, listener=None, side_by_side=None):
    torch.set_num_threads(1)
    place = Place(Path(folder), interval=0.0, side_by_side=side_by_side)
    return run_trials(small_recipe(), methods=METHODS, seeds=[0], place=place, listener=listener)


def run_and_die(folder, num_epochs, in_the_middle, side_by_side):
    """Run until `num_epochs` epochs are over in all; then die, or die within the next epoch."""
    seen = []

    def on_epoch(done):
        seen.append(done)
        if len(seen) == num_epochs and not in_the_middle:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_losses(self, *arguments):
        result = losses[type(self)](self, *arguments)
        if len(seen) == num_epochs and in_the_middle:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    losses = {loop: loop._losses for loop in (Run, SideBySide)}
    Run._losses = SideBySide._losses = dying_losses
    run(folder, Listener(on_epoch=on_epoch), side_by_side)


def append_many(folder, method, count, ready):
    """Store `count` results, as soon as all the processes are ready."""
    store = ResultStore(folder)
    ready.wait()
    for seed in range(count):
        result = TrialResult(
            recipe="digits",
            method=method,
            seed=seed,
            config={},
            device="cpu",
            seconds=1,
            test_error=[3.25] * 3000,  # long lines: a write that is not one piece would show
            train_error=[1.0],
        )
        store.append(result)


class MortalModel:
    """Builds models; one process is killed at its third model, and the file `flag` tells of it."""

    def __init__(self, model, flag):
        self.model, self.flag, self.built = model, flag, 0

    def __call__(self, dataset, generator):
        self.built += 1
        if self.built == 3 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.model(dataset, generator)


def deadly_model(dataset, generator):
    """Kill the process that builds a model."""
    os.kill(os.getpid(), signal.SIGKILL)
