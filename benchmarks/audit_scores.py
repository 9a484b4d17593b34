"""How the score of the audit was chosen: candidates on digits, at several noise levels, lengths and speeds.

    python benchmarks/audit_scores.py [--trials 5] [--out out/audit-scores.json]
    python benchmarks/audit_scores.py --methods     # does the method of training matter to the audit?

Digits only: the other data are for reporting. The seeds are not those of `benchmarks/audit.py`.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np
import torch
from audit_observed import find_recipe, load_data, observe_all, prepare
from sklearn.metrics import average_precision_score

from activebias.lab import Noise, Optimiser
from activebias.runs.auditing import LEAST_PROBABILITY
from activebias.statistics import estimate

SHARES = (0.05, 0.1, 0.2, 0.4)
# The recipe; a short and a long one; and one that is still learning in the end.
FAST, SLOW = Optimiser("sgd", 0.1, momentum=0.9), Optimiser("sgd", 0.02)
TRAININGS = {"15 epochs": (15, FAST), "40 epochs": (40, FAST), "100 epochs": (100, FAST), "slow": (40, SLOW)}
FIRST_SEED = 100


def logarithm(prob, least=LEAST_PROBABILITY):
    return np.log(np.clip(prob, least, 1))


def logit(prob, least=LEAST_PROBABILITY):
    prob = np.clip(prob, least, 1 - least)
    return np.log(prob / (1 - prob))


def lowest(prob, share):
    return np.sort(prob, 1)[:, : max(round(share * prob.shape[1]), 1)]


def half(prob):
    return prob.shape[1] // 2


def main_component(values):
    """Return the first principal component over the epochs: epochs that tell instances apart count more."""
    centred = values - values.mean(0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    return centred @ (direction * np.sign(direction.sum()))


def spread(prob, power=1):
    """Return weights of the epochs by the variance of p over the instances."""
    weights = prob.var(0) ** power
    return weights / weights.sum()


def split(scores):
    """Return which scores are in the lower of two groups, split where the variance between is largest."""
    ordered = np.sort(scores)
    below = np.arange(1, len(scores))
    sums = ordered.cumsum()
    gap = (sums[-1] - sums[:-1]) / below[::-1] - sums[:-1] / below
    return scores <= ordered[(below * below[::-1] * gap**2).argmax()]


def discriminant(values):
    """Return the mean over epochs weighted by Fisher's ratio between two groups, found three times anew."""
    weights = np.ones(values.shape[1])
    for _ in range(3):
        low = split(values @ weights)
        difference = values[~low].mean(0) - values[low].mean(0)
        within = low.mean() * values[low].var(0) + (~low).mean() * values[~low].var(0)
        weights = np.maximum(difference, 0) / (within + 1e-3)
        weights /= weights.sum()
    return values @ weights


