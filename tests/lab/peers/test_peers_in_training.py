"""Peers in training: side by side as alone, with learning rates of their own, and on real digits."""

from dataclasses import replace

import pytest
import torch

import activebias as ab
from activebias.lab import Listener, Place, get_recipe, run_trials
from activebias.lab.experiment.prepared import prepare
from activebias.lab.experiment.sides import Setting, Side, find_side
from activebias.lab.one_by_one import build_run
from activebias.lab.peers import PEERS
from activebias.lab.side_by_side import Lane, SideBySide, TrialData
from side_by_side_cases import digits, small

CPU = torch.device("cpu")
SEEDS = (3, 8)


def together(recipe, prepared, lanes):
    """Train the burn-ins of the lanes, then the lanes, side by side."""
    burn_ins = sorted({lane.in_burn_in for lane in lanes}, key=lambda lane: lane.setting.rank)
    run = SideBySide.begin(TrialData(recipe, prepared, SEEDS, CPU), burn_ins, emphasises=False)
    for _ in range(recipe.burn_in):
        run.train_epoch()
    run = run.branch(lanes)
    while run.epoch < recipe.epochs:
        run.train_epoch()
    return run


def assert_as_alone(run, recipe, prepared, *, tolerance):
    for position, (seed, method, setting) in enumerate(run.lanes):
        alone = build_run(recipe, prepared[SEEDS.index(seed)], [method], seed=seed, setting=setting)
        while alone.epoch < recipe.epochs:
            alone.train_epoch()
        stacked = {**run.stack.parameters, **run.stack.buffers}
        for name, value in alone.model.state_dict().items():
            if name in stacked:
                torch.testing.assert_close(
                    stacked[name][position].detach(), value, rtol=tolerance, atol=tolerance, msg=name
                )
        pairs = [
            (run.test_error, alone.test_error),
            (run.train_error, alone.train_error),
            (run.validation_error, alone.validation_error),
        ]
        for ours, theirs in pairs:
            assert [errors[position].item() for errors in ours] == pytest.approx(theirs)
        (bias,) = alone.biases.values()
        torch.testing.assert_close(run.memory.scores[position], bias.scores, rtol=2e-3, atol=2e-3)


def side_of(name, which=-1, rate=1.0):
    """Return a side with one of the values that a search tries."""
    method, setting = find_side(name)
    return Side(method, Setting(setting.peer, setting.peer.values[which] if setting.peer else 0.0, rate))


def in_order(sides):
    return sorted(sides, key=lambda side: (side.method.name, side.setting.rank))


CASES = {
    "mnist-cnn": ["sce", "elr", "ema", "infobatch", "selective-backprop"],
    "cifar100-rn27": ["gce", "ema"],
    "qt-cnn": ["scan", "wtc", *PEERS, "wtc+label-smoothing", "wtc+sce", "wpv+small-loss"],
    "conll2003-cnn": ["scan", "label-smoothing", "sce", "ema", "wtc+gce"],
}


@pytest.mark.parametrize("name", CASES)
def test_peers_side_by_side_are_peers_alone(name):
    recipe, dataset, _ = small(name)
    recipe = replace(recipe, epochs=4, batch_size=12)
    sides = [side_of(each) for each in CASES[name]]
    if name == "qt-cnn":
        recipe = replace(recipe, validation=0.1)
        sides += [side_of(each, 0, rate=0.5) for each in ("gce", "elr", "ema", "infobatch", "wtc+sce")]
    else:
        recipe = replace(recipe, epochs=3)
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    lanes = [Lane(SEEDS[number % 2], *side) for number, side in enumerate(in_order(sides))]
    run = together(recipe, prepared, lanes)
    assert_as_alone(run, recipe, prepared, tolerance=2e-3 if name == "cifar100-rn27" else 2e-4)


def test_peers_differ_from_each_other_and_from_plain_training():
    """The test above could not fail if a peer changed nothing."""
    recipe, dataset, _ = small("qt-cnn")
    recipe = replace(recipe, epochs=5)
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    names = ["scan", *(name for name in PEERS if name != "ema")]
    sides = [side_of(name, rate=rate) for name in names for rate in (1.0, 3.0)]
    run = together(recipe, prepared, [Lane(3, *side) for side in in_order(sides)])
    distance = torch.pdist(run.stack.parameters["output.weight"].detach().flatten(1))
    assert distance.min() > 1e-6


