"""cleanlab's scores and ours on the same out-of-sample probabilities; `find_issues` with 1, 3 and 5 judges.

    python benchmarks/audit_bridge.py --data digits --trials 5

A tenth of the labels is wrong. `digits` and `look-alike` are scikit-learn's digits as a table: wrong labels
are drawn at random, or are digits that look alike. `questions` are the first 1,000 of TREC (in
$ACTIVEBIAS_DATA/trec) with labels drawn at random. Needs cleanlab.
"""

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from audit_decoys import LOOK_ALIKE
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import activebias as ab
from activebias.own import cross_fit

DATA = ("digits", "look-alike", "questions")
SURE = 0.9


def load(name):
    """Return inputs and right labels."""
    if name != "questions":
        return load_digits(return_X_y=True)
    path = Path(os.environ["ACTIVEBIAS_DATA"]) / "trec" / "train_1000.label"
    lines = path.read_text(encoding="latin-1").splitlines()
    kinds = [line.split(":")[0] for line in lines]
    return [line.split(" ", 1)[1] for line in lines], np.unique(kinds, return_inverse=True)[1]


def with_wrong_labels(right, name, seed):
    generator, number, num_classes = np.random.default_rng(seed), round(len(right) / 10), right.max() + 1
    labels, wrong = right.copy(), generator.permutation(len(right))[:number]
    labels[wrong] = (labels[wrong] + generator.integers(1, num_classes, number)) % num_classes
    if name == "look-alike":
        labels[wrong] = [LOOK_ALIKE[label] for label in right[wrong]]
    return labels


def judged(inputs, labels, seed):
    """Yield (name, score, suspected, CPU seconds, instances trained on per epoch) of every judge."""
    number, started = len(labels), time.process_time()
    found = cross_fit(inputs, labels, seed=seed)
    seconds = time.process_time() - started
    pred_probs = found.pred_probs / found.pred_probs.sum(1, keepdims=True)
    filtered = find_label_issues(labels, pred_probs)
    for method in ("self_confidence", "normalized_margin"):
        score = 1 - get_label_quality_scores(labels, pred_probs, method=method)
        yield f"five folds, cleanlab {method}", score, filtered, seconds, 4 * number
    ours = ab.audit(labels=labels, pred_probs=pred_probs)
    yield "five folds, ab.audit(pred_probs=…)", ours.score, ours.suspected, seconds, 4 * number
    for judges in (1, 3, 5):
        started = time.process_time()
        table, run = ab.find_issues(inputs, labels, judges=judges, seed=seed)
        seconds, table = time.process_time() - started, table.sort_values("row")
        # The further judges train on the validation part too, but not on a part of the training instances.
        each = run.info.num_audited - run.info.num_instances / max(judges - 1, 1)
        trained = run.info.num_instances + (judges - 1) * each
        name = f"find_issues, judges={judges}"
        yield name, table["score"].to_numpy(), table["suspected"].to_numpy(), seconds, trained


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=DATA, default="digits")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    options = parser.parse_args()
    torch.set_num_threads(1)
    inputs, right = load(options.data)
    numbers = defaultdict(list)
    for seed in range(options.seed, options.seed + options.trials):
        labels = with_wrong_labels(right, options.data, seed)
        wrong = labels != right
        for name, score, suspected, seconds, trained in judged(inputs, labels, seed):
            sure = suspected & (score >= SURE)
            counts = [np.sum(each) for each in (suspected, suspected & wrong, sure, sure & wrong)]
            row = (average_precision_score(wrong, score), *counts, seconds, trained)
            print(seed, name, *np.round(row, 4), flush=True)
            numbers[name].append(row)
    names = ("judge", "average precision", "suspected", "wrong", "sure", "wrong", "CPU seconds", "trained")
    print(f"| {' | '.join(names)} |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, rows in numbers.items():
        mean, error = np.mean(rows, 0), np.std(rows, 0, ddof=1) / np.sqrt(options.trials)
        counts = [f"{m:.1f} ± {e:.1f}" for m, e in zip(mean[1:5], error[1:5], strict=True)]
        cells = [f"{mean[0]:.4f} ± {error[0]:.4f}", *counts, f"{mean[5]:.1f}", f"{30 * mean[6]:,.0f}"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