# From p(y|x) of every visit (N, T), oldest first, to how plausible the label is.
FROM_HISTORY = {
    "mean of p": lambda p: p.mean(1),
    "mean of p, first 3 epochs out": lambda p: p[:, 3:].mean(1),
    "mean of p, first quarter out": lambda p: p[:, p.shape[1] // 4 :].mean(1),
    "mean of p, first half only": lambda p: p[:, : half(p)].mean(1),
    "mean of p, last half only": lambda p: p[:, half(p) :].mean(1),
    "mean of p, last 5 only": lambda p: p[:, -5:].mean(1),
    "mean of p, epoch t weighs 1/t": lambda p: p @ (1 / np.arange(1, p.shape[1] + 1)),
    "mean of p, outliers removed (the paper's)": lambda p: estimate(p, np.full(len(p), p.shape[1])).mean,
    "mean of p, a tenth trimmed at both ends": lambda p: np.sort(p, 1)[
        :, p.shape[1] // 10 : -(p.shape[1] // 10)
    ].mean(1),
    "mean of p + standard deviation": lambda p: p.mean(1) + p.std(1),
    "mean of p - standard deviation": lambda p: p.mean(1) - p.std(1),
    "mean of the lower half of p": lambda p: lowest(p, 0.5).mean(1),
    "mean of √p": lambda p: np.sqrt(p).mean(1),
    "mean of p²": lambda p: (p**2).mean(1),
    "minimum": lambda p: p.min(1),
    "lower quartile": lambda p: np.quantile(p, 0.25, axis=1),
    "median": lambda p: np.median(p, axis=1),
    "upper quartile": lambda p: np.quantile(p, 0.75, axis=1),
    "maximum": lambda p: p.max(1),
    "share of p > 1/2, then mean of p": lambda p: (p > 0.5).mean(1) + 1e-3 * p.mean(1),
    "mean of log p": lambda p: logarithm(p).mean(1),
    "mean of log p, weighed by variance (chosen, history alone)": lambda p: logarithm(p) @ spread(p),
    "mean of log p, weighed by √variance": lambda p: logarithm(p) @ spread(p, 0.5),
    "mean of log p, weighed by variance²": lambda p: logarithm(p) @ spread(p, 2),
    "mean of log p, weighed by Fisher's ratio": lambda p: discriminant(logarithm(p)),
    "mean of p, weighed by variance": lambda p: p @ spread(p),
    "mean of log p, p at least 1e-7": lambda p: logarithm(p, 1e-7).mean(1),
    "mean of log p, first half only": lambda p: logarithm(p[:, : half(p)]).mean(1),
    "mean of log p, epoch t weighs 1/√t": lambda p: (
        logarithm(p) @ (1 / np.sqrt(np.arange(1, p.shape[1] + 1)))
    ),
    "mean of the lower half of log p": lambda p: lowest(logarithm(p), 0.5).mean(1),
    "mean of log p - ¼ standard deviation": lambda p: logarithm(p).mean(1) - 0.25 * logarithm(p).std(1),
    "mean of logit p": lambda p: logit(p).mean(1),
    "median of logit p": lambda p: np.median(logit(p), 1),
    "mean of log (1 - p)": lambda p: -logarithm(1 - p).mean(1),
    "mean rank within the epoch": lambda p: p.argsort(0, kind="stable").argsort(0).mean(1),
    "principal component of p": main_component,
    "principal component of log p": lambda p: main_component(logarithm(p)),
}
# The same with the rival's mean probability r.
WITH_RIVAL = {
    "mean of p - r": lambda p, r: p.mean(1) - r,
    "log mean of p - log r": lambda p, r: logarithm(p.mean(1)) - logarithm(r),
    "exp (mean of log p) - r": lambda p, r: np.exp(logarithm(p).mean(1)) - r,
    "mean of log p - log r": lambda p, r: logarithm(p).mean(1) - logarithm(r),
    "mean of log p, weighed by variance - log r (chosen)": lambda p, r: (
        logarithm(p) @ spread(p) - logarithm(r)
    ),
    "mean of log p, weighed by √variance - log r": lambda p, r: logarithm(p) @ spread(p, 0.5) - logarithm(r),
    "mean of log p, weighed by variance² - log r": lambda p, r: logarithm(p) @ spread(p, 2) - logarithm(r),
    "mean of log p, weighed by Fisher's ratio - log r": lambda p, r: (
        discriminant(logarithm(p)) - logarithm(r)
    ),
    "lower quartile - r": lambda p, r: np.quantile(p, 0.25, axis=1) - r,
}
METHODS = ("scan", "we", "wpv", "wtc", "wd")


def observe(share, training, seed, method="scan", burn_in=None):
    epochs, optimiser = TRAININGS[training]
    recipe = find_recipe("digits", epochs=epochs)
    recipe = dataclasses.replace(
        recipe,
        noise=Noise("uniform_other", share),
        optimiser=optimiser,
        burn_in=recipe.burn_in if burn_in is None else burn_in,
    )
    data = prepare(recipe, load_data(recipe), seed=seed, device=torch.device("cpu"))
    wrong = (data.dataset.train.targets != data.dataset.clean_targets).numpy()
    return observe_all(recipe, data, seed, method), wrong


def missed(share, training, trials, method="scan", burn_in=None):
    """Return 1 - average precision of every candidate, one number a trial."""
    found = {}
    for seed in range(FIRST_SEED, FIRST_SEED + trials):
        seen, wrong = observe(share, training, seed, method, burn_in)
        prob, rival = seen.history.astype(np.float64), seen.rivals[-1].astype(np.float64)
        plausible = {name: function(prob) for name, function in FROM_HISTORY.items()}
        plausible |= {name: function(prob, rival) for name, function in WITH_RIVAL.items()}
        plausible["AUM"] = seen.margins.mean(1)
        for name, values in plausible.items():
            found.setdefault(name, []).append(1 - average_precision_score(wrong, -values))
    return found


def compare_scores(trials):
    columns, rows = [f"{share:.0%}, {training}" for share in SHARES for training in TRAININGS], {}
    for share in SHARES:
        for training in TRAININGS:
            for name, numbers in missed(share, training, trials).items():
                rows.setdefault(name, []).append(numbers)
    return columns, rows


def compare_methods(trials):
    """Compare methods of training, after several burn-ins, by the chosen score and by AUM."""
    kinds = [(share, training) for share in (0.1, 0.2, 0.4) for training in ("40 epochs", "100 epochs")]
    rows = {}
    for method in METHODS:
        for burn_in in (8,) if method == "scan" else (0, 8, 20):
            name = method if method == "scan" else f"{method}, burn-in {burn_in}"
            for share, training in kinds:
                found = missed(share, training, trials, method, burn_in)
                rows.setdefault(name, []).append(found[CHOSEN])
                rows.setdefault(f"{name}: AUM", []).append(found["AUM"])
    return [f"{share:.0%}, {training}" for share, training in kinds], rows


CHOSEN = "mean of log p, weighed by variance - log r (chosen)"


def middle(numbers):
    """Return the geometric mean over the columns, so that the easy ones count as much as the hard ones."""
    return np.exp(np.mean([np.log(np.mean(cell)) for cell in numbers]))


def show(rows, columns):
    """Print mean ± standard error in thousandths, the best geometric mean over the columns first."""
    print("| score | mean | " + " | ".join(columns) + " |")
    print("|---|---:|" + "---:|" * len(columns))
    for name, numbers in sorted(rows.items(), key=lambda row: middle(row[1])):
        cells = [f"{1e3 * np.mean(n):.1f} ± {1e3 * np.std(n, ddof=1) / len(n) ** 0.5:.1f}" for n in numbers]
        print(f"| {name} | {1e3 * middle(numbers):.1f} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--methods", action="store_true", help="compare methods of training, not scores")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    columns, rows = (compare_methods if options.methods else compare_scores)(options.trials)
    print(f"1 - average precision in thousandths, {options.trials} trials a cell, digits")
    show(rows, columns)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"columns": columns, "missed": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
