"""How many planted wrong labels the audit finds among the rows that train and the rows that validate.

`activebias train` on scikit-learn's digits as a table of 1,797 rows, with some labels made wrong:

    python benchmarks/audit_all_rows.py --wrong 300 --trials 8
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits

from activebias.own import read_table, train_own
from activebias.runs import audit_run


def trial(seed: int, num_wrong: int, folder: Path) -> dict[str, float]:
    """Plant wrong labels, train and audit; count what the first `num_wrong` suspects hold."""
    digits, chooser = load_digits(), np.random.default_rng(seed)
    labels = digits.target.copy()
    wrong = chooser.choice(len(labels), num_wrong, replace=False)
    labels[wrong] = (labels[wrong] + chooser.integers(1, 10, num_wrong)) % 10
    table = pd.DataFrame(digits.data.astype(int), columns=[f"pixel {k}" for k in range(64)])
    table.assign(digit=labels).to_csv(folder / "digits.csv", index=False)
    data = read_table(folder / "digits.csv", target="digit", validation=0.2, seed=seed)
    run = train_own(data, folder / "run", seed=seed)
    instances, found = run.instances(), audit_run(run)
    is_wrong, top = np.isin(instances.position, wrong), np.zeros(len(labels), bool)
    top[found.order[:num_wrong]] = True
    counts: dict[str, float] = {}
    for name, part in (("train", ~instances.in_validation), ("validate", instances.in_validation)):
        counts[f"{name}: rows"] = part.sum()
        counts[f"{name}: wrong"] = (part & is_wrong).sum()
        counts[f"{name}: shown"] = (part & top).sum()
        counts[f"{name}: found"] = (part & top & is_wrong).sum()
        counts[f"{name}: share found %"] = 100 * counts[f"{name}: found"] / counts[f"{name}: wrong"]
        counts[f"{name}: suspected"] = (part & found.suspected).sum()
        counts[f"{name}: suspected and wrong"] = (part & found.suspected & is_wrong).sum()
    return counts


def main() -> None:
    """Print the mean and the standard error of every count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wrong", type=int, default=300)
    parser.add_argument("--trials", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trials = [trial(seed, arguments.wrong, Path(folder)) for seed in range(arguments.trials)]
    for name in trials[0]:
        values = np.array([counts[name] for counts in trials], dtype=float)
        print(f"{name:30} {values.mean():7.1f} ± {values.std(ddof=1) / len(values) ** 0.5:.1f}")


if __name__ == "__main__":
    main()
