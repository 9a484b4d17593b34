"""Rows and headers of a table that do not fit: refused, or read as they are meant."""

import gzip

import pytest

pytest.importorskip("pandas")

from activebias.own.tables import read_table
from own_tables import read


@pytest.mark.parametrize(
    ("text", "target", "line", "num_fields", "num_names"),
    [
        ("y,x,t\n" + "a,c,0.1,0.2\nb,d,0.3,0.4\n" * 20, "y", 2, 4, 3),
        ("y,x,t\n\n" + "a,c,0.1,0.2\nb,d,0.3,0.4\n" * 20, "y", 3, 4, 3),
        ('y,"x\nunit",t\n' + "a,c,0.1,0.2\nb,d,0.3,0.4\n" * 20, "y", 3, 4, 3),
        ("y,x\n" + "a,c,0.1,0.2\nb,d,0.3,0.4\n" * 20, "y", 2, 4, 2),
        ("y,x,t\na,0.1,c,\n" + "b,0.2,d,5\n" * 20, "y", 2, 4, 3),  # not empty in every row
        ("x,severity\n" + "a,1,Mild\nb,2,None\n" * 20, "severity", 2, 3, 2),  # R's names of rows, perhaps
        ("y,x,t\n" + "a,0.1,c,NA\nb,0.2,d,NA\n" * 20, "y", 2, 4, 3),
        ("y,x,t\na,0.1,c,d\n" + "b,0.2,d\n" * 20, "y", 2, 4, 3),  # the first row only
        # The first field counts the rows: pandas returns its usual index.
        ("y,x,t\n" + "".join(f"{k},{'ab'[k % 2]},{k % 5},{k % 7}\n" for k in range(40)), "y", 2, 4, 3),
    ],
)
def test_rows_longer_than_the_header_are_refused(tmp_path, text, target, line, num_fields, num_names):
    message = rf"table\.csv: line {line} has {num_fields} fields, but the header has {num_names}\. Name every"
    with pytest.raises(ValueError, match=message):
        read(text, tmp_path, target=target)


@pytest.mark.parametrize(("name", "end"), [("table.csv", ","), ("table.csv", ",,"), ("table.tsv", "\t")])
def test_a_separator_at_the_end_of_every_row_is_ignored(wine, tmp_path, name, end):
    wine["target"] = ["None", "Mild", "NA"] * 59 + ["Mild"]
    wine.loc[[5, 6], "ash"] = None
    expected = read(wine, tmp_path, name)
    header, *lines = (tmp_path / name).read_text().splitlines()
    data = read("\n".join([header, *(line + end for line in lines)]), tmp_path, name)
    assert data.class_names == expected.class_names == ("Mild", "NA", "None")
    assert (data.train.inputs[0] == expected.train.inputs[0]).all()
    assert (data.train.targets == expected.train.targets).all()
    assert data.inputs.rows.equals(expected.inputs.rows)
    ending = f"The rows of {tmp_path / name} end with a separator that the header lacks: it is ignored."
    assert data.notes == (ending, *expected.notes)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("x,y,y", "2 columns named 'y': column 2 holds the labels; left out: 3."),
        ("x,y, y", "2 columns named 'y': column 2 holds the labels; left out: 3."),
        ("x,y,z,y,y", "3 columns named 'y': column 2 holds the labels; left out: 4, 5."),
        ("x,y,x,y", "2 columns named 'y': column 2 holds the labels; left out: 4."),
        (" y,x,y", "2 columns named 'y': column 3 holds the labels; left out: 1."),
        ("x,y,y.1", None),
    ],
)
@pytest.mark.parametrize("end", ["", ","])
def test_a_second_target_is_named_and_is_no_feature(tmp_path, names, said, end):
    kinds = [name.strip() for name in names.split(",")]
    values = {"x": lambda k: str(k * k), "z": lambda k: str(k % 7)}
    rows = [",".join(values.get(kind, lambda k: "ab"[k % 2])(k) for kind in kinds) for k in range(40)]
    data = read("\n".join([names, *(row + end for row in rows)]), tmp_path, target="y")
    assert [
        note.removeprefix(f"{tmp_path / 'table.csv'} has ") for note in data.notes if "columns named" in note
    ] == ([] if said is None else [said])
    assert data.class_names == ("a", "b")
    expected = {"x,y,y": 1, "x,y, y": 1, " y,x,y": 1, "x,y,z,y,y": 2, "x,y,x,y": 2, "x,y,y.1": 3}
    assert data.train.inputs[0].shape[1] == expected[names]  # the words of y.1 are two columns


def test_a_separator_at_the_end_of_rows_that_count(tmp_path):
    """pandas takes such a counter for its index, and every column would have the values of the next."""
    rows = [f"{k},{'ab'[k % 2]},{['red', 'blue', 'green'][k % 3]},{k * k % 11}," for k in range(40)]
    data = read("\n".join(["id,y,colour,x", *rows]), tmp_path, target="y")
    assert data.class_names == ("a", "b")
    assert list(data.inputs.rows.columns) == ["colour", "x"]


@pytest.mark.parametrize("top", ["", "\n\n"])
def test_the_separator_is_that_of_the_header_outside_of_quotes(tmp_path, top):
    rows = [f"{'ab'[k % 2]};{k * k % 11}" for k in range(40)]
    data = read("\n".join([top + 'y;"a, b, or c"', *rows]), tmp_path, target="y")
    assert list(data.inputs.rows.columns) == ["a, b, or c"]


def test_a_long_text_in_the_first_row(tmp_path):
    rows = [f"{'ab'[k % 2]},{'word ' * (50_000 if k == 0 else 3)}{k}" for k in range(60)]
    assert len(read("\n".join(["y,text", *rows]), tmp_path, target="y").train) == 48


def test_packed_tables(tmp_path):
    text = "\n".join(["y;x", *(f"{'ab'[k % 2]};{k * k % 11}" for k in range(40))])
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read_table(tmp_path / "table.csv.gz", target="y", validation=0.2, seed=0).class_names == ("a", "b")
    (tmp_path / "table.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"table\.zip is packed: unpack it"):
        read_table(tmp_path / "table.zip", target="y", validation=0.2, seed=0)


def test_a_share_that_leaves_too_few_rows_to_train_on(wine, tmp_path):
    with pytest.raises(ValueError, match=r"got 0\.99 of 178 different examples: give a smaller share"):
        read(wine, tmp_path, validation=0.99)


def test_columns_that_are_not_used_are_named_where_too_little_is_left(tmp_path):
    text = "\n".join(["x;k;y", *(f"{k}%;{k % 2};{'ab'[k % 2]}" for k in range(40))])
    with pytest.raises(ValueError, match=r"classes need two or more each, but none has\. Column 'x' looks"):
        read(text, tmp_path, target="y")
