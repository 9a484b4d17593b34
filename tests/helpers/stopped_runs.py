"""Trials of the digits that can be stopped after an epoch, and what they leave on the disk."""

import pytest

from activebias.lab import Place, run_trials, trials
from activebias.lab.experiment.place import Listener
from side_by_side_cases import digits

METHODS, SEEDS = ("scan", "wpv"), (0, 1, 2)


class Stopped(Exception):
    pass


def train(folder, methods=METHODS, seeds=SEEDS, *, stop=None, keep_models=False, **place):
    """Train; return the curves by method and seed, and the (method, seed, epoch) that were trained.

    `stop` is the epoch after whose first lane the run is stopped. The epochs that were counted must come.
    """
    recipe, place = digits(), Place(folder, **{"interval": 0.0, **place})
    arguments = {"methods": methods, "seeds": seeds, "place": place, "keep_models": keep_models}
    counted = trials.count_epochs(recipe, trials.missing_runs(recipe, **arguments))
    epochs, recounted = [], []

    def on_epoch(done):
        epochs.append((done.method, done.seed, done.epoch))
        if done.epoch == stop:
            raise Stopped

    listener = Listener(on_epoch=on_epoch, on_recount=recounted.append)
    if stop is not None:
        with pytest.raises(Stopped):
            run_trials(recipe, **arguments, listener=listener)
        return None, epochs
    results = run_trials(recipe, **arguments, listener=listener)
    assert len(epochs) == counted + sum(recounted)
    return {(r.method, r.seed): (r.test_error, r.train_error) for r in results}, epochs


def left_behind(folder):
    return sorted(path.name for path in (folder / "checkpoints").rglob("*.*"))


def assert_same(curves, whole):
    for key, (test, train_error) in curves.items():
        assert test == pytest.approx(whole[key][0]), key
        assert train_error == pytest.approx(whole[key][1]), key
