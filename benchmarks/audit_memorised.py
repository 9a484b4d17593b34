"""The audit of a run that memorised its table, and of the shorter run that `activebias train` then names.

TREC's 5,452 questions as a table with one text column and 5 % wrong labels:

    python benchmarks/audit_memorised.py --data $ACTIVEBIAS_DATA --trials 3
"""

import argparse
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import average_precision_score

from activebias.own import read_table, train_own
from activebias.runs import audit_run

WRONG = 0.05


def trial(seed: int, source: Path, folder: Path) -> tuple[float, float, int]:
    """Return the average precision after 30 epochs, after the named number, and that number."""
    lines = source.read_text(encoding="latin-1").splitlines()
    kinds = np.array([line.partition(":")[0] for line in lines])
    chooser, names = np.random.default_rng(seed), np.unique(kinds)
    is_wrong = chooser.random(len(kinds)) < WRONG
    shift = chooser.integers(1, len(names), len(kinds))
    labels = names[(np.searchsorted(names, kinds) + np.where(is_wrong, shift, 0)) % len(names)]
    questions = [line.partition(" ")[2] for line in lines]
    pd.DataFrame({"question": questions, "kind": labels}).to_csv(folder / "questions.csv", index=False)
    data = read_table(folder / "questions.csv", target="kind", validation=0.2, seed=seed)

    def train(epochs: int) -> tuple[float, tuple[str, ...]]:
        run = train_own(data, folder / f"run-{seed}-{epochs}", epochs=epochs, seed=seed)
        wrong = is_wrong[run.instances().position]
        return float(average_precision_score(wrong, audit_run(run).score)), run.info.warnings

    long, warnings = train(30)
    named = re.search(r"--epochs (\d+)", " ".join(warnings))
    if named is None:
        raise SystemExit(f"Seed {seed}: no warning named a shorter training: {warnings}")
    return long, train(int(named[1]))[0], int(named[1])


def main() -> None:
    """Print the average precisions of every trial."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("ACTIVEBIAS_DATA"))
    parser.add_argument("--trials", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.trials):
            source = Path(arguments.data) / "trec" / "train_5500.label"
            long, short, epochs = trial(seed, source, Path(folder))
            print(f"seed {seed}: average precision {long:.3f} after 30 epochs, {short:.3f} after {epochs}")


if __name__ == "__main__":
    main()
