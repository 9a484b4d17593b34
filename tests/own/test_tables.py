"""Tables: real ones, their columns, notes about them, and their files."""

import re

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from own_tables import frame_of, read


@pytest.mark.parametrize("loader", [load_iris, load_wine, load_breast_cancer])
def test_real_tables(loader, tmp_path):
    frame = frame_of(loader)
    data = read(frame, tmp_path)
    assert data.kind == "table"
    assert data.class_names == tuple(sorted(set(frame["target"])))
    assert len(data.train) + len(data.validation) == len(frame)
    features = data.train.inputs[0]
    assert features.shape == (len(data.train), frame.shape[1] - 1)
    np.testing.assert_allclose(features.mean(0), 0, atol=0.1)  # a few values are cut at 10
    np.testing.assert_allclose(features.std(0), 1, atol=0.1)
    for k in (0, len(data.train) - 1):  # row, label and position stay together
        row = frame.iloc[data.train_position[k]]
        assert row["target"] == data.class_names[data.train.targets[k]]
        assert data.inputs.rows.iloc[k].tolist() == row.drop("target").tolist()


@pytest.mark.parametrize("name", ["table.parquet", "table.tsv", "semicolon.csv"])
def test_other_forms_of_file_say_the_same(wine, tmp_path, name):
    expected, data = read(wine, tmp_path), read(wine, tmp_path, name)
    assert (data.train.inputs[0] == expected.train.inputs[0]).all()
    assert data.class_names == expected.class_names


def test_categories_and_text(wine, tmp_path):
    wine["colour"] = ["red", "white", "rosé"] * 59 + ["red"]
    wine["number"] = ["10", "20", "30"] * 59 + ["10"]
    wine["note"] = [f"tastes of {k % 61} apples and <b>{word}</b>" for k, word in enumerate(wine["target"])]
    data = read(wine, tmp_path)
    assert data.kind == "text"
    features, words, share = data.train.inputs
    assert features.shape[1] == 13 + 3 + 1
    assert words.shape == share.shape
    np.testing.assert_allclose(share.sum(1), 1, atol=1e-5)
    assert ((words == 0) == (share == 0)).all()
    assert data.inputs.rows.columns[0] == "note"
    assert data.inputs.rows["note"][0].endswith("</b>")
    assert data.model["arguments"]["num_words"] > 0


def test_missing_values_are_named_and_filled(wine, tmp_path):
    wine["colour"] = ["red", "white"] * 89
    wine.loc[:9, "alcohol"] = np.nan
    wine.loc[3:5, "colour"] = None
    wine.loc[7, "ash"] = np.inf
    wine.loc[[0, 20], "target"] = None
    wine["empty"] = np.nan
    data = read(wine, tmp_path)
    assert [each["what"].split(" of ")[0] for each in data.skipped] == ["row 0", "row 20"]
    assert all(each["why"] == "it has no label" for each in data.skipped)
    notes = " ".join(data.notes)
    assert "Missing values in alcohol (9), ash (1), colour (3)" in notes
    assert "Column 'empty' has no values: it is not used." in notes
    assert data.train.inputs[0].isfinite().all()
    assert {0, 20}.isdisjoint(data.train_position.tolist())


@pytest.mark.parametrize("name", ["table.csv", "table.tsv", "semicolon.csv", "table.parquet"])
def test_words_for_missing_are_classes_in_the_target_and_missing_elsewhere(wine, tmp_path, name):
    words = ["None", "NA", "null", "N/A"]
    wine["target"] = [([*words, "Mild", "Severe"])[k % 6] for k in range(len(wine))]
    wine["colour"] = ["red", "white"] * 89
    wine.loc[[3, 4], "colour"] = "NA" if name != "table.parquet" else None
    wine.loc[[8, 9], "target"] = ["", "  "]
    wine.loc[10, "target"] = None
    if name != "table.parquet":  # which has no other way to say it
        wine.loc[[11, 12], "target"] = ["nan", "NaN"]
    data = read(wine, tmp_path, name)
    assert data.class_names == tuple(sorted([*words, "Mild", "Severe"]))
    skipped = ["row 8", "row 9", "row 10", *([] if name == "table.parquet" else ["row 11", "row 12"])]
    assert [each["what"].split(" of ")[0] for each in data.skipped] == skipped
    notes = " ".join(data.notes)
    assert "Missing values in colour (2)" in notes
    assert "Column 'target' has the label " in notes
    assert re.search(r"'null' \(\d+\), 'N/A' \(\d+\)", notes)
    assert "that is a class. Leave cells empty to skip their rows." in notes


