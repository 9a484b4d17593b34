"""Trials side by side: groups, stopping and going on, memory that runs out, and what is left one by one."""

import errno
import gc
import logging
import resource
import weakref
from dataclasses import replace

import pytest
import torch

import activebias as ab
from activebias.lab import Noise, Place, get_recipe, run_trials, trials
from activebias.lab.checkpoints import Checkpoint
from activebias.lab.data import load
from activebias.lab.place import Listener
from activebias.lab.prepared import prepare
from activebias.lab.side_by_side import Lane, SideBySide, groups, plan
from side_by_side_cases import made_up, small

CPU = torch.device("cpu")
SEEDS = (3, 8)


def digits(**changes):
    return replace(get_recipe("digits"), epochs=5, burn_in=2, **changes).limited(300)


def results_of(recipe, folder, methods=("scan", "wpv", "sd", "uni"), seeds=(0, 1, 2), **place):
    results = run_trials(recipe, methods=methods, seeds=seeds, place=Place(folder, **place))
    return {(r.method, r.seed): (r.test_error, r.train_error, r.details["side_by_side"]) for r in results}


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


def test_models_of_ones_own_and_kept_models_are_trained_one_by_one(tmp_path):
    recipe = digits()
    kept = run_trials(recipe, methods=["scan", "wpv"], seeds=[0], place=Place(tmp_path), keep_models=True)
    own = replace(
        recipe,
        name="own",
        model=lambda data, generator: torch.nn.Sequential(
            torch.nn.Flatten(), ToFloat(), torch.nn.Linear(64, 10)
        ),
    )
    others = run_trials(own, methods=["scan", "wpv"], seeds=[0], place=Place(tmp_path))
    assert all("side_by_side" not in result.details for result in (*kept, *others))


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


class ToFloat(torch.nn.Module):
    def forward(self, values):
        return values.float() / 16


class Stopped(Exception):
    pass


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
    monkeypatch.setattr(groups, "most_models", lambda *_, draws: 2)
    epochs = []
    arguments["seeds"] = [0, 1, 2, 3]  # and one trial more, in a group of its own
    results = run_trials(recipe, **arguments, listener=Listener(on_epoch=epochs.append))
    assert [done.epoch for done in epochs if done.seed < 3] == [5] * 6
    assert sorted(result.details["side_by_side"] for result in results) == [2] * 2 + [6] * 6
    assert not list((tmp_path / "checkpoints").rglob("*.*"))


def test_a_stopped_group_that_is_larger_than_told_is_not_taken_up(tmp_path):
    place = Place(tmp_path, interval=0.0)
    arguments = {"methods": ["scan", "wpv"], "seeds": [0, 1, 2]}

    def stop(done):
        raise Stopped

    with pytest.raises(Stopped):
        run_trials(digits(), **arguments, place=place, listener=Listener(on_epoch=stop))
    results = run_trials(digits(), **arguments, place=replace(place, side_by_side=2))
    assert {result.details["side_by_side"] for result in results} == {2}


def test_out_of_memory_halves_the_number(tmp_path, monkeypatch, caplog):
    recipe = digits()
    whole = results_of(recipe, tmp_path / "whole", methods=("scan", "wpv"))
    train_epoch = SideBySide.train_epoch

    def limited(self):
        if len(self.lanes) > 2:
            raise torch.OutOfMemoryError("as if the memory were too small")
        train_epoch(self)

    monkeypatch.setattr(SideBySide, "train_epoch", limited)
    with caplog.at_level(logging.WARNING):
        halved = results_of(recipe, tmp_path / "halved", methods=("scan", "wpv"))
    assert "out of memory with 6 models: 3 at once" in caplog.text
    assert {details for *_, details in halved.values()} == {2}
    for key, (test, train, _) in whole.items():
        assert halved[key][0] == pytest.approx(test)
        assert halved[key][1] == pytest.approx(train)


