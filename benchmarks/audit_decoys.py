"""Can decoys tell how many labels are wrong? Measured on digits as a table, with planted wrong labels.

A decoy is a copy of a row with a random label, trained along. If the audit is sure about a share r of the
decoys and about S of the rows, then S / r estimates the number of wrong labels. This holds if wrong labels
are as easy to see as random ones.

    python benchmarks/audit_decoys.py --trials 5
"""

import argparse

import numpy as np
import torch
from scipy.stats import beta
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import activebias as ab

NUM_DECOYS = 90
SURE = 0.9
LOOK_ALIKE = {0: 2, 1: 7, 2: 0, 3: 8, 4: 9, 5: 6, 6: 5, 7: 1, 8: 3, 9: 4}


def with_wrong_labels(right, kind, share, seed):
    generator = np.random.default_rng(seed)
    number = round(share * len(right))
    labels, wrong = right.copy(), generator.permutation(len(right))[:number]
    labels[wrong] = (labels[wrong] + generator.integers(1, 10, number)) % 10
    if kind == "look-alike":
        labels[wrong] = [LOOK_ALIKE[label] for label in right[wrong]]
    return labels


def find(values, labels, seed):
    """Return score, sureness, part and believed class of every row."""
    table = ab.find_issues(values, labels, seed=seed).table.sort_values("row")
    score = table["score"].to_numpy()
    sure = table["suspected"].to_numpy() & (score >= SURE)
    return score, sure, (table["part"] == "validation").to_numpy(), table["believed"].astype(int).to_numpy()


def estimate(num_sure, num_decoys_found):
    """Return the estimate S / r and its 95 % interval: Clopper and Pearson's for r, the binomial's for S."""
    found, missed = num_decoys_found, NUM_DECOYS - num_decoys_found
    low, high = beta.ppf(0.025, found, missed + 1), beta.ppf(0.975, found + 1, missed) if missed else 1.0
    recall = found / NUM_DECOYS
    chance = 1.96 * np.sqrt(num_sure * (1 - recall)) / recall
    return num_sure / recall, num_sure / high - chance, num_sure / low + chance


def trial(kind, share, seed):
    values, right = load_digits(return_X_y=True)
    labels = with_wrong_labels(right, kind, share, seed)
    wrong, number = labels != right, len(right)
    generator = np.random.default_rng(1000 + seed)
    chosen = generator.permutation(number)[:NUM_DECOYS]
    decoys = (labels[chosen] + generator.integers(1, 10, NUM_DECOYS)) % 10
    plain_score, _, plain_part, plain_believed = find(values, labels, seed)
    score, sure, part, believed = find(
        np.concatenate([values, values[chosen]]), np.concatenate([labels, decoys]), seed
    )
    middle, low, high = estimate(sure[:number].sum(), sure[number:].sum())
    return {
        "wrong": wrong.sum(),
        "estimate": middle,
        "low": low,
        "high": high,
        "covered": low <= wrong.sum() <= high,
        "precision": average_precision_score(wrong, plain_score),
        "precision with": average_precision_score(wrong, score[:number]),
        "error": 100 * (plain_believed != right)[plain_part].mean(),
        "error with": 100 * (believed[:number] != right)[part[:number]].mean(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    trials = parser.parse_args().trials
    torch.set_num_threads(1)
    for kind, share in (("random", 0.03), ("random", 0.1), ("random", 0.2), ("look-alike", 0.1)):
        found = [trial(kind, share, seed) for seed in range(trials)]
        mean = {name: np.mean([each[name] for each in found]) for name in found[0]}
        print(
            f"| {kind} | {mean['wrong']:.0f} | {mean['estimate']:.0f} | {mean['low']:.0f} to "
            f"{mean['high']:.0f} | {sum(each['covered'] for each in found)} of {trials} | "
            f"{mean['precision']:.4f} → {mean['precision with']:.4f} | "
            f"{mean['error']:.1f} → {mean['error with']:.1f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
