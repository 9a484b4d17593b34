"""cleanlab's scores and ours on the same out-of-sample probabilities, and `find_issues` beside them.

`python benchmarks/audit_bridge.py --trials 8`: digits as a table, 10 % of the labels wrong. Needs cleanlab.
"""

import argparse
from collections import defaultdict

import numpy as np
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import activebias as ab
from activebias.own import cross_fit

NUM_WRONG = 180


def with_wrong_labels(right, seed):
    generator = np.random.default_rng(seed)
    labels, wrong = right.copy(), generator.permutation(len(right))[:NUM_WRONG]
    labels[wrong] = (labels[wrong] + generator.integers(1, 10, NUM_WRONG)) % 10
    return labels


def measure(seed):
    """Yield (name, average precision, suspected, of these wrong) of every judge in one trial."""
    values, right = load_digits(return_X_y=True)
    labels = with_wrong_labels(right, seed)
    wrong = labels != right
    found = cross_fit(values, labels, seed=seed)
    pred_probs = found.pred_probs / found.pred_probs.sum(1, keepdims=True)
    filtered = find_label_issues(labels, pred_probs)
    for method in ("self_confidence", "normalized_margin"):
        score = 1 - get_label_quality_scores(labels, pred_probs, method=method)
        yield f"five folds, cleanlab {method}", average_precision_score(wrong, score), filtered
    ours = ab.audit(labels=labels, pred_probs=pred_probs)
    yield "five folds, ab.audit(pred_probs=…)", average_precision_score(wrong, ours.score), ours.suspected
    table = ab.find_issues(values, labels, seed=seed).table.sort_values("row")
    yield "find_issues, one training", average_precision_score(wrong, table["score"]), table["suspected"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=8)
    trials = parser.parse_args().trials
    torch.set_num_threads(1)
    right = load_digits().target
    numbers = defaultdict(list)
    for seed in range(trials):
        wrong = with_wrong_labels(right, seed) != right
        for name, precision, suspected in measure(seed):
            numbers[name].append((precision, np.sum(suspected), np.sum(suspected & wrong)))
    for name, rows in numbers.items():
        mean, error = np.mean(rows, 0), np.std(rows, 0, ddof=1) / np.sqrt(trials)
        cells = [
            f"{mean[0]:.4f} ± {error[0]:.4f}",
            *(f"{m:.1f} ± {e:.1f}" for m, e in zip(mean[1:], error[1:], strict=True)),
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
