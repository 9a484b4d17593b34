"""Small recipes with made-up data for the tests of training side by side, on a CPU and on a GPU."""

from dataclasses import replace

import pytest
import torch

import activebias as ab
from activebias.lab import Optimiser, Place, get_recipe, run_trials
from activebias.lab.data import Dataset, Examples
from activebias.lab.one_by_one import build_run
from activebias.lab.side_by_side import Lane, SideBySide, TrialData
from activebias.training.words import SHAPE_NAMES

CPU = torch.device("cpu")
SEEDS = (3, 8)
RECIPES = ("mnist-cnn", "cifar100-rn27", "qt-cnn", "conll2003-cnn", "mnist-fc-distill")


def made_up(kind, count=40, test_count=20):
    """Return a small data set whose labels can be learned from its inputs."""
    generator = torch.Generator().manual_seed(1)

    def examples(number):
        if kind == "tagging":
            lengths = torch.randint(2, 9, (number,), generator=generator)
            real = torch.arange(8) < lengths[:, None]
            words = torch.randint(2, 30, (number, 8), generator=generator) * real
            shapes = torch.randint(1, len(SHAPE_NAMES), (number, 8), generator=generator) * real
            return Examples((words, shapes), torch.where(real, words % 5, -100), lengths)
        if kind == "text":
            words = torch.randint(1, 30, (number, 9), generator=generator)
            return Examples((words,), words[:, 0] % 6)
        size, channels = (28, 1) if kind == "digits" else (32, 3)
        targets = torch.randint(10, (number,), generator=generator)
        images = torch.randint(150, (number, channels, size, size), generator=generator)
        # Brightness tells the digits; images are standardised one by one, so theirs is in some columns alone.
        brighter = (torch.arange(size) < 8).to(torch.int64) if kind == "images" else 1
        return Examples(((images + 10 * targets[:, None, None, None] * brighter).to(torch.uint8),), targets)

    names = {"tagging": ("O", "B-A", "I-A", "L-A", "U-A"), "text": tuple("abcdef")}.get(
        kind, tuple("0123456789")
    )
    vectors = torch.randn(30, 50, generator=generator) if kind in ("tagging", "text") else None
    return Dataset(kind, examples(count), examples(test_count), len(names), names, vectors)


def small(name):
    """Return a recipe of the paper, small enough for a test, with its data and a teacher's probabilities."""
    kinds = {"mnist-cnn": "digits", "cifar100-rn27": "images", "qt-cnn": "text", "conll2003-cnn": "tagging"}
    large = name in ("mnist-cnn", "cifar100-rn27")
    dataset = made_up(kinds.get(name, "digits"), *((27, 10) if large else ()))
    recipe = replace(get_recipe(name), epochs=3, burn_in=1, batch_size=13)
    if large:
        # At the paper's rates rounding errors grow a hundredfold an epoch on data this small.
        recipe = replace(recipe, optimiser=Optimiser("sgd", 0.001, momentum=0.9, factor=0.1, milestones=(2,)))
    teacher = None
    if recipe.teacher is not None:
        teacher = torch.rand(40, 10, generator=torch.Generator().manual_seed(2)).softmax(-1)
    return recipe, dataset, teacher


def digits(**changes):
    """Return the recipe digits, short and on few examples."""
    return replace(get_recipe("digits"), epochs=5, burn_in=2, **changes).limited(300)


def results_of(recipe, folder, methods=("scan", "wpv", "sd", "uni"), seeds=(0, 1, 2), **place):
    """Train trials; return their errors by epoch and how many models ran at once, by method and seed."""
    results = run_trials(recipe, methods=methods, seeds=seeds, place=Place(folder, **place))
    return {(r.method, r.seed): (r.test_error, r.train_error, r.details["side_by_side"]) for r in results}


def together(recipe, prepared, methods):
    """Train the burn-ins, branch, and train the methods, side by side."""
    plain = ab.METHODS["scan" if methods[0].order == "scan" else "uni"]
    run = SideBySide.begin(
        TrialData(recipe, prepared, SEEDS, CPU), [Lane(seed, plain) for seed in SEEDS], emphasises=False
    )
    for _ in range(recipe.burn_in):
        run.train_epoch()
    run = run.branch([Lane(seed, method) for method in methods for seed in SEEDS])
    while run.epoch < recipe.epochs:
        run.train_epoch()
    return run


def burnt_in(recipe, data, methods, seed):
    """Return the state of one model after its burn-in (test_trials: a branch equals a run of its own)."""
    run = build_run(recipe, data, methods, seed=seed)
    for _ in range(recipe.burn_in):
        run.train_epoch()
    return run.state_dict()


def assert_same(run, position, alone, *, tolerance):
    close = {"rtol": tolerance, "atol": tolerance}
    for name, value in alone.model.state_dict().items():
        stacked = {**run.stack.parameters, **run.stack.buffers}
        if name in stacked:
            torch.testing.assert_close(stacked[name][position].detach(), value, **close, msg=name)
    (bias,) = alone.biases.values()
    rows = torch.arange(position * bias.num_instances, (position + 1) * bias.num_instances)
    for ours, theirs in zip(run.memory.history.values(rows), bias.history.values(), strict=True):
        width = theirs.shape[1]
        torch.testing.assert_close(ours[:, :width], theirs, **close)
        assert not ours[:, width:].any()
    torch.testing.assert_close(run.memory.scores[position], bias.scores, **close)
    for ours, theirs in ((run.test_error, alone.test_error), (run.train_error, alone.train_error)):
        assert [errors[position].item() for errors in ours] == pytest.approx(theirs)
