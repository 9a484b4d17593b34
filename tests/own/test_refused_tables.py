"""Tables that are refused: an error names each mistake."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from activebias.own.tables import read_table
from own_tables import read


@pytest.mark.parametrize(
    ("change", "target", "message"),
    [
        (
            lambda frame: frame,
            "Target",
            r"no column 'Target'; its columns are alcohol, .*Did you mean 'target'\?",
        ),
        (
            lambda frame: frame,
            "alcohol",
            "holds 126 different|126 different values in 178 rows: that is a quantity",
        ),
        (
            lambda frame: frame.assign(target="red"),
            "target",
            "at least two classes to learn from, but has only 'red'",
        ),
        (
            lambda frame: frame.assign(target=None),
            "target",
            "at least two classes to learn from, but has none",
        ),
        (lambda frame: frame[["target"]], "target", "has no column to learn 'target' from"),
        (lambda frame: frame[["target"]].assign(a=1), "target", "'a' has only one value"),
        (lambda frame: frame[:0], "target", "has no rows"),
        (lambda frame: frame.iloc[[0, 177]], "target", "2 different examples are too few"),
        (lambda frame: frame.iloc[[*range(12), 177]], "target", "13 diff.* on 2 classes: .* only one has"),
        (lambda frame: "", "target", "cannot be read as a table"),
        (lambda frame: 'a,b\n"1,2\n3', "target", "cannot be read as a table"),
        (lambda frame: "a,b,c\n1,2,x\n1,2,3,4,5,y\n", "c", "cannot be read as a table"),
    ],
)
def test_what_is_refused(wine, tmp_path, change, target, message):
    with pytest.raises(ValueError, match=message):
        read(change(wine), tmp_path, target=target)


def test_files_that_are_no_tables(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        read_table(tmp_path / "nowhere.csv", target="a", validation=0.2, seed=0)
    (tmp_path / "latin.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match="is not UTF-8"):
        read_table(tmp_path / "latin.csv", target="b", validation=0.2, seed=0)
    (tmp_path / "false.parquet").write_text("a,b\n")
    with pytest.raises(ValueError, match="cannot be read as a table"):
        read_table(tmp_path / "false.parquet", target="b", validation=0.2, seed=0)
