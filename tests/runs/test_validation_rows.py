"""The audit covers the rows that validate: what is planted there is found, and stands in every list."""

import csv

import numpy as np
import pandas as pd
import pytest

import command
from activebias.own import read_table, train_own
from activebias.runs import audit_run, read_run
from activebias.runs.auditing import audit
from own_data import write_wine

WRONG = (3, 40, 70, 100, 140, 170)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wine")
    frame = pd.read_csv(write_wine(folder / "wine.csv"))
    for row in WRONG:
        frame.loc[row, "target"] = (frame.loc[row, "target"] + 1) % 3
    frame.to_csv(folder / "wine.csv", index=False)
    data = read_table(folder / "wine.csv", target="target", validation=0.5, seed=0)
    return train_own(data, folder / "run", epochs=20)


def test_all_rows_are_audited_and_wrong_labels_of_both_parts_found(run):
    instances, found = run.instances(), audit_run(run)
    assert sorted(instances.position.tolist()) == list(range(178))
    assert len(found) == 178
    assert (found.visits > 0).all()
    top = found.order[: 2 * len(WRONG)]
    assert set(WRONG) <= set(instances.position[top].tolist())
    parts = instances.in_validation[np.isin(instances.position, WRONG)]
    assert parts.any()
    assert not parts.all(), "choose other rows: both parts must have a wrong label"


def test_each_part_is_scored_by_the_same_rule(run):
    instances, (values, valid), found = run.instances(), run.history(), audit_run(run)
    part = instances.in_validation
    expected = audit(
        (values[part], valid[part]),
        instances.label[part],
        instances.believed[part],
        rival=instances.rival_prob[part],
        prior=1 / 3,
    )
    np.testing.assert_array_equal(found.score[part], expected.score)
    assert (np.diff(found.score[found.order]) <= 0).all()


def test_the_csv_names_row_and_part(run, tmp_path):
    command.run("audit", run.path, "--out", tmp_path / "all.csv")
    with open(tmp_path / "all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert next(iter(rows[0])) == "row"
    part = {int(row["row"]): row["part"] for row in rows}
    validated = {int(row["position"]) for row in run.validation()}
    assert {row for row, name in part.items() if name == "validation"} == validated


def test_exports_have_all_rows_and_cartography_the_training_part(run, tmp_path):
    command.run("export", run.path, "--out", tmp_path / "h.npz")
    with np.load(tmp_path / "h.npz", allow_pickle=False) as found:
        assert sorted(found["row"].tolist()) == list(range(178))
        assert (found["part"] == "validation").sum() == run.info.num_validation
        assert found["visited"].all()
    result = command.run(
        "export", run.path, "--format", "cartography", "--out", tmp_path / "dynamics", "--json"
    )
    assert f'"num_instances": {run.info.num_instances}' in result.stdout


def test_a_run_of_format_version_1_is_still_read(run, tmp_path):
    """Such a folder has the training part only."""
    from small_run import images, write

    folder = write(tmp_path / "old", images())
    text = (folder.path / "run.json").read_text()
    (folder.path / "run.json").write_text(text.replace('"format": 2', '"format": 1'))
    assert len(audit_run(read_run(folder.path))) == 4


def test_a_folder_without_its_validation_history_is_incomplete(run):
    kept = (run.path / "validation.pt").read_bytes()
    (run.path / "validation.pt").unlink()
    with pytest.raises(ValueError, match=r"incomplete, it lacks validation\.pt"):
        read_run(run.path)
    (run.path / "validation.pt").write_bytes(kept[:100])
    with pytest.raises(ValueError, match=r"validation\.pt"):
        read_run(run.path).history()
    (run.path / "validation.pt").write_bytes(kept)


def test_by_class_every_label_has_its_turn(run, tmp_path):
    result = command.run("audit", run.path, "--by-class", "--out", tmp_path / "turns.csv")
    assert "classes: every label in turn" in result.stdout
    with open(tmp_path / "turns.csv", newline="") as file:
        turns = list(csv.DictReader(file))
    assert [row["class_rank"] for row in turns[:6]] == ["1"] * 3 + ["2"] * 3
    assert {row["label"] for row in turns[:3]} == {"0", "1", "2"}
    for label in "012":
        of_class = [row for row in turns if row["label"] == label]
        assert [int(row["class_rank"]) for row in of_class] == list(range(1, len(of_class) + 1))
        scores = [float(row["score"]) for row in of_class]
        assert scores == sorted(scores, reverse=True)
