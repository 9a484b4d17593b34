"""Embeddings of the user's own: linear models judge the labels, the data itself is only shown."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import activebias
import command
from activebias.own import load_model
from activebias.runs import audit_run, read_run
from own_data import made_up, write_digits

WRONG = 100


@pytest.fixture(scope="module")
def digits():
    """Names that say nothing about the class, embeddings that do, and one wrong label."""
    values, labels = load_digits(return_X_y=True)
    names = [f"photo {number} of {number * 7919 % 97}" for number in range(400)]
    labels = labels[:400].copy()
    labels[WRONG] = (labels[WRONG] + 3) % 10
    return names, labels, values[:400].astype(np.float32)


def test_the_embeddings_judge(digits):
    names, labels, array = digits
    table, run = activebias.find_issues(names, labels, embeddings=array, judges=3, epochs=8)
    assert WRONG in table["row"].head(3).tolist()
    assert table["instance"].iloc[0].startswith("photo ")
    model = load_model(run)
    assert model(torch.zeros(2, 64)).shape == (2, 10)


def test_other_floats_and_tensors(digits):
    """The same numbers in another form train the same model."""
    names, labels, array = digits
    whole = array.round()  # exact in half precision too
    states = [
        activebias.find_issues(names, labels, embeddings=form, judges=1, epochs=1).run.model_state()
        for form in (whole, whole.astype(np.float16), torch.from_numpy(whole).double())
    ]
    for state in states[1:]:
        assert torch.equal(state["output.weight"], states[0]["output.weight"])


def test_several_judges_are_the_usual(digits):
    names, labels, array = digits
    run = activebias.find_issues(names, labels, embeddings=array, epochs=1).run
    assert run.info.num_judges == 5
    assert run.info.model["name"] == "LinearHead"


def wrong_embeddings():
    nan = np.ones((400, 8), np.float32)
    nan[7, 3] = np.nan
    yield "too few rows", np.ones((399, 8)), ValueError, r"shape \(400, features\), but got shape \(399, 8\)"
    yield "one dimension", np.ones(400), ValueError, r"but got shape \(400,\)"
    yield "no features", np.ones((400, 0)), ValueError, r"but got shape \(400, 0\)"
    yield "integers", np.ones((400, 8), int), TypeError, r"floats, but got int64: .*astype\('float32'\)"
    yield "NaN", nan, ValueError, r"NaN or infinity in 1 row, such as row 7: compute"


@pytest.mark.parametrize(("array", "error", "match"), [
    pytest.param(*rest, id=name) for name, *rest in wrong_embeddings()
])  # fmt: skip
def test_embeddings_that_do_not_fit(digits, array, error, match):
    with pytest.raises(error, match=match):
        activebias.find_issues(*digits[:2], embeddings=array)


def test_a_model_and_embeddings(digits):
    _, labels, array = digits
    with pytest.raises(ValueError, match="one of `model` and `embeddings`"):
        activebias.find_issues(array, labels, model=lambda: nn.Linear(64, 10), embeddings=array)


def train(*arguments, code=0):
    result = command.run("train", *arguments, "--quiet", code=code)
    return command.words(result.output)


def test_rows_without_a_label_have_an_embedding_too(digits, tmp_path, monkeypatch):
    """The embeddings belong to the rows of the file: a row that is skipped must not shift the others."""
    monkeypatch.chdir(tmp_path)
    names, labels, array = digits
    frame = pd.DataFrame({"name": names, "kind": [f"digit {label}" for label in labels]})
    frame.loc[[0, 50], "kind"] = None
    frame.to_csv("photos.csv", index=False)
    np.save("e.npy", array)
    table = ("--csv", "photos.csv", "--target", "kind")
    train(*table, "--embeddings", "e.npy", "--judges", 3, "--epochs", 8)
    run = read_run("runs/photos")
    assert run.info.settings["embeddings"] == "e.npy"
    assert WRONG in run.instances().position[audit_run(run).order[:3]]
    np.save("short.npy", array[:398])
    assert "row per row, also of rows without a label" in train(*table, "--embeddings", "short.npy", code=1)
    like = ("--csv", "photos.csv", "--like", "runs/photos", "--out", "again")
    assert "runs/photos was trained on embeddings: give `--embeddings`" in train(*like, code=1)
    train(*like, "--embeddings", "e.npy", "--epochs", 1)
    assert read_run("again").info.num_judges == 3


def test_images_in_the_order_of_their_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = sorted(write_digits(tmp_path / "photos", 120).rglob("*.png"))
    (paths[0].parent / "broken.png").write_bytes(b"no image")
    labels = np.array([int(path.parent.name[-1]) for path in paths])
    np.save("e.npy", np.eye(10, dtype=np.float32)[labels])  # embeddings that tell the class
    train("--images", "photos", "--embeddings", "e.npy", "--judges", 3, "--epochs", 20)
    assert read_run("runs/photos").info.curves["validation_error"][-1] == 0


def test_files_and_data_that_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"x": np.arange(40) % 7, "y": ["a", "b"] * 20})
    frame.to_csv("t.csv", index=False)
    np.save("e.npy", np.ones((40, 2)))
    np.savez("e.npz", a=np.ones(3))
    (tmp_path / "text.npy").write_text("0.1, 0.2")
    np.save("objects.npy", np.array([{}, {}]), allow_pickle=True)
    table = ("--csv", "t.csv", "--target", "y")
    for name, said in {
        "none.npy": "There is no file none.npy: write the embeddings with `np.save`",
        "text.npy": "text.npy cannot be read as one array",
        "objects.npy": "objects.npy cannot be read as one array",
        "e.npz": "e.npz cannot be read as one array",
    }.items():
        assert said in train(*table, "--embeddings", name, code=1)
    said = train(*table, "--embeddings", "e.npy", "--validation", "t.csv", code=1)
    assert "a separate validation part: put both into one" in said
    (tmp_path / "text.conll").write_text(made_up(), encoding="utf-8")
    assert "got tagged text" in train("--conll", "text.conll", "--embeddings", "e.npy", code=1)
    assert "`--embeddings` is for own data" in train("digits", "--embeddings", "e.npy", code=2)