def test_a_word_for_missing_beside_numbers_is_a_missing_label(wine, tmp_path):
    wine["grade"] = [str(k % 3) for k in range(len(wine))]
    wine.loc[::4, "grade"] = "NA"
    validation = tmp_path / "other.csv"
    wine[:40].assign(grade=1).to_csv(validation, index=False)
    data = read(wine, tmp_path, target="grade", validation=validation)
    assert data.class_names == ("0", "1", "2")
    assert [each["why"] for each in data.skipped] == ["it has no label"] * len(wine[::4])


def test_a_word_for_missing_does_not_make_a_quantity_a_class(wine, tmp_path):
    wine["length"] = [f"{k % 40 + 0.5}" for k in range(len(wine))]
    wine.loc[5, "length"] = "NA"
    with pytest.raises(ValueError, match="40 different fractions: that is a quantity"):
        read(wine, tmp_path, target="length")


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_codes_that_are_text_are_classes(wine, tmp_path, name):
    wine["code"] = [f"{1 + k % 5}.{1 + k // 5 % 5}" for k in range(len(wine))]
    wine.loc[::20, "code"] = "other"
    assert len(read(wine, tmp_path, name, target="code").class_names) == 26


@pytest.mark.parametrize("values", [[True, False], [b"x", b"y"], pd.Categorical(["u", "v"])], ids=str)
def test_labels_of_any_type(wine, tmp_path, values):
    wine["flag"] = [values[k % 2] for k in range(len(wine))]
    assert len(read(wine, tmp_path, "table.parquet", target="flag").class_names) == 2


def test_mixed_types_are_named(wine, tmp_path):
    wine = wine.astype({"alcohol": object, "ash": object})
    wine.loc[5, "alcohol"] = "unknown"
    wine.loc[::2, "ash"] = "low"
    notes = " ".join(read(wine, tmp_path).notes)
    assert (
        "Column 'alcohol' mixes numbers (99 %) and words such as 'unknown': the words count as missing."
        in notes
    )
    assert "Column 'ash' mixes numbers (50 %) and words such as 'low': it is used as words." in notes


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (
            lambda k: f"0,{k % 7}" if k % 50 else "0.5",
            "a decimal comma such as '0,1'; it is used as categories: write them with a",
        ),
        (
            lambda k: f"1.{k:03d},5" if k % 50 else "about 3",
            "a decimal comma such as '1.001,5'; it is not used, as an identifier: write",
        ),
        (
            lambda k: f"{k % 4 + 1},234",
            "a thousands comma such as '1,234'; it is used as categories: write them",
        ),
        (
            lambda k: f"{k % 100 / 100:.2f}%",
            "a per cent sign such as '0.00%'; it is used as categories: write",
        ),
        (
            lambda k: f"{k / 100:.2f} %",
            "a per cent sign such as '0.00 %'; it is used as text: write them without",
        ),
    ],
)
def test_numbers_that_no_parser_reads_are_named(wine, tmp_path, write, said):
    wine["x"] = [write(k) for k in range(len(wine))]
    data = read(wine, tmp_path, "semicolon.csv")
    (note,) = [note for note in data.notes if "'x'" in note]
    assert note.startswith(f"Column 'x' looks like numbers with {said}")


@pytest.mark.parametrize(
    ("write", "example"),
    [
        (lambda k: (f"0,{k % 7}", k % 7 / 10), "0,0"),
        (lambda k: (f"1.{k:03d},{k * k % 10}", 1000 + k + k * k % 10 / 10), "1.000,0"),
        (lambda k: (str(k % 5), k % 5) if k % 3 else (f"-{k % 9},25", -(k % 9) - 0.25), "-0,25"),
        (lambda k: (f"{k % 4 + 1},234", k % 4 + 1.234) if k else ("0,5", 0.5), "0,5"),
    ],
)
def test_a_decimal_comma_without_doubt_is_read(wine, tmp_path, write, example):
    wine["x"], numbers = zip(*map(write, range(len(wine))), strict=True)
    data = read(wine, tmp_path, "semicolon.csv")
    assert f"Column 'x' holds numbers with a decimal comma such as {example!r}" in " ".join(data.notes)
    found = data.train.inputs[0][:, -1].double().numpy()
    assert np.corrcoef(found, np.array(numbers)[data.train_position])[0, 1] == pytest.approx(1, abs=1e-6)


