"""Checkpoints of groups that are damaged or of another form: training begins again, and says so."""

import pytest
import torch

from activebias.lab.side_by_side import SideBySide
from stopped_runs import assert_same, left_behind, train


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"))[0]


def spoil_scores(state):
    state["memory"]["scores"] = state["memory"]["scores"][:, :5]


def spoil_weights(state):
    state["stack"]["parameters"] = {k: v[:, :1] for k, v in state["stack"]["parameters"].items()}


def spoil_momentum(state):
    state["optimiser"] = [{k: v[:, :1] for k, v in known.items()} for known in state["optimiser"]]


def spoil_errors(state):
    state["test_error"] = [errors[:2] for errors in state["test_error"]]


def spoil_trials(state):
    state["trials"] = state["trials"][:1]


def spoil_memory(state):
    state["memory"] = {}


@pytest.mark.parametrize(
    "spoil",
    [spoil_scores, spoil_weights, spoil_momentum, spoil_errors, spoil_trials, spoil_memory, dict.clear],
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


@pytest.mark.parametrize("text", ["{", "[]", '{"epoch": 3, "runs": []}', '{"runs": [[1]]}'])
def test_a_label_that_cannot_be_read_is_as_none(tmp_path, whole, text):
    train(tmp_path, stop=4)
    (path,) = (tmp_path / "checkpoints").rglob("*.json")
    path.write_text(text)
    curves, _ = train(tmp_path)
    assert_same(curves, whole)
