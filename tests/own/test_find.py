"""`activebias.find_issues` on data in RAM: whatever its form, the planted label is found in its row."""

from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_wine
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import activebias
from activebias.own import load_model
from activebias.own.forms import data_in_ram
from activebias.runs import read_run
from own_data import write_digits

WRONG = 100


@pytest.fixture
def wine():
    values, kinds = load_wine(return_X_y=True)
    kinds[WRONG] = 2
    return values, kinds


def forms(values, kinds):
    frame = pd.DataFrame(values, columns=[f"x{k}" for k in range(13)], index=range(500, 678))
    names = [f"kind {k}" for k in kinds]
    yield "float64", values, {"labels": kinds}
    yield "lists", values.tolist(), {"labels": names}
    yield "tensors", torch.tensor(values), {"labels": torch.tensor(kinds)}
    yield "floats as labels", values.astype(np.float32), {"labels": kinds.astype(float)}
    yield "a DataFrame with its target", frame.assign(kind=names), {"target": "kind"}
    yield "a DataFrame and a series", frame, {"labels": pd.Series(names, index=frame.index)}
    yield "a table of pyarrow", pa.Table.from_pandas(frame.assign(kind=kinds)), {"target": "kind"}
    pairs = TensorDataset(torch.tensor(values), torch.tensor(kinds))
    yield "a torch data set", pairs, {}
    yield "a part of a torch data set", Subset(pairs, range(178)), {"labels": names}


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


class Digits(Dataset):
    """Digits as tensors (1, 8, 8), with one wrong label."""

    def __init__(self, number=400):
        digits = load_digits()
        self.images, self.names = digits.images[:number] / 16, [f"digit {k}" for k in digits.target[:number]]
        self.names[WRONG] = "digit 0"

    def __len__(self):
        return len(self.names)

    def __getitem__(self, number):
        return torch.tensor(self.images[number])[None], self.names[number]


def net():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(288, 10))


def test_a_torch_data_set_with_a_model_of_ones_own():
    data = Digits()
    assert load_digits().target[WRONG] != 0
    found = activebias.find_issues(data, model=net, epochs=12, learning_rate=0.01)
    assert found.table["row"].iloc[0] == WRONG
    assert found.run.info.kind == "images"
    assert found.run.info.model["learning_rate"] == 0.01
    assert "Conv2d(1, 8" in found.run.info.model["built"]
    first, second = (activebias.find_issues(data, model=net, epochs=1).table for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    with pytest.raises(ValueError, match="build the model, and load"):
        load_model(found.run)
    net().load_state_dict(found.run.model_state())


def test_arrays_with_a_model_of_ones_own(wine):
    values, kinds = wine
    values[8] = values[7]
    kinds[8] = 1
    table, run = activebias.find_issues(values, kinds, model=lambda: nn.Linear(13, 3), epochs=1)
    assert run.info.kind == "table"
    by_row = table.set_index("row")
    assert set(by_row.index[by_row["duplicate"]]) == set(by_row.index[by_row["conflict"] > 0]) == {7, 8}
    sequences = np.random.default_rng(0).integers(0, 9, (40, 2, 3, 4, 5))
    table, _ = activebias.find_issues(
        sequences,
        [k % 2 for k in range(40)],
        model=lambda: nn.Sequential(Floats(), nn.Flatten(), nn.Linear(120, 2)),
        epochs=1,
    )
    assert sorted(table["instance"]) == sorted(
        f"item={number}" for number in map("item {}".format, range(40))
    )


class Floats(nn.Module):
    def forward(self, inputs):
        return inputs.float()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        (
            np.zeros((9, 2)),
            {"labels": range(9), "model": lambda: nn.Linear(3, 2)},
            "shape \\(2, 2\\), but it",
        ),
        (
            np.zeros((9, 2)),
            {"labels": [0, 1, 2] * 3, "model": lambda: nn.Linear(2, 2)},
            "each of the 3 classes in the labels, shape \\(2, 3\\), but got shape \\(2, 2\\)",
        ),
        (pd.DataFrame({"x": [1, 2]}), {"labels": [0, 1], "model": net}, "for `model`, but got DataFrame"),
        (["a b", "c d"], {"labels": [0, 1], "model": net}, "for `model`, but got list"),
        (Stream(), {"labels": [0, 1]}, "but got a stream"),
        (TensorDataset(torch.zeros(9, 2)), {}, "items of TensorDataset to be pairs"),
        (Subset([(torch.zeros(k), 0) for k in (1, 2)], [0, 1]), {}, "a transform that resizes or pads"),
        ({"train": [], "test": []}, {"labels": [1]}, "give one of its parts"),
    ],
)
def test_data_sets_and_models_that_do_not_fit(data, how, message):
    with pytest.raises(ValueError, match=message):
        activebias.find_issues(data, **how)


