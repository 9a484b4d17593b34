"""Trials side by side: groups, stopping and going on, and what is left one by one."""

from dataclasses import replace

import pytest
import torch

import activebias as ab
from activebias.lab import Noise, Place, get_recipe, run_trials, trials
from activebias.lab.experiment.place import Listener
from activebias.lab.experiment.prepared import prepare
from activebias.lab.side_by_side import Lane, plan, schedule
from side_by_side_cases import digits, made_up, results_of, small
from stopped_runs import Stopped

CPU = torch.device("cpu")
SEEDS = (3, 8)


def test_trials_are_trained_side_by_side_in_groups(tmp_path):
    recipe = digits()
    at_once, few = results_of(recipe, tmp_path / "all"), results_of(recipe, tmp_path / "few", side_by_side=4)
    assert {details for *_, details in at_once.values()} == {6}
    assert {details for *_, details in few.values()} == {2, 4}
    singles = run_trials(
        recipe,
        methods=["scan", "wpv", "sd", "uni"],
        seeds=[0, 1, 2],
        place=Place(tmp_path / "one", side_by_side=1),
    )
    for result in singles:
        assert "side_by_side" not in result.details
        for group in (at_once, few):
            test, train, _ = group[result.method, result.seed]
            assert test == pytest.approx(result.test_error)
            assert train == pytest.approx(result.train_error)


def test_training_errors_of_some_epochs_are_those_of_all_epochs(tmp_path):
    every = digits().shortened(13)
    some = replace(every, last_train_errors=2)
    assert some.config() == every.config()  # results of both belong together

    def trained(recipe, name, most):
        place = Place(tmp_path / name, side_by_side=most)
        return run_trials(recipe, methods=["scan", "wpv"], seeds=SEEDS, place=place)

    whole = trained(every, "every", 4)
    for results in (trained(some, "some", 4), trained(some, "alone", 1)):
        for ours, theirs in zip(results, whole, strict=True):
            assert ours.test_error == pytest.approx(theirs.test_error)
            assert ours.details["train_epochs"] == [10, 12, 13]
            assert "train_epochs" not in theirs.details
            assert ours.train_error == pytest.approx([theirs.train_error[epoch] for epoch in (9, 11, 12)])
    with pytest.raises(ValueError, match="`last_train_errors` to be at least 1"):
        replace(every, last_train_errors=0)


def test_tagging_with_label_noise_has_the_errors_of_single_runs(tmp_path):
    recipe, dataset, _ = small("conll2003-cnn")
    recipe = replace(recipe, noise=Noise("uniform", 0.3))
    alone, together = (
        run_trials(
            recipe,
            methods=["wpv"],
            seeds=SEEDS,
            place=Place(tmp_path / name, side_by_side=most),
            dataset=dataset,
        )
        for name, most in (("alone", 1), ("together", 2))
    )
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.details["side_by_side"] == 2
        assert (ours.seed, ours.test_error) == (theirs.seed, pytest.approx(theirs.test_error))
        assert ours.train_error == pytest.approx(theirs.train_error)


@pytest.mark.parametrize("method", ["uni", "sd"])
def test_tagging_refuses_methods_that_draw(tmp_path, method):
    recipe, dataset, _ = small("conll2003-cnn")
    place = Place(tmp_path, side_by_side=2)
    with pytest.raises(ValueError, match=f"{method!r} draws single instances"):
        run_trials(recipe, methods=["scan", method], seeds=SEEDS, place=place, dataset=dataset)


def test_kept_models_and_models_that_do_not_stack_are_trained_one_by_one(tmp_path):
    recipe = digits()
    kept = run_trials(recipe, methods=["scan", "wpv"], seeds=[0], place=Place(tmp_path), keep_models=True)
    own = replace(recipe, name="own", model=lambda data, generator: own_net(torch.nn.Dropout(0.5)))
    others = run_trials(own, methods=["scan", "wpv"], seeds=[0], place=Place(tmp_path))
    assert all("side_by_side" not in result.details for result in (*kept, *others))


def test_a_model_of_ones_own_that_stacks_is_trained_side_by_side_with_the_same_errors(tmp_path):
    def model(data, generator):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed() % 2**31)
            return own_net(torch.nn.ReLU())

    own = replace(digits(), name="own", model=model)
    alone, together = (
        run_trials(
            own, methods=["scan", "wpv"], seeds=SEEDS, place=Place(tmp_path / str(most), side_by_side=most)
        )
        for most in (1, 4)
    )
    assert {result.details.get("side_by_side") for result in alone} == {None}
    assert {result.details["side_by_side"] for result in together} == {4}
    assert [result.test_error for result in together] == [
        pytest.approx(result.test_error) for result in alone
    ]