def test_a_few_numbers_that_no_parser_reads_are_missing_and_named(wine, tmp_path):
    wine["x"] = [f"{k * k}" if k % 20 else "1,234" for k in range(len(wine))]
    (note,) = [note for note in read(wine, tmp_path).notes if "'x'" in note]
    assert "words such as '1,234': the words count as missing. They look like numbers with a thous" in note


def test_words_with_commas_and_underscores_are_words(wine, tmp_path):
    wine["codes"] = [f"A{k % 3},{k % 4}" for k in range(len(wine))]
    wine["under"] = ["1", "1_0"] * 89  # Python takes 1_0 for a number, pandas does not
    data = read(wine, tmp_path)
    (note,) = [note for note in data.notes if "comma" in note or "mixes" in note]
    assert note == "Column 'under' mixes numbers (50 %) and words such as '1_0': it is used as words."


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_too_large_to_compute_with_are_missing_and_named(wine, tmp_path, sign):
    wine.loc[[3, 4], "alcohol"] = sign * 1.7e308
    wine.loc[7, "ash"] = 1e150
    wine["vast"] = np.linspace(1e307, 1e308, len(wine))
    data = read(wine, tmp_path)  # any warning is an error here
    notes = " ".join(data.notes)
    assert f"Column 'alcohol' has values beyond 1e+150 such as {sign * 1.7e308:g} (2 in total): they" in notes
    assert "Missing values in alcohol (2):" in notes
    assert "Column 'ash'" not in notes
    assert (
        "Column 'vast' has values beyond 1e+150 such as 1e+307 (178 in total): they count as missing. Column"
        in notes
    )
    assert data.train.inputs[0].isfinite().all()
    assert data.train.inputs[0].std(0)[0] == pytest.approx(1, abs=0.1), (
        "the rest of the column is not drowned"
    )


def test_columns_with_nothing_to_learn_are_named(wine, tmp_path):
    wine.insert(0, "Unnamed: 0", range(len(wine)))
    wine["same"] = "x"
    wine["constant"] = 5
    wine["key"] = [f"w{k}" for k in range(len(wine))]
    wine["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(wine)) ** 2, unit="D")
    data = read(wine, tmp_path, "table.parquet")
    notes = " ".join(data.notes)
    assert "'Unnamed: 0' only counts the rows" in notes
    assert "'same' has only one value" in notes
    assert "'constant' has only one value" in notes
    assert "'key' names every row" in notes
    assert data.train.inputs[0].shape[1] == 14  # the date is a number


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (lambda k: k % 30 - 2, "has 30 whole numbers from -2 to 27, and each is a class. If they count"),
        (lambda k: None if k == 7 else k % 30, "has 30 whole numbers from 0 to 29"),
        (lambda k: f"2024-01-{k % 4 + 1:02d}", "holds dates such as '2024-01-01': each of the 4 dates is a"),
        (lambda k: pd.Timestamp(2024, 1, k % 4 + 1), "holds dates such as '2024-01-01"),
        (lambda k: ["a", "b", "a;b"][k % 3], "has several labels in one cell such as 'a;b' (59 rows): each"),
        (lambda k: ["a|b", "b|c", "c|a"][k % 3], "has several labels in one cell such as 'a|b' (178 rows)"),
        (lambda k: ["Cat", "cat", "dog", "do  g"][k % 4], "only: 'Cat' (45) and 'cat' (45). They stay apart"),
        (lambda k: k % 20, None),
        (lambda k: ["Smith, J.", "Doe, A.", "x;y", "don't; know"][k % 4], None),
        (lambda k: f"v1.{k % 3}.2", None),
    ],
)
@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_targets_that_may_be_no_classes_are_named(wine, tmp_path, label, said, name):
    wine["kind"] = [label(k) for k in range(len(wine))]
    notes = [note for note in read(wine, tmp_path, name, target="kind").notes if "'kind'" in note]
    assert len(notes) == (said is not None)
    assert (said or "") in "".join(notes)


@pytest.mark.parametrize("write", ["%Y-%m-%d", "%d/%m/%Y", "%Y-%m-%d %H:%M", None])
def test_a_target_of_many_dates_is_refused(wine, tmp_path, write):
    days = [pd.Timestamp("2024-01-01") + pd.Timedelta(days=k % 60) for k in range(len(wine))]
    wine["day"] = days if write is None else [day.strftime(write) for day in days]
    with pytest.raises(
        ValueError, match=r"'day' holds 60 different dates such as '.*': dates are no classes"
    ):
        read(wine, tmp_path, "table.parquet", target="day")