def test_a_model_that_is_not_a_function(wine):
    with pytest.raises(TypeError, match="a function that builds a new model"):
        activebias.find_issues(*wine, model=nn.Linear(13, 3))


@pytest.fixture
def hugging_face():
    return pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")


def test_a_table_of_hugging_face(hugging_face, wine):
    values, kinds = wine
    names = ["barolo", "grignolino", "barbera"]
    columns = {f"x{k}": column.tolist() for k, column in enumerate(values.T)}
    features = hugging_face.Features(
        {name: hugging_face.Value("float64") for name in columns}
        | {"kind": hugging_face.ClassLabel(names=names)}
    )
    codes = kinds.tolist()
    codes[3] = -1  # a missing label
    data = hugging_face.Dataset.from_dict(columns | {"kind": codes}, features=features)
    for each in (data, data.with_format("torch")):
        table, run = activebias.find_issues(each, target="kind", epochs=1)
        assert run.info.class_names == ("barbera", "barolo", "grignolino")
        assert sorted(table["row"]) == [k for k in range(178) if k != 3]
        assert table["label"].tolist() == [names[kinds[row]] for row in table["row"]]
    with pytest.raises(ValueError, match="DatasetDict with \\['train'\\]: give one of its parts"):
        activebias.find_issues(hugging_face.DatasetDict(train=data), target="kind")


def test_texts_and_images_of_hugging_face(hugging_face):
    texts = [f"a {'good' if k % 2 else 'bad'} film, seen {k} times" for k in range(60)]
    data = hugging_face.Dataset.from_dict({"text": texts, "label": [k % 2 for k in range(60)]})
    assert activebias.find_issues(data, target="label", epochs=1).run.info.kind == "text"
    digits = load_digits()
    images = [Image.fromarray((each * 15).astype(np.uint8)) for each in digits.images[:100]]
    features = hugging_face.Features(
        {"image": hugging_face.Image(), "label": hugging_face.ClassLabel(num_classes=10)}
    )
    data = hugging_face.Dataset.from_dict(
        {"image": images, "label": digits.target[:100].tolist()}, features=features
    )
    table, run = activebias.find_issues(data, target="label", epochs=1)
    assert run.info.kind == "images"
    assert table["label"].tolist() == [str(digits.target[row]) for row in table["row"]]
    shown = run.inputs().images[run.instances().position.argsort()]
    assert (shown[0] > 0).any()
    with pytest.raises(ValueError, match="one of \\['label'\\], but got 'kind'"):
        activebias.find_issues(data, target="kind")


NUMBERS, KINDS = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
linear = partial(nn.Linear, 2, 2)


def deep():
    return nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))


TEXTS = [f"number {k} of some words {'ab'[k % 2]}" for k in range(60)]


@pytest.mark.parametrize(
    ("data", "labels", "names"),
    [
        (pd.Series(TEXTS, index=range(7, 67)), KINDS, ("0", "1")),
        (np.array(TEXTS), KINDS[:, None], ("0", "1")),
        ([None, *TEXTS[1:]], pd.DataFrame({"kind": KINDS}), ("0", "1")),
        ([{"x": x, "z": z} for x, z in NUMBERS], KINDS == 1, ("False", "True")),
        (pd.DataFrame(NUMBERS, columns=[("a", "b"), ("a", "c")]), [b"no", b"yes"] * 30, ("no", "yes")),
        (pd.DataFrame(NUMBERS).assign(c=NUMBERS[:, 0] * 1j), KINDS.astype(np.float32), ("0", "1")),
    ],
)
def test_other_forms_of_data_and_labels(data, labels, names):
    own = data_in_ram(data, labels, None, None, 0.2, 0)
    assert own.class_names == names
    codes = torch.cat([own.train.targets, own.validation.targets]).numpy()
    assert codes.tolist() == KINDS[np.concatenate([own.train_position, own.validation_position])].tolist()
    imaginary = [note for note in own.notes if "complex" in note]
    assert imaginary == ["Column 'c' holds complex numbers: it is not used."] * ("c" in data)


