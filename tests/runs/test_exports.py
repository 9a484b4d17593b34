"""Exports of the history: what other tools read is what was recorded."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import activebias as ab
import command
from activebias.runs.exports import Visits, export_history, left_aligned, visits, write_cartography
from small_run import HISTORY, images, write


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "run", images())


def read_dynamics(folder):
    """Read as cartography's `read_training_dynamics` does."""
    dynamics = {}
    files = list((folder / "training_dynamics").iterdir())
    for epoch in range(len(files)):
        with open(folder / "training_dynamics" / f"dynamics_epoch_{epoch}.jsonl") as file:
            for line in file:
                record = json.loads(line)
                if record["guid"] not in dynamics:
                    assert epoch == 0
                    dynamics[record["guid"]] = {"gold": record["gold"], "logits": []}
                dynamics[record["guid"]]["logits"].append(record[f"logits_epoch_{epoch}"])
    return dynamics


def cartography_metrics(dynamics):
    """Compute confidence, variability and correctness as cartography's `compute_train_dy_metrics` does."""
    found = {}
    for guid, record in dynamics.items():
        trend, correct = [], []
        for logits in record["logits"]:
            probs = torch.nn.functional.softmax(torch.Tensor(logits), dim=-1)
            trend.append(float(probs[record["gold"]]))
            correct.append((np.argmax(logits) == record["gold"]).item())
        found[guid] = (np.mean(trend), np.std(trend), sum(correct))
    return found


def test_cartography_recovers_confidence_and_variability(run, tmp_path):
    assert export_history(run, tmp_path / "dynamics", "cartography") == 3
    found = cartography_metrics(read_dynamics(tmp_path / "dynamics"))
    names = ["a.png", "=HYPERLINK(1).png", "c.png"]
    assert list(found) == names, "the instance that was never visited is left out"
    audit = ab.audit(HISTORY[:3])
    for name, (confidence, variability, correct) in found.items():
        guid = names.index(name)
        assert confidence == pytest.approx(audit.confidence[guid], abs=1e-6)
        assert variability == pytest.approx(audit.variability[guid], abs=1e-6)
        assert correct == pytest.approx(audit.correctness[guid] * 3)


def test_cartography_over_the_whole_range(tmp_path):
    prob = np.float32([[0.0, 1.0, 0.5, 1e-6, 1 - 1e-6]])
    write_cartography(Visits(prob, np.ones((1, 5), bool)), tmp_path / "out", ["a"])
    ((confidence, variability, correct),) = cartography_metrics(read_dynamics(tmp_path / "out")).values()
    assert confidence == pytest.approx(prob.mean(), abs=1e-6)
    assert variability == pytest.approx(prob.std(), abs=1e-6)
    assert correct == 2, "1/2 is not correct, as in the audit"


def test_visits_of_unequal_number_stand_at_the_left(tmp_path):
    values = np.float32([[0.25, 0.5, 0.75], [0.25, 0.5, 0.0], [0.25, 0.0, 0.0]])
    visited = np.array([[False, True, True], [False, True, False], [False, False, False]])
    seen = left_aligned(values, visited)
    np.testing.assert_array_equal(seen.prob, np.float32([[0.5, 0.75], [0.5, 0], [0, 0]]))
    assert write_cartography(seen, tmp_path / "out", [7, 8, 9]) == 2
    lengths = {guid: len(record["logits"]) for guid, record in read_dynamics(tmp_path / "out").items()}
    assert lengths == {7: 2, 8: 1}


def test_numpy(run, tmp_path):
    command.run("export", run.path, "--out", tmp_path / "history.data")
    with np.load(tmp_path / "history.data", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["prob"], HISTORY)
        assert found["visited"].sum(1).tolist() == [3, 3, 3, 0]
        assert found["label"].tolist() == [0, 1, 2, 0]
        assert found["file"].tolist() == list(images().names)
        assert found["part"].tolist() == ["training"] * 4
        assert found["class_names"].tolist() == ["cat", "<b>dog</b>", "-1"]


def test_parquet(run, tmp_path):
    result = command.run("export", run.path, "--format", "parquet", "--out", tmp_path / "h.parquet", "--json")
    assert json.loads(result.stdout)["num_instances"] == 4
    rows = pq.read_table(tmp_path / "h.parquet").to_pylist()
    assert [row["label"] for row in rows] == ["cat", "<b>dog</b>", "-1", "cat"]
    assert list(rows[0])[:4] == ["file", "part", "label", "believed"]
    assert [row["file"] for row in rows] == list(images().names)
    assert [row["position"] for row in rows] == [10, 11, 12, 13]
    np.testing.assert_array_equal(rows[1]["history"], HISTORY[1])
    assert rows[3]["history"] == []


def test_the_prior_is_never_exported(tmp_path):
    for window, width in ((None, 3), (2, 2), (3, 3), (4, 3)):
        seen = visits(write(tmp_path / f"run{window}", images(), window=window))
        np.testing.assert_array_equal(seen.prob, HISTORY[:, 3 - width :])


def test_errors(run, tmp_path):
    result = command.run("export", run.path, "--format", "xml", "--out", tmp_path / "x", code=2)
    assert "npz, parquet, cartography" in result.output
    with pytest.raises(ValueError, match="npz, parquet, cartography"):
        export_history(run, tmp_path / "x", "xml")
    taken = tmp_path / "taken"
    taken.mkdir()  # other files there would be counted as epochs
    result = command.run("export", run.path, "--format", "cartography", "--out", taken, code=1)
    assert "exists already" in result.output