def test_ema_trains_as_plain_training_and_evaluates_an_average():
    recipe, dataset, _ = small("qt-cnn")
    prepared = prepare(recipe, dataset, seed=3, device=CPU)
    runs = [
        build_run(recipe, prepared, [ab.METHODS["scan"]], seed=3, setting=setting)
        for setting in (Setting(), Setting(PEERS["ema"], 0.9))
    ]
    weights = [runs[0].model.state_dict()["output.weight"].clone()]
    step = runs[0].optimiser.step

    def noted():
        step()
        weights.append(runs[0].model.state_dict()["output.weight"].clone())

    runs[0].optimiser.step = noted
    for run in runs:
        run.train_epoch()
    average = weights[0]
    for value in weights[1:]:
        average = 0.9 * average + 0.1 * value
    plain, averaged = runs
    torch.testing.assert_close(averaged.model.state_dict(), plain.model.state_dict())
    with averaged.objective.evaluating(averaged.model):
        torch.testing.assert_close(averaged.model.state_dict()["output.weight"], average)
    torch.testing.assert_close(averaged.model.state_dict(), plain.model.state_dict())


@pytest.mark.parametrize("side_by_side", [None, 1])
def test_a_stopped_training_of_peers_resumes(tmp_path, side_by_side):
    recipe = replace(digits(), validation=0.2)
    names = ("elr", "ema", "importance", "wtc+gce")
    sides = [side_of(name, rate=rate) for name in names for rate in (1.0, 3.0)][1:]

    class Stop(Exception):
        """The end of a session."""

    def stop(done):
        if done.epoch == 4 and not done.more_follow:
            raise Stop

    def train(folder, **listener):
        place = Place(folder, side_by_side=side_by_side, interval=0.0)
        return run_trials(recipe, methods=sides, seeds=[0], place=place, listener=Listener(**listener))

    whole = train(tmp_path / "whole")
    with pytest.raises(Stop):
        train(tmp_path / "stopped", on_epoch=stop)
    resumed = train(tmp_path / "stopped")
    for ours, theirs in zip(resumed, whole, strict=True):
        assert ours.key == theirs.key
        assert ours.test_error == pytest.approx(theirs.test_error)
        assert ours.validation_error == pytest.approx(theirs.validation_error)


def test_robust_losses_beat_plain_training_on_noisy_digits(tmp_path):
    """A short real training: at 20 % wrong labels, the robust losses are better at the end."""
    recipe = replace(get_recipe("digits"), epochs=20, burn_in=0, validation=0.1)
    place = Place(tmp_path)
    results = run_trials(
        recipe,
        methods=["scan", "sce", Side(ab.METHODS["scan"], Setting(PEERS["gce"], 0.7, 3.0)), "small-loss"],
        seeds=range(4),
        place=place,
    )
    last = {}
    for result in results:
        last[result.method] = last.get(result.method, 0) + result.last10_test_error / 4
    assert max(last["sce"], last["gce"], last["small-loss"]) < last["scan"]


@pytest.mark.parametrize("name", ["wtc+infobatch", "sd+importance"])
def test_two_that_choose_the_instances_are_refused(name):
    with pytest.raises(ValueError, match="chooses the instances itself"):
        find_side(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [("wtx", "Did you mean 'wtc'"), ("wtc+gcee", "Did you mean 'gce'"), ("foo+gce", "one of uni, scan")],
)
def test_a_wrong_name_is_refused_with_the_right_one(name, message):
    with pytest.raises(ValueError, match=message):
        find_side(name)


@pytest.mark.parametrize("name", ["elr", "small-loss", "selective-backprop", "infobatch", "importance"])
def test_peers_that_cannot_tag_say_so(tmp_path, name):
    recipe, dataset, _ = small("conll2003-cnn")
    for most in (None, 1):
        with pytest.raises(ValueError, match="can tag"):
            run_trials(
                recipe, methods=[name], seeds=[0], place=Place(tmp_path, side_by_side=most), dataset=dataset
            )
