"""Groups that were stopped: whoever comes next goes on from what they left, and leaves nothing behind."""

import pytest
import torch

import activebias as ab
from activebias import files
from activebias.lab import Place, run_trials
from activebias.lab.experiment.place import Listener
from activebias.lab.experiment.store import ResultStore
from activebias.lab.side_by_side import SideBySide
from activebias.lab.side_by_side.stopped import GroupCheckpoint
from activebias.training.checkpoints import Checkpoint
from side_by_side_cases import digits
from stopped_runs import METHODS, SEEDS, Stopped, assert_same, left_behind, train


def killed(*arguments):
    raise Stopped


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"))[0]


def test_fewer_methods_go_on_and_the_others_later(tmp_path, whole):
    train(tmp_path, stop=4)
    curves, epochs = train(tmp_path, ["wpv"])
    assert epochs == [("wpv", seed, 5) for seed in SEEDS]
    assert_same(curves, whole)
    curves, epochs = train(tmp_path)
    assert epochs == [("scan", seed, 5) for seed in SEEDS]
    assert_same(curves, whole)
    assert left_behind(tmp_path) == []


def test_a_group_that_was_cut_is_not_kept_beside_its_parts(tmp_path):
    train(tmp_path, stop=4)
    whole = left_behind(tmp_path)
    train(tmp_path, stop=5, side_by_side=2)
    assert len(whole) == 2
    assert len(left_behind(tmp_path)) == 6
    assert not set(whole) & set(left_behind(tmp_path))


@pytest.mark.parametrize("stop", [1, 4])
def test_fewer_at_once_go_on(tmp_path, whole, stop):
    train(tmp_path, stop=stop)
    curves, epochs = train(tmp_path, side_by_side=2)
    assert min(epoch for *_, epoch in epochs) == stop + 1
    assert_same(curves, whole)
    assert left_behind(tmp_path) == []


def test_what_has_come_further_goes_on_from_there(tmp_path, whole):
    train(tmp_path, stop=3)
    train(tmp_path, ["wpv"], stop=4)
    curves, epochs = train(tmp_path)
    assert sorted(epochs) == sorted(
        [("wpv", seed, 5) for seed in SEEDS] + [("scan", seed, epoch) for seed in SEEDS for epoch in (4, 5)]
    )
    assert_same(curves, whole)
    assert left_behind(tmp_path) == []


def test_a_store_that_took_some_results_gets_the_others(tmp_path, monkeypatch, whole):
    append = ResultStore.append

    def full(self, results):
        append(self, results[:1])
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(ResultStore, "append", full)
        with pytest.raises(Stopped):
            train(tmp_path)
    curves, epochs = train(tmp_path)
    assert {epoch for *_, epoch in epochs} == {5}
    assert len(epochs) == 5
    assert_same(curves, whole)
    assert left_behind(tmp_path) == []


