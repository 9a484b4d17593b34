"""Groups that were stopped: whoever comes next goes on from what they left, and leaves nothing behind."""

import pytest
import torch

import activebias as ab
from activebias.lab import Place, run_trials, trials
from activebias.lab.checkpoints import Checkpoint
from activebias.lab.place import Listener
from activebias.lab.side_by_side import SideBySide, stopped
from activebias.lab.side_by_side.stopped import GroupCheckpoint
from activebias.lab.store import ResultStore
from side_by_side_cases import digits

METHODS, SEEDS = ("scan", "wpv"), (0, 1, 2)


class Stopped(Exception):
    pass


def killed(*arguments):
    raise Stopped


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"))[0]


def train(folder, methods=METHODS, seeds=SEEDS, *, stop=None, **place):
    """Train; return the curves by method and seed, and the (method, seed, epoch) that were trained.

    `stop` is the epoch after whose first lane the run is stopped. The epochs that were counted must come.
    """
    recipe, place = digits(), Place(folder, **{"interval": 0.0, **place})
    arguments = {"methods": methods, "seeds": seeds, "place": place}
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


def spoil_scores(state):
    state["memory"]["scores"] = state["memory"]["scores"][:, :5]


def spoil_optimiser(state):
    state["stack"]["parameters"] = {k: v[:, :1] for k, v in state["stack"]["parameters"].items()}


def spoil_errors(state):
    state["test_error"] = [errors[:2] for errors in state["test_error"]]


def spoil_trials(state):
    state["trials"] = state["trials"][:1]


def spoil_memory(state):
    state["memory"] = {}


@pytest.mark.parametrize(
    "spoil", [spoil_scores, spoil_optimiser, spoil_errors, spoil_trials, spoil_memory, dict.clear]
)
@pytest.mark.parametrize("most", [None, 2])
def test_a_checkpoint_of_another_form_is_not_gone_on_from(tmp_path, whole, caplog, spoil, most):
    """Neither as it is nor cut into parts."""
    train(tmp_path, stop=4)
    (path,) = (tmp_path / "checkpoints").rglob("*.pt")
    state = torch.load(path, weights_only=True)
    spoil(state)
    torch.save(state, path)
    curves, epochs = train(tmp_path, side_by_side=most)
    assert min(epoch for *_, epoch in epochs) == 1
    assert_same(curves, whole)
    assert left_behind(tmp_path) == []
    assert "training begins again" in caplog.text


def test_a_file_that_is_no_state_is_not_gone_on_from(tmp_path, whole):
    train(tmp_path, stop=4)
    (path,) = (tmp_path / "checkpoints").rglob("*.pt")
    torch.save([1], path)
    assert_same(train(tmp_path)[0], whole)
    assert left_behind(tmp_path) == []


def test_a_fault_of_the_device_costs_no_checkpoint(tmp_path, monkeypatch):
    def fault(self, state):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    train(tmp_path, stop=4)
    with monkeypatch.context() as patched:
        patched.setattr(SideBySide, "load_state_dict", fault)
        with pytest.raises(RuntimeError, match="illegal memory access"):
            train(tmp_path)
    assert {epoch for *_, epoch in train(tmp_path)[1]} == {5}


@pytest.mark.parametrize("moment", ["label", "state", "first file"])
def test_a_kill_at_a_bad_moment_leaves_nothing_for_good(tmp_path, monkeypatch, whole, moment):
    """While the label is written, between it and the state, and between the two that are removed."""
    with monkeypatch.context() as patched:
        if moment == "label":
            patched.setattr(stopped.os, "replace", killed)
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
    recipe, place = digits(), Place(tmp_path, interval=0.0)

    def stop(done):
        if done.epoch == 4:
            raise Stopped

    with pytest.raises(Stopped):
        run_trials(
            recipe,
            methods=["wpv"],
            seeds=[0],
            place=place,
            keep_models=True,
            listener=Listener(on_epoch=stop),
        )
    train(tmp_path, ["wd", "we"], [1], stop=2, side_by_side=1)
    before = left_behind(tmp_path)
    train(tmp_path, ["wpv", "scan"], [0, 1])
    assert left_behind(tmp_path) == before
    epochs = train(tmp_path, ["wd", "we"], [1], side_by_side=1)[1]
    assert min(epoch for *_, epoch in epochs) == 3
    assert left_behind(tmp_path) == ["burn-in-scan-kept.pt", "wpv-kept.pt"]
    done = []
    run_trials(
        recipe,
        methods=["wpv"],
        seeds=[0],
        place=place,
        keep_models=True,
        listener=Listener(on_epoch=lambda each: done.append(each.epoch)),
    )
    assert done == [5]
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"epoch": 3, "runs": []}', '{"runs": [[1]]}'])
def test_a_label_that_cannot_be_read_is_as_none(tmp_path, whole, text):
    train(tmp_path, stop=4)
    (path,) = (tmp_path / "checkpoints").rglob("*.json")
    path.write_text(text)
    curves, _ = train(tmp_path)
    assert_same(curves, whole)


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
    assert messages == ["digits: 6 models go on after epoch 4, side by side."]


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


@pytest.mark.parametrize("seeds", [[0, -1], [0, True], [1.0], ["0"], [None], [torch.tensor(1.5)]])
def test_seeds_are_checked_before_anything_is_trained(tmp_path, seeds):
    def trained(done):
        raise AssertionError("trained first")

    with pytest.raises(ValueError, match="`seeds` must be integers of at least 0"):
        run_trials(
            digits(),
            methods=["scan"],
            seeds=seeds,
            place=Place(tmp_path),
            listener=Listener(on_epoch=trained),
        )


@pytest.mark.parametrize(
    "make", [lambda: torch.arange(2).numpy(), lambda: iter([0, 1, 0]), lambda: {0: 1, 1: 2}]
)
def test_seeds_of_any_kind(tmp_path, make):
    results = run_trials(digits(), methods=["scan"], seeds=make(), place=Place(tmp_path))
    assert [result.seed for result in results] == [0, 1]


def test_a_folder_that_cannot_be_made_is_told_before_training(tmp_path, monkeypatch):
    def trained(self):
        raise AssertionError("trained first")

    monkeypatch.setattr(SideBySide, "train_epoch", trained)
    with pytest.raises(OSError):
        run_trials(digits(), methods=METHODS, seeds=SEEDS, place=Place(type(tmp_path)("/proc/none/here")))


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
