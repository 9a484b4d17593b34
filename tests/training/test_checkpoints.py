"""Checkpoints of trainings: of these settings only, and written no more often than is worth it."""

import pytest
import torch

from activebias.training.checkpoints import Checkpoint, checkpoint_beside


def test_a_checkpoint_of_other_settings_is_not_read(tmp_path):
    checkpoint_beside(tmp_path / "run", "these").write({"epoch": 3})
    assert checkpoint_beside(tmp_path / "run", "these").read() == {"epoch": 3}
    assert checkpoint_beside(tmp_path / "run", "others").read() is None
    assert Checkpoint(tmp_path / ".run.checkpoint.pt").read() is None


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