def test_a_checkpoint_that_finds_no_room_is_told_and_costs_nothing(tmp_path):
    """As on a full disk: no file may become larger than a result, and a checkpoint would be."""
    recipe, arguments = digits(), {"methods": ["scan", "wpv"], "seeds": [0, 1]}
    whole = run_trials(recipe, **arguments, place=Place(tmp_path / "whole"))
    messages = []
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
    try:
        results = run_trials(
            recipe,
            **arguments,
            place=Place(tmp_path / "full", interval=0.0),
            listener=Listener(on_message=messages.append),
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [result.test_error for result in results] == [result.test_error for result in whole]
    assert f"{recipe.name}: no checkpoint could be written (File too large); training goes on." in messages
    assert not list((tmp_path / "full").rglob("*.pt"))
    assert not list((tmp_path / "full").rglob(".*"))  # nothing half written either


def test_a_checkpoint_that_cannot_be_halved_is_kept(tmp_path, monkeypatch):
    """What halves go on from is nowhere else: where there is no room for both, the run ends and can go on."""
    train_epoch, write = SideBySide.train_epoch, Checkpoint.write
    place, arguments = Place(tmp_path, interval=0.0), {"methods": ["scan", "wpv"], "seeds": [0, 1]}

    def limited(self):
        if self.epoch == 3 and len(self.lanes) > 2:
            raise torch.OutOfMemoryError("as if the memory were too small")
        train_epoch(self)

    def full(self, state):
        if len(state["test_error"][0]) < 4 and state["emphasises"]:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, state)

    with monkeypatch.context() as patched:
        patched.setattr(SideBySide, "train_epoch", limited)
        patched.setattr(Checkpoint, "write", full)
        with pytest.raises(OSError, match="No space left"):
            run_trials(digits(), **arguments, place=place)
    epochs = []
    run_trials(
        digits(),
        **arguments,
        place=place,
        listener=Listener(on_epoch=lambda done: epochs.append(done.epoch)),
    )
    assert epochs == [4] * 4 + [5] * 4


def test_a_folder_that_cannot_be_written_ends_the_training_at_once(tmp_path, monkeypatch):
    def refused(self, state):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Checkpoint, "write", refused)
    place = Place(tmp_path, interval=0.0)
    with pytest.raises(PermissionError):
        run_trials(digits(), methods=["scan", "wpv"], seeds=[0, 1], place=place)


@pytest.mark.parametrize(
    ("name", "methods", "seeds", "last"),
    [
        ("qt-cnn", ["scan", "wpv", "sd"], [2, 5, 7], 1),
        ("qt-cnn", ["scan", "wpv", "sd"], [2, 5, 7], 3),
        ("cifar100-rn27", ["scan", "wpv"], [2, 5], 2),
    ],
)
def test_memory_that_runs_out_late_loses_no_epochs(tmp_path, monkeypatch, name, methods, seeds, last):
    """Whether in the burn-in or after it: the halves go on from the group's checkpoint."""
    recipe, dataset, _ = small(name)
    if name == "qt-cnn":
        recipe = replace(recipe, epochs=4, burn_in=2)
    arguments = {"methods": methods, "seeds": seeds, "dataset": dataset}
    whole = run_trials(recipe, **arguments, place=Place(tmp_path / "whole", side_by_side=6))
    train_epoch, refused = SideBySide.train_epoch, []

    def limited(self):
        if self.epoch == last and len(self.lanes) > 2 and not refused:
            refused.append(self)
            raise torch.OutOfMemoryError("the histories have grown")
        train_epoch(self)

    monkeypatch.setattr(SideBySide, "train_epoch", limited)
    epochs = []
    halved = run_trials(
        recipe,
        **arguments,
        place=Place(tmp_path / "halved", interval=0.0, side_by_side=6),
        listener=Listener(on_epoch=epochs.append),
    )
    assert refused
    assert len(epochs) == trials.count_epochs(
        recipe, {seed: [ab.METHODS[method] for method in methods] for seed in seeds}
    )
    expected = {(result.method, result.seed): result for result in whole}
    for result in halved:
        theirs = expected[result.method, result.seed]
        assert result.test_error == pytest.approx(theirs.test_error)
        assert result.train_error == pytest.approx(theirs.train_error)
    assert not list((tmp_path / "halved" / "checkpoints").rglob("*.*"))


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), "capture"],
    ids=["numpy", "cpu", "capture"],
)
def test_memory_runs_out_in_other_ways_too(tmp_path, monkeypatch, error):
    train_epoch = SideBySide.train_epoch

    def limited(self):
        if len(self.lanes) > 2 and error == "capture":
            try:
                raise torch.OutOfMemoryError("too small")
            finally:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        if len(self.lanes) > 2:
            raise error
        train_epoch(self)

    monkeypatch.setattr(SideBySide, "train_epoch", limited)
    halved = results_of(digits(), tmp_path, methods=("scan", "wpv"), seeds=(0, 1))
    assert {details for *_, details in halved.values()} == {2}


