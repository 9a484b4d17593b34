"""The weights of the epoch with the lowest validation error."""

import json

import pytest
import torch

import command
from activebias.own import load_model
from activebias.runs import read_run
from own_data import write_digits


def test_the_best_epoch_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "photos", 150, moved=0.3)
    result = command.run("train", "--images", "photos", "--epochs", 12, "--quiet")
    assert ", kept in best.pt), training error" in " ".join(result.stdout.split())
    folder = read_run("runs/photos")
    held_out = folder.instances().in_validation
    images = torch.from_numpy(folder.inputs().images[held_out][:, None])
    labels = torch.from_numpy(folder.instances().label[held_out])
    curve = folder.info.curves["validation_error"]
    for best, expected in ((False, curve[-1]), (True, min(curve))):
        with torch.no_grad():
            wrong = load_model(folder, best=best)(images).argmax(1) != labels
        assert 100 * float(wrong.float().mean()) == pytest.approx(expected, abs=1e-3)
    assert min(curve) < curve[-1], "choose other data: the last epoch must not be the best"
    result = command.run("train", "digits", "--epochs", 1, "--json", "--out", "recipe")
    assert json.loads(result.stdout)["best_model"] is None
    with pytest.raises(ValueError, match=r"no best\.pt"):
        read_run("recipe").model_state(best=True)
