"""A trial in a process of its own, which is killed on the way: see test_trials."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import torch

from activebias.lab import Listener, Place, get_recipe, run_trials
from activebias.lab.side_by_side import SideBySide
from activebias.lab.trainer import Run

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
