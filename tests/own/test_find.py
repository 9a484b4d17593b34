"""`activebias.find_issues` on data in RAM: whatever its form, the planted label is found in its row."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_wine

import activebias
from activebias.runs import read_run
from own_data import write_digits

WRONG = 100


@pytest.fixture
def wine():
    values, kinds = load_wine(return_X_y=True)
    kinds[WRONG] = 2
    return values, kinds


class DataSet:
    """As Hugging Face's: it becomes a DataFrame."""

    def __init__(self, frame):
        self.frame = frame

    def to_pandas(self):
        return self.frame


def forms(values, kinds):
    frame = pd.DataFrame(values, columns=[f"x{k}" for k in range(13)], index=range(500, 678))
    names = [f"kind {k}" for k in kinds]
    yield "float64", values, {"labels": kinds}
    yield "lists", values.tolist(), {"labels": names}
    yield "tensors", torch.tensor(values), {"labels": torch.tensor(kinds)}
    yield "floats as labels", values.astype(np.float32), {"labels": kinds.astype(float)}
    yield "a DataFrame with its target", frame.assign(kind=names), {"target": "kind"}
    yield "a DataFrame and a series", frame, {"labels": pd.Series(names, index=frame.index)}
    yield "a data set", DataSet(frame.assign(kind=kinds)), {"target": "kind"}


def test_numbers_in_every_form(wine):
    """One epoch finds no wrong label yet, but every label stands in its row."""
    for name, data, how in forms(*wine):
        table, run = activebias.find_issues(data, epochs=1, **how)
        assert list(table.columns) == [
            *("row", "label", "believed", "score", "suspected", "conflict", "duplicate", "part", "instance")
        ]
        assert sorted(table["row"]) == list(range(178))
        assert [int(label[-1]) for label in table["label"]] == wine[1][table["row"]].tolist(), name
        assert set(table["part"]) == {"training", "validation"}
        assert run.info.num_audited == 178


def test_the_wrong_label_comes_first(wine):
    values, kinds = wine
    table, _ = activebias.find_issues(values.tolist(), [f"kind {k}" for k in kinds], epochs=20)
    assert table.iloc[0][["row", "label", "believed"]].tolist() == [WRONG, "kind 2", "kind 1"]
    assert table["suspected"].iloc[0]


def test_the_run_is_kept_where_it_is_asked_for(wine, tmp_path):
    seen = []
    found = activebias.find_issues(*wine, epochs=2, out=tmp_path / "run", on_epoch=seen.append)
    assert read_run(tmp_path / "run").info == found.run.info
    assert len(seen) == 2


def test_conflicts_and_duplicates(wine):
    values, kinds = wine
    values[8], values[20] = values[7], values[7]
    kinds[8] = 1
    table, _ = activebias.find_issues(values, kinds, epochs=2)
    by_row = table.set_index("row")
    assert set(by_row.index[by_row["duplicate"]]) == {7, 8, 20}
    assert set(by_row.index[by_row["conflict"] > 0]) == {7, 8, 20}


def test_texts():
    texts = [f"a {'good' if k % 2 else 'bad'} film, seen {k} times" for k in range(60)]
    labels = ["high" if k % 2 else "low" for k in range(60)]
    labels[7] = "low"
    table, run = activebias.find_issues(texts, labels, epochs=8, validation=0.1)
    assert run.info.kind == "text"
    assert table["row"].iloc[0] == 7
    assert table["instance"].iloc[0].startswith("a good film, seen 7 times")


@pytest.mark.parametrize("form", ["bytes", "floats, channels first"])
def test_arrays_of_images(form):
    digits = load_digits()
    images, labels = digits.images[:120], digits.target[:120]
    array = (images * 15).astype(np.uint8) if form == "bytes" else images[:, None] / 16
    table, run = activebias.find_issues(array, labels, epochs=1)
    assert run.info.kind == "images"
    assert sorted(table["row"]) == list(range(120))
    assert [str(labels[row]) for row in table["row"]] == table["label"].tolist()


def test_paths_of_images(tmp_path):
    paths = sorted(write_digits(tmp_path / "photos", 80).rglob("*.png"))
    table, _ = activebias.find_issues(
        [str(path) for path in paths], [path.parent.name for path in paths], epochs=1
    )
    assert sorted(table["instance"]) == sorted(str(path) for path in paths)
    assert all(str(paths[row]) == name for row, name in zip(table["row"], table["instance"], strict=True))


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        (np.zeros((9, 2)), {}, "exactly one of `labels` and `target`"),
        (np.zeros((9, 2)), {"labels": [1] * 8}, "Expected one label per row, 9 in all, but got 8"),
        (np.zeros((9, 2)), {"target": "y"}, "Expected a table for `target`, but got ndarray"),
        (pd.DataFrame({"x": [1, 2]}), {"target": "y"}, "one of \\['x'\\], but got 'y'"),
        (np.zeros(9), {"labels": [1] * 9}, "ndarray of float64, shape \\(9,\\)"),
        ([[1, 2], [3]], {"labels": [1, 2]}, "rows of one length"),
        (["no.png", "nothing.png"], {"labels": ["a", "b"]}, "2 images cannot be read, such as no.png"),
        (np.zeros((4, 8, 8, 5)), {"labels": [0, 1, 0, 1]}, "1 or 3 channels"),
        (np.zeros((4, 8, 8)), {"labels": [0, None, 0, 1]}, "Images without a label, such as \\[1\\]"),
    ],
)
def test_errors_name_the_fix(data, how, message):
    with pytest.raises(ValueError, match=message):
        activebias.find_issues(data, **how)
