"""Checkpoints of trainings: of these settings only, and written no more often than is worth it."""

import pytest
import torch

import activebias as ab
from activebias.lab import get_recipe
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.one_by_one import build_run
from activebias.training.checkpoints import Checkpoint, checkpoint_beside


def test_a_checkpoint_of_other_settings_is_not_read(tmp_path):
    checkpoint_beside(tmp_path / "run", "these").write({"epoch": 3})
    assert checkpoint_beside(tmp_path / "run", "these").read() == {"epoch": 3}
    assert checkpoint_beside(tmp_path / "run", "others").read() is None
    assert Checkpoint(tmp_path / ".run.checkpoint.pt").read() is None


def test_a_training_of_another_release_begins_again(tmp_path, caplog):
    recipe = get_recipe("digits").compressed(3).limited(220)
    data = prepare(recipe, load_data(recipe), seed=0, device=torch.device("cpu"))
    stopped, run = (build_run(recipe, data, [ab.get_method("wtc")], seed=0) for _ in range(2))
    stopped.train_epoch()
    state = stopped.state_dict()
    checkpoint = Checkpoint(tmp_path / "state.pt")
    checkpoint.write(state)
    assert checkpoint.read_run().keys() == state.keys()
    for bias in state["biases"].values():
        bias["format"] -= 1
    checkpoint.write(state)
    seen, resumed = [], []
    run.train(3, checkpoint, lambda each: seen.append(each.epoch), resumed.append)
    assert (seen, resumed) == ([1, 2, 3], [])
    assert "is of another release: training begins again" in caplog.text


def test_a_failed_write_keeps_the_state_before(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "state.pt", interval=0.0)
    checkpoint.write({"epoch": 1})

    def full_disk(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write({"epoch": 2})
    assert checkpoint.read() == {"epoch": 1}
    checkpoint.remove()
    assert checkpoint.read() is None