def test_a_statistic_of_ones_own_sees_and_must_return_what_it_does_alone(tmp_path):
    def spread(estimate):
        assert estimate.variance.dim() == 1
        return estimate.variance.sqrt()

    def later_negative(estimate):
        return torch.where(estimate.count > 2, -1.0, estimate.mean)

    arguments = {"methods": [ab.Method("own", spread, weights="emphasis")], "seeds": SEEDS}
    alone, together = (
        run_trials(digits(), **arguments, place=Place(tmp_path / str(most), side_by_side=most))
        for most in (1, 2)
    )
    assert [result.test_error for result in together] == [
        pytest.approx(result.test_error) for result in alone
    ]
    assert {result.details["side_by_side"] for result in together} == {2}
    arguments["methods"] = [ab.Method("bad", later_negative, weights="emphasis")]
    with pytest.raises(ValueError, match="'bad' must return finite scores of at least 0"):
        run_trials(digits(), **arguments, place=Place(tmp_path))


def own_net(middle):
    return torch.nn.Sequential(
        torch.nn.Flatten(), ToFloat(), torch.nn.Linear(64, 16), middle, torch.nn.Linear(16, 10)
    )


class ToFloat(torch.nn.Module):
    def forward(self, values):
        return values.float() / 16


@pytest.mark.parametrize("stop_after", [3, 9, 16])
def test_a_stopped_group_goes_on_where_it_was(tmp_path, stop_after):
    recipe = digits()
    whole = results_of(recipe, tmp_path / "whole")
    count = 0

    def stop(done):
        nonlocal count
        count += 1
        if count == stop_after:
            raise Stopped

    place = Place(tmp_path / "stopped", interval=0.0)
    arguments = {"methods": ["scan", "wpv", "sd", "uni"], "seeds": [0, 1, 2], "place": place}
    with pytest.raises(Stopped):
        run_trials(recipe, **arguments, listener=Listener(on_epoch=stop))
    assert list((tmp_path / "stopped" / "checkpoints").rglob("side-by-side-*.pt"))
    epochs = []
    run_trials(recipe, **arguments, listener=Listener(on_epoch=lambda done: epochs.append(done.epoch)))
    assert min(epochs[:6]) > 0
    assert len(epochs) < 2 * (3 * 2) + 4 * 3 * 3  # fewer than all epochs of all lanes
    again = results_of(recipe, tmp_path / "stopped", interval=0.0)
    assert {key: value[:2] for key, value in again.items()} == {
        key: value[:2] for key, value in whole.items()
    }
    assert not (tmp_path / "stopped" / "checkpoints").exists() or not list(
        (tmp_path / "stopped" / "checkpoints").rglob("*.pt")
    )


def test_a_stopped_group_goes_on_even_if_the_memory_suggests_other_groups(tmp_path, monkeypatch):
    recipe, place = digits(), Place(tmp_path, interval=0.0)
    arguments = {"methods": ["scan", "wpv"], "seeds": [0, 1, 2], "place": place}

    def stop(done):
        if done.epoch == 4:
            raise Stopped

    with pytest.raises(Stopped):
        run_trials(recipe, **arguments, listener=Listener(on_epoch=stop))
    monkeypatch.setattr(schedule, "most_models", lambda *_: 2)
    epochs = []
    arguments["seeds"] = [0, 1, 2, 3]  # and one trial more, in a group of its own
    results = run_trials(recipe, **arguments, listener=Listener(on_epoch=epochs.append))
    assert [done.epoch for done in epochs if done.seed < 3] == [5] * 6
    assert sorted(result.details["side_by_side"] for result in results) == [2] * 2 + [6] * 6
    assert not list((tmp_path / "checkpoints").rglob("*.*"))


@pytest.mark.parametrize("number", [0, -2])
def test_a_place_refuses_no_models_at_once(tmp_path, number):
    with pytest.raises(ValueError, match="Expected `side_by_side` to be at least 1"):
        Place(tmp_path, side_by_side=number)


@pytest.mark.parametrize("burn_in", [0, 2, 3, 5])
def test_the_epochs_that_are_counted_are_those_that_come(tmp_path, burn_in):
    recipe = replace(digits(), epochs=3, burn_in=burn_in)
    arguments = {"methods": ["scan", "wd", "uni"], "seeds": [4, 9], "place": Place(tmp_path)}
    epochs = []
    missing = trials.missing_runs(recipe, **arguments)
    run_trials(recipe, **arguments, listener=Listener(on_epoch=epochs.append))
    assert len(epochs) == trials.count_epochs(recipe, missing)


def test_large_models_are_trained_one_by_one_on_a_cpu():
    recipe = replace(get_recipe("mnist-cnn"), batch_size=39)
    data = prepare(recipe, made_up("digits"), seed=0, device=CPU)
    assert plan.most_models(recipe, data, CPU) == 1


def test_groups_keep_trials_whole_and_even():
    methods = [ab.METHODS[name] for name in ("scan", "wd", "wpv")]
    lanes = [Lane(seed, method) for seed in range(7) for method in methods]
    sizes = [len(group) for group in schedule.in_groups(lanes, most=13)]
    assert sizes == [12, 9]
    assert [len(group) for group in schedule.in_groups(lanes, most=2)] == [2, 1] * 7
    for group in schedule.in_groups(lanes, most=13):
        names = [lane.method.name for lane in group]
        assert names == sorted(names)


def test_precision_does_not_make_another_result():
    recipe = digits()
    assert replace(recipe, half_precision=True).config() == recipe.config()
