"""How the score of the audit was chosen: candidates on digits, at several noise levels and numbers of epochs.

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
from audit import find_recipe, load_data, observe_all, prepare
from sklearn.metrics import average_precision_score

from activebias.auditing import LEAST_PROBABILITY
from activebias.lab.recipe import Noise
from activebias.statistics import estimate

SHARES, EPOCHS = (0.05, 0.1, 0.2, 0.4), (15, 40, 100)
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
    "mean of log p (chosen, history alone)": lambda p: logarithm(p).mean(1),
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
    "mean of log p - log r (chosen)": lambda p, r: logarithm(p).mean(1) - logarithm(r),
    "lower quartile - r": lambda p, r: np.quantile(p, 0.25, axis=1) - r,
}
METHODS = ("scan", "we", "wpv", "wtc", "wd")


def observe(share, epochs, seed, method="scan", burn_in=None):
    recipe = dataclasses.replace(find_recipe("digits", epochs=epochs), noise=Noise("uniform_other", share))
    if burn_in is not None:
        recipe = dataclasses.replace(recipe, burn_in=burn_in)
    data = prepare(recipe, load_data(recipe), seed=seed, device=torch.device("cpu"))
    wrong = (data.dataset.train.targets != data.dataset.clean_targets).numpy()
    return observe_all(recipe, data, seed, method), wrong


def missed(share, epochs, trials, method="scan", burn_in=None):
    """Return 1 - average precision of every candidate, one number a trial."""
    found = {}
    for seed in range(FIRST_SEED, FIRST_SEED + trials):
        seen, wrong = observe(share, epochs, seed, method, burn_in)
        prob, rival = seen.history.astype(np.float64), seen.rivals[-1].astype(np.float64)
        plausible = {name: function(prob) for name, function in FROM_HISTORY.items()}
        plausible |= {name: function(prob, rival) for name, function in WITH_RIVAL.items()}
        plausible["AUM"] = seen.margins.mean(1)
        for name, values in plausible.items():
            found.setdefault(name, []).append(1 - average_precision_score(wrong, -values))
    return found


def show(rows, columns):
    """Print mean ± standard error in thousandths, the best mean over the columns first."""
    print("| score | mean | " + " | ".join(columns) + " |")
    print("|---|---:|" + "---:|" * len(columns))
    for name, numbers in sorted(rows.items(), key=lambda row: np.mean(row[1])):
        cells = [f"{1e3 * np.mean(n):.1f} ± {1e3 * np.std(n, ddof=1) / len(n) ** 0.5:.1f}" for n in numbers]
        print(f"| {name} | {1e3 * np.mean(numbers):.1f} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--methods", action="store_true", help="compare methods of training, not scores")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = {}
    if options.methods:
        columns = [f"{share:.0%}, {epochs} epochs" for share in (0.1, 0.2, 0.4) for epochs in (40, 100)]
        names = ("mean of log p - log r (chosen)", "mean of log p (chosen, history alone)", "AUM")
        for share in (0.1, 0.2, 0.4):
            for epochs in (40, 100):
                for method in METHODS:
                    for burn_in in (8,) if method == "scan" else (0, 8, 20):
                        found = missed(share, epochs, options.trials, method, burn_in)
                        after = "" if method == "scan" else f", burn-in {burn_in}"
                        for name in names:
                            rows.setdefault(f"{name}: {method}{after}", []).append(found[name])
    else:
        columns = [f"{share:.0%}, {epochs} epochs" for share in SHARES for epochs in EPOCHS]
        for share in SHARES:
            for epochs in EPOCHS:
                for name, numbers in missed(share, epochs, options.trials).items():
                    rows.setdefault(name, []).append(numbers)
    print(f"1 - average precision in thousandths, {options.trials} trials a cell, digits")
    show(rows, columns)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"columns": columns, "missed": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