def test_what_was_stored_but_not_cleared_away_is(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(GroupCheckpoint, "remove", killed)
        with pytest.raises(Stopped):
            train(tmp_path)
    assert left_behind(tmp_path)
    assert train(tmp_path)[1] == []
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("seeds", [(0, 1), (2, 5), (3, 4), (7, 9)])
def test_a_group_that_is_stopped_while_it_is_halved_loses_nothing(tmp_path, monkeypatch, seeds):
    """Whichever of the two files happens to come first."""
    train_epoch, write = SideBySide.train_epoch, GroupCheckpoint.write

    def limited(self):
        if self.epoch == 3 and len(self.lanes) > 2:
            raise torch.OutOfMemoryError("as if the memory were too small")
        train_epoch(self)

    def killed(self, state):
        write(self, state)
        if len(self.runs) < 4:
            raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(SideBySide, "train_epoch", limited)
        patched.setattr(GroupCheckpoint, "write", killed)
        with pytest.raises(Stopped):
            train(tmp_path, seeds=seeds)
    assert len(left_behind(tmp_path)) == 4
    epochs = train(tmp_path, seeds=seeds)[1]
    assert sorted(epochs) == sorted((m, seed, epoch) for m in METHODS for seed in seeds for epoch in (4, 5))
    assert left_behind(tmp_path) == []


def test_trials_that_were_stopped_one_by_one_leave_nothing_behind(tmp_path, whole):
    train(tmp_path, stop=4, side_by_side=1)
    assert left_behind(tmp_path)
    curves, _ = train(tmp_path)
    assert_same(curves, whole)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("stop", [1, 4])
def test_the_epochs_that_are_counted_come_one_by_one_too(tmp_path, whole, stop):
    train(tmp_path, stop=stop, side_by_side=1)
    curves, epochs = train(tmp_path, side_by_side=1)
    assert len(epochs) == 3 * (2 + 2 * 3) - stop
    assert_same(curves, whole)


def test_methods_of_a_trial_in_several_groups_have_several_burn_ins(tmp_path):
    epochs = train(tmp_path, ["scan", "wd", "wpv"], [0], side_by_side=2)[1]
    assert len(epochs) == 2 * 2 + 3 * 3


@pytest.mark.parametrize("moment", ["label", "state", "first file"])
def test_a_kill_at_a_bad_moment_leaves_nothing_for_good(tmp_path, monkeypatch, whole, moment):
    """While the label is written, between it and the state, and between the two that are removed."""
    with monkeypatch.context() as patched:
        if moment == "label":
            patched.setattr(files, "_discard", lambda path: None)
            patched.setattr(files.os, "replace", killed)
        elif moment == "state":
            patched.setattr(Checkpoint, "_write", killed)
        else:
            patched.setattr(type(tmp_path), "rmdir", killed)
        with pytest.raises(Stopped):
            train(tmp_path)
    assert left_behind(tmp_path)
    curves, _ = train(tmp_path, side_by_side=None if moment == "label" else 2)
    assert_same(curves, whole)
    assert left_behind(tmp_path) == []


def test_what_others_were_stopped_in_is_left_to_them(tmp_path):
    """A model that is to be kept, and a burn-in of methods that are still to come."""
    train(tmp_path, ["wpv"], [0])
    train(tmp_path, ["wpv"], [0], stop=4, keep_models=True)
    train(tmp_path, ["wd", "we"], [1], stop=2, side_by_side=1)
    before = left_behind(tmp_path)
    train(tmp_path, ["wpv", "scan"], [0, 1])
    assert left_behind(tmp_path) == before
    epochs = train(tmp_path, ["wd", "we"], [1], side_by_side=1)[1]
    assert min(epoch for *_, epoch in epochs) == 3
    assert left_behind(tmp_path) == ["burn-in-scan-kept.pt", "wpv-kept.pt"]
    assert train(tmp_path, ["wpv"], [0], keep_models=True)[1] == [("wpv", 0, 5)]
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("stop", [None, 4])
def test_memory_that_was_too_small_once_is_not_asked_for_again(tmp_path, monkeypatch, stop):
    if stop is not None:
        train(tmp_path, stop=stop)
    train_epoch, refused = SideBySide.train_epoch, []

    def limited(self):
        if len(self.lanes) > 3:
            refused.append(len(self.lanes))
            raise torch.OutOfMemoryError("as if the memory were too small")
        train_epoch(self)

    monkeypatch.setattr(SideBySide, "train_epoch", limited)
    curves, _ = train(tmp_path, (*METHODS, "uni", "sd"), range(9), side_by_side=6)
    assert refused == [6]
    assert len(curves) == 36


def test_a_group_is_not_kept_beside_its_halves(tmp_path, monkeypatch):
    train_epoch, files = SideBySide.train_epoch, []

    def limited(self):
        if self.epoch == 3 and len(self.lanes) > 3:
            raise torch.OutOfMemoryError("as if the memory were too small")
        if self.epoch == 3:
            files.append(len(left_behind(tmp_path)))
        train_epoch(self)

    monkeypatch.setattr(SideBySide, "train_epoch", limited)
    train(tmp_path)
    assert files == [6, 4, 2]


def test_a_run_says_where_it_goes_on(tmp_path):
    train(tmp_path, stop=4)
    messages = []
    run_trials(
        digits(),
        methods=METHODS,
        seeds=SEEDS,
        place=Place(tmp_path),
        listener=Listener(on_message=messages.append),
    )
    assert messages == ["digits: 6 models side by side, resumed after epoch 4."]


def test_trials_do_not_depend_on_each_other_through_a_statistic_of_ones_own(tmp_path):
    """Even one that looks at more than one instance."""

    def share_of_largest(estimate):
        return estimate.variance / estimate.variance.max().clamp(min=1e-9)

    method = ab.Method("share", share_of_largest, weights="emphasis")
    two, three = (
        train(tmp_path / str(len(seeds)), [method], seeds, side_by_side=len(seeds))[0]
        for seeds in ((0, 1), (0, 1, 2))
    )
    assert_same(two, three)


def test_a_burn_in_of_methods_of_ones_own_is_removed_when_they_are_done(tmp_path):
    own = ab.Method("own", lambda estimate: estimate.variance, weights="emphasis")
    train(tmp_path, [own, "wpv"], stop=1, side_by_side=1)
    assert left_behind(tmp_path) == ["burn-in-scan.pt"]
    train(tmp_path, ["wpv"])
    assert left_behind(tmp_path) == ["burn-in-scan.pt"]
    train(tmp_path, [own])
    assert left_behind(tmp_path) == []


def test_what_no_group_can_find_is_removed(tmp_path):
    train(tmp_path, stop=4)
    (label,) = (tmp_path / "checkpoints").rglob("*.json")
    label.rename(label.parent / f".{label.stem}.pt.label")
    train(tmp_path, side_by_side=2)
    assert left_behind(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_told_before_training(tmp_path, monkeypatch):
    def trained(self):
        raise AssertionError("trained first")

    monkeypatch.setattr(SideBySide, "train_epoch", trained)
    with pytest.raises(OSError, match=r"/proc/none/here cannot be written \(.*\): choose another folder"):
        run_trials(digits(), methods=METHODS, seeds=SEEDS, place=Place(type(tmp_path)("/proc/none/here")))
