"""The audit of a table with classes of unequal size: suspects by score, and in turn by label.

A table made by scikit-learn, 6,000 rows with classes of 87, 8 and 5 %, 240 labels made wrong:

    python benchmarks/audit_imbalanced.py --trials 5
"""

import argparse
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import make_classification

from activebias.own import read_table, train_own
from activebias.runs import audit_run
from activebias.runs.suspects import rows

NUM_ROWS, NUM_WRONG, SHARES = 6000, 240, (0.87, 0.08, 0.05)


def trial(seed: int, folder: Path) -> dict[str, int]:
    """Plant wrong labels, train and audit; count what the first 240 suspects hold."""
    inputs, classes = make_classification(
        NUM_ROWS, n_features=12, n_informative=6, n_classes=3, weights=list(SHARES), random_state=seed
    )
    chooser, labels = np.random.default_rng(seed), classes.copy()
    wrong = chooser.choice(NUM_ROWS, NUM_WRONG, replace=False)
    labels[wrong] = (labels[wrong] + chooser.integers(1, 3, NUM_WRONG)) % 3
    table = pd.DataFrame(inputs, columns=[f"column {k}" for k in range(inputs.shape[1])])
    table.assign(kind=[f"kind {label}" for label in labels]).to_csv(folder / "table.csv", index=False)
    data = read_table(folder / "table.csv", target="kind", validation=0.2, seed=seed)
    run = train_own(data, folder / f"run-{seed}", seed=seed)
    found = audit_run(run)
    is_wrong = np.isin(np.arange(NUM_ROWS), wrong)
    counts = {"wrong, labelled as the large class": int((is_wrong & (labels == 0)).sum())}
    for name, by_class in (("by score", False), ("by class", True)):
        shown = [row["position"] for row in islice(rows(run, found, by_class=by_class), NUM_WRONG)]
        counts[f"{name}: wrong among the first {NUM_WRONG}"] = int(is_wrong[shown].sum())
        counts[f"{name}: of these labelled as the large class"] = int((is_wrong & (labels == 0))[shown].sum())
    return counts


def main() -> None:
    """Print the mean and the standard error of every count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trials = [trial(seed, Path(folder)) for seed in range(arguments.trials)]
    for name in trials[0]:
        values = np.array([counts[name] for counts in trials], dtype=float)
        print(f"{name:45} {values.mean():7.1f} ± {values.std(ddof=1) / len(values) ** 0.5:.1f}")


if __name__ == "__main__":
    main()