def test_other_errors_are_not_taken_for_too_little_memory(tmp_path, monkeypatch):
    def broken(self):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(SideBySide, "train_epoch", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        results_of(digits(), tmp_path, methods=("scan", "wpv"))


def test_a_run_that_is_done_frees_its_memory_at_once(tmp_path, monkeypatch):
    """On a GPU the next group could not have it before the garbage collector happened to run."""
    alive = weakref.WeakSet()
    most_alive = 0
    begin = SideBySide.__init__

    def noted(self, *arguments, **keywords):
        nonlocal most_alive
        begin(self, *arguments, **keywords)
        alive.add(self)
        most_alive = max(most_alive, len(alive))

    monkeypatch.setattr(SideBySide, "__init__", noted)
    gc.collect()
    gc.disable()
    try:
        results_of(digits(), tmp_path, methods=("scan", "wpv"), side_by_side=2)
        assert not alive
    finally:
        gc.enable()
    assert most_alive == 2  # a burn-in and its branch


def test_one_model_that_does_not_fit_is_an_error(tmp_path, monkeypatch):
    def never(self):
        raise torch.OutOfMemoryError("too small for one")

    monkeypatch.setattr(SideBySide, "train_epoch", never)
    with pytest.raises(torch.OutOfMemoryError, match="too small for one"):
        results_of(digits(), tmp_path, methods=("scan", "wpv"), seeds=(0,))


def test_the_number_follows_the_free_memory(monkeypatch):
    recipe, dataset = digits(), load("digits")
    data = prepare(recipe, dataset, seed=0, device=CPU)
    monkeypatch.setattr(plan, "free_bytes", lambda device: 10**12)
    plenty = plan.most_models(recipe, data, CPU, draws=False)
    monkeypatch.setattr(plan, "free_bytes", lambda device: 10**7)
    few = plan.most_models(recipe, data, CPU, draws=False)
    fewer = plan.most_models(recipe, data, CPU, draws=True)
    monkeypatch.setattr(plan, "free_bytes", lambda device: 0)
    assert plenty > few > fewer >= plan.most_models(recipe, data, CPU, draws=False) == 1


def test_free_memory_counts_the_cache_of_files_and_is_known_without_linux(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_MEMINFO", tmp_path / "meminfo")
    sizes = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}  # macOS does not know SC_AVPHYS_PAGES
    monkeypatch.setattr(plan.os, "sysconf", lambda name: sizes[name])
    assert plan.free_bytes(CPU) == 500 * 4096
    (tmp_path / "meminfo").write_text("MemTotal:  900 kB\nMemFree:  10 kB\nMemAvailable:  700 kB\n")
    assert plan.free_bytes(CPU) == 700 * 1024


@pytest.mark.parametrize("number", [0, -2])
def test_a_place_refuses_no_models_at_once(tmp_path, number):
    with pytest.raises(ValueError, match="`side_by_side` must be at least 1"):
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
    assert plan.most_models(recipe, data, CPU, draws=False) == 1


def test_groups_keep_trials_whole_and_even():
    methods = [ab.METHODS[name] for name in ("scan", "wd", "wpv")]
    lanes = [Lane(seed, method) for seed in range(7) for method in methods]
    sizes = [len(group) for group in groups.in_groups(lanes, most=13)]
    assert sizes == [12, 9]
    assert [len(group) for group in groups.in_groups(lanes, most=2)] == [2, 1] * 7
    for group in groups.in_groups(lanes, most=13):
        names = [lane.method.name for lane in group]
        assert names == sorted(names)


def test_precision_does_not_make_another_result():
    recipe = digits()
    assert replace(recipe, half_precision=True).config() == recipe.config()