def test_dates_as_a_column_are_numbers(wine, tmp_path):
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(wine)) ** 2, unit="h")
    parquet, csv = tmp_path / "table.parquet", tmp_path / "table.csv"  # validated on all rows, too
    expected = read(wine.assign(when=days), tmp_path, parquet.name, validation=parquet).train.inputs[0]
    assert expected.shape[1] == 14
    for write in ("%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%SZ"):
        wine["when"] = days.strftime(write)
        data = read(wine, tmp_path, validation=csv)
        note = "Column 'when' holds dates: it is used as a number, the time since the earliest."
        assert note in data.notes
        np.testing.assert_allclose(data.train.inputs[0], expected, rtol=1e-5)
        assert data.inputs.rows["when"][0] == wine["when"][data.train_position[0]]
    wine.loc[[3, 4], "when"] = ["soon", None]
    notes = " ".join(read(wine, tmp_path).notes)
    assert "time since the earliest. Cells such as 'soon' count as missing. " in notes
    assert "Missing values in when (2)" in notes


@pytest.mark.parametrize(
    ("number", "used"), [(20, "used as categories"), (178, "not used, as an identifier")]
)
def test_dates_in_an_uncertain_order_are_named(wine, tmp_path, number, used):
    days = np.arange(len(wine)) % number  # none after the twelfth of a month, so that it could be a month
    wine["when"] = [f"{k % 12 + 1:02d}/{k // 12 % 12 + 1:02d}/{2020 + k // 144}" for k in days]
    (note,) = [note for note in read(wine, tmp_path).notes if "'when'" in note]
    assert note == (
        "Column 'when' looks like dates such as '01/01/2020', whose order of day and month is not certain; "
        f"it is {used}: write dates as 2024-12-31."
    )


def test_numbers_and_codes_are_no_dates(wine, tmp_path):
    wine["code"] = [f"20{k % 40:02d}-{k % 12}" for k in range(len(wine))]
    wine["version"] = [f"{k % 3}.{k % 4}.1" for k in range(len(wine))]
    assert "date" not in " ".join(read(wine, tmp_path).notes)


def test_duplicates_are_named_and_stay_on_one_side(wine, tmp_path):
    copies = pd.concat([wine, wine[:60]], ignore_index=True)
    copies.loc[180, "target"] = "class_2"
    data = read(copies, tmp_path, validation=0.5)
    assert "Duplicate rows: 60. Copies of the same input are never in both parts." in data.notes
    train, held_out = (
        {tuple(row) for row in part.inputs[0].tolist()} for part in (data.train, data.validation)
    )
    assert not train & held_out


def test_duplicates_are_found_where_every_row_has_a_number(wine, tmp_path):
    """A number of the row or an identifier must hide no copies; a row without a label leaves a gap in it."""
    copies = pd.concat([wine, wine[:60]], ignore_index=True)
    copies.insert(0, "number", range(len(copies)))
    copies.insert(1, "key", [f"w{k}" for k in range(len(copies))])
    copies.loc[7, "target"] = None
    notes = " ".join(read(copies, tmp_path).notes)
    assert "'number' only counts the rows" in notes
    assert "Duplicate rows: 59. Copies" in notes


def test_numbers_as_labels(wine, tmp_path):
    wine["grade"] = [float(k % 12) for k in range(len(wine))]
    wine.loc[1, "grade"] = None
    data = read(wine, tmp_path, target="grade")
    assert data.class_names == tuple(str(k) for k in range(12))


def test_a_file_of_its_own_to_validate(wine, tmp_path):
    other = tmp_path / "other.csv"
    wine[::5].to_csv(other, index=False)
    data = read(wine, tmp_path, validation=other)
    assert (len(data.train), len(data.validation)) == (178, 36)
    assert data.validation_position.tolist() == list(range(36))
    wine[::5].drop(columns="ash").to_csv(other, index=False)
    with pytest.raises(ValueError, match=r"other\.csv lacks columns that .* has: ash"):
        read(wine, tmp_path, validation=other)
    wine[::5].assign(target="beer").to_csv(other, index=False)
    with pytest.raises(ValueError, match=r"has classes that .* does not have: beer"):
        read(wine, tmp_path, validation=other)


def test_a_class_with_one_example_is_trained_on_and_named(wine, tmp_path):
    wine.loc[0, "target"] = "port"
    data = read(wine, tmp_path)
    assert data.class_names.index("port") in data.train.targets
    assert "Classes with fewer than five examples: port (1)." in data.notes