def test_a_model_that_memorises_is_warned_of():
    chooser = np.random.default_rng(1)
    inputs = chooser.normal(size=(120, 30))
    labels = (inputs[:, 0] > 0) ^ (chooser.random(120) < 0.25)

    def net():
        return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2))

    advice = r"memorised labels.*`judges=5`.*`epochs=\d+, burn_in=\d+`"
    with pytest.warns(activebias.MemorisationWarning, match=advice):
        activebias.find_issues(inputs, labels, model=net, learning_rate=0.003, epochs=20)


def test_the_number_of_threads_stays_as_it_was(wine):
    """Tables train with one thread."""
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        activebias.find_issues(*wine, epochs=1, on_epoch=lambda _: seen.append(torch.get_num_threads()))
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def test_the_target_may_be_a_number():
    frame = pd.DataFrame(NUMBERS).assign(**{"2": KINDS}).rename(columns={"2": 2})
    assert data_in_ram(frame, None, 2, None, 0.2, 0).class_names == ("0", "1")


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        (np.zeros((9, 2)), {}, "exactly one of `labels` and `target`"),
        (np.zeros((9, 2)), {"labels": [1] * 8}, "Expected one label per row, 9 in all, but got 8"),
        (np.zeros((9, 2)), {"target": "y"}, "Expected a table for `target`, .* but got ndarray: give"),
        ("wine.csv", {"target": "y"}, "but got str: give `labels`, or read a file with pandas first"),
        (pd.DataFrame({"x": [1, 2]}), {"target": "y"}, "one of \\['x'\\], but got 'y'"),
        (np.zeros(9), {"labels": [1] * 9}, "ndarray of float64, shape \\(9,\\)"),
        ([[1, 2], [3]], {"labels": [1, 2]}, "rows of one length"),
        (["no.png", "nothing.png"], {"labels": ["a", "b"]}, "2 images cannot be read, such as no.png"),
        (["no.png"], {"labels": ["a"]}, "1 image cannot be read, such as no.png"),
        (np.zeros((4, 8, 8, 5)), {"labels": [0, 1, 0, 1]}, "1 or 3 channels"),
        (np.zeros((4, 8, 8)), {"labels": [0, None, 0, 1]}, "Inputs without a label, such as \\[1\\]"),
        (
            np.full((4, 8, 8), np.nan),
            {"labels": [0, 1, 0, 1]},
            "NaN or infinity in 4 images, such as number 0",
        ),
        (NUMBERS, {"labels": np.eye(2)[KINDS]}, "shape \\(60, 2\\): of one-hot labels give `labels.argmax"),
        (NUMBERS, {"labels": [(0, 1)] * 60}, "Expected one label per row, but got \\(0, 1\\)"),
        (NUMBERS, {"labels": dict(enumerate(KINDS))}, "Expected `labels` to be a list, .* but got dict"),
        (NUMBERS, {"labels": "kind"}, "but got str: give one label per row, or the column .* as `target`"),
        (NUMBERS, {"labels": np.arange(60) / 7}, "holds 60 different fractions: that is a quantity"),
        (pd.DataFrame(NUMBERS, columns=["x", "x"]), {"labels": KINDS}, "several columns named x: rename"),
        (pd.DataFrame({"x": [1, 2], "y": [[1], [2]]}), {"target": "y"}, "one label per row, but got \\[1\\]"),
        (NUMBERS, {"labels": KINDS, "epochs": 0}, "Expected `epochs` to be at least 1, but got 0"),
        (
            NUMBERS,
            {"labels": KINDS, "device": "cuda:99"},
            "is cuda:99, but torch sees no CUDA device",
        ),
        (np.full((60, 2), np.nan), {"labels": KINDS, "model": linear}, "infinity in 60 rows, such as row 0"),
        (
            NUMBERS,
            {"labels": KINDS, "model": deep, "learning_rate": 1e30, "epochs": 1},
            "became NaN or infinite within 1 epoch: lower `learning_rate`, which was 1e\\+30",
        ),
        ({"x": [1, 2]}, {"labels": [1, 2]}, "with \\['x'\\]: give one of its parts, or .*pandas.DataFrame"),
    ],
)
def test_errors_name_the_fix(data, how, message):
    with pytest.raises(ValueError, match=message):
        activebias.find_issues(data, **how)
