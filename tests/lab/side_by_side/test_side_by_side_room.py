"""Trials side by side where memory or disk do not suffice: planned, halved, told, and nothing is lost."""

import errno
import gc
import logging
import resource
import weakref
from dataclasses import replace

import pytest
import torch

from activebias.lab import Place, run_trials, trials
from activebias.lab.data import load
from activebias.lab.experiment.place import Listener
from activebias.lab.experiment.prepared import prepare
from activebias.lab.experiment.sides import find_side
from activebias.lab.models import MnistCNN, SigmoidNet
from activebias.lab.side_by_side import SideBySide, evaluation, plan
from activebias.lab.side_by_side.stacking import Stack
from activebias.training.checkpoints import Checkpoint
from side_by_side_cases import digits, results_of, small

CPU = torch.device("cpu")


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
    assert "out of memory with 6 models side by side: now 2 + 2 + 2" in caplog.text
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
    told = f"{recipe.name}: no checkpoint could be written (File too large); training continues."
    assert messages.count(told) == 1
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
        recipe, {seed: [find_side(method) for method in methods] for seed in seeds}
    )
    expected = {(result.method, result.seed): result for result in whole}
    for result in halved:
        theirs = expected[result.method, result.seed]
        assert result.test_error == pytest.approx(theirs.test_error)
        assert result.train_error == pytest.approx(theirs.train_error)
    assert not list((tmp_path / "halved" / "checkpoints").rglob("*.*"))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        "capture",
    ],
    ids=["numpy", "cpu", "triton", "cudnn", "capture"],
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
    plenty = plan.most_models(recipe, data, CPU)
    monkeypatch.setattr(plan, "free_bytes", lambda device: 10**7)
    few = plan.most_models(recipe, data, CPU)
    windowed = plan.most_models(replace(recipe, window=1), data, CPU)
    monkeypatch.setattr(plan, "free_bytes", lambda device: 0)
    assert plenty > windowed > few > plan.most_models(recipe, data, CPU) == 1


@pytest.mark.parametrize(
    ("model", "most"), [(SigmoidNet, 400_000), (MnistCNN, 100_000)], ids=["784-100-10", "convolutions"]
)
def test_models_that_convolve_are_evaluated_in_smaller_parts_on_a_gpu(model, most):
    stack = Stack.of([model(generator=torch.Generator().manual_seed(0))], torch.device("cpu"))
    assert evaluation._chunks(stack, 5_000) == range(0, 5_000, 1_000)
    stack.device, stack.size = torch.device("cuda"), 50  # of which only the kind is asked for
    assert evaluation._chunks(stack, 10_000).step == most // 50


def test_free_memory_counts_the_cache_of_files_and_is_known_without_linux(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_MEMINFO", tmp_path / "meminfo")
    sizes = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}  # macOS does not know SC_AVPHYS_PAGES
    monkeypatch.setattr(plan.os, "sysconf", lambda name: sizes[name])
    assert plan.free_bytes(CPU) == 500 * 4096
    (tmp_path / "meminfo").write_text("MemTotal:  900 kB\nMemFree:  10 kB\nMemAvailable:  700 kB\n")
    assert plan.free_bytes(CPU) == 700 * 1024
