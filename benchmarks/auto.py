"""The method `auto` in rows of docs/reproduction.md, beside the stored trials of the paper's methods.

    python benchmarks/auto.py --device cuda --trials 10 --rows mnist-fc mnist-cnn noisy-mnist-cnn qt-cnn
    python benchmarks/auto.py --trials 0          # the table, from what is stored

`auto` holds 5 % of the training set out to learn from; the other methods train on all of it. Seeds are 0, 1,
…: its settings were found on others (benchmarks/auto_designs.py). Trials are appended to `--out`. The rows
of the digits (20 % wrong labels; 40 %; 30 % flipped to the next class; clean) are not in
docs/reproduction.md: there all methods hold the same tenth out (`--all`).
"""

import argparse
import math
import statistics
from dataclasses import replace
from pathlib import Path

from activebias import get_method
from activebias.lab import Listener, Place, ResultStore, get_recipe, run_trials
from activebias.lab.experiment.prepared import load_data
from activebias.lab.experiment.recipe import Noise
from activebias.lab.significance import WEIGHTING_METHODS, estimate

ROWS = (
    "mnist-fc",
    "mnist-fc-distill",
    "mnist-cnn",
    "noisy-mnist-cnn",
    "qt-cnn",
    "cifar10-lr",
    "wnut17-cnn",
    "conll2003-cnn",
)
OWN_ROWS = {
    "digits": "uniform_other:0.2",
    "digits-40": "uniform_other:0.4",
    "digits-flips": "class_dependent:0.3",
    "digits-clean": "0",
}
HELD_OUT = 0.05


def learning(name):
    """Return the recipe of a row with a validation part."""
    if name in OWN_ROWS:
        noise = Noise.parse(OWN_ROWS[name])
        return replace(get_recipe("digits"), name=name, noise=noise).holding_out(2 * HELD_OUT)
    return get_recipe(name).holding_out(HELD_OUT)


def shown(values):
    found = estimate(values)
    error = "" if found.stderr is None else f" ± {found.stderr:.3f}"
    return f"{found.mean:.3f}{error}"


def paired(ours, theirs):
    """Return the mean difference over the seeds that both have, and its standard error."""
    both = sorted(set(ours) & set(theirs))
    if len(both) < 2:
        return "–"
    differences = [ours[seed] - theirs[seed] for seed in both]
    mean = math.fsum(differences) / len(both)
    error = math.sqrt(math.fsum((each - mean) ** 2 for each in differences) / (len(both) - 1) / len(both))
    return f"{mean:+.3f} ± {error:.3f}"


def table(recipe, stored, learnt):
    """Print a row: best and last errors of every method, and the differences to auto on the same seeds."""
    by_method = {method: [] for method in (*WEIGHTING_METHODS, "auto")}
    found = list(learnt.load(recipe.name, recipe.config()))
    if recipe.name not in OWN_ROWS:
        found += stored.load(recipe.name, recipe.holding_out(None).config())
    for result in found:
        if result.method in by_method and not result.rule:
            by_method[result.method].append(result)
    auto = {result.seed: result.best_test_error for result in by_method["auto"]}
    print(f"\n{recipe.name}\n| method | n | best % | last ten epochs % | auto against it, same seeds |")
    print("|---|---:|---:|---:|---:|")
    for method, results in by_method.items():
        if results:
            best = {result.seed: result.best_test_error for result in results}
            last = [statistics.fmean(result.test_error[-10:]) for result in results]
            against = "" if method == "auto" else paired(auto, best)
            row = (method, str(len(results)), shown(best.values()), shown(last), against)
            print(f"| {' | '.join(row)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=(*ROWS, *OWN_ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--all", action="store_true", help="train the paper's weighting methods too")
    parser.add_argument("--epochs", type=int, help="for a try: so many epochs")
    parser.add_argument("--limit", type=int, help="for a try: so many examples")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("results/auto"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    for name in arguments.rows:
        recipe = learning(name)
        recipe = recipe if arguments.epochs is None else recipe.compressed(arguments.epochs)
        recipe = recipe if arguments.limit is None else recipe.limited(arguments.limit)
        place = Place(arguments.out, arguments.data, arguments.device, interval=math.inf)
        if arguments.trials:
            run_trials(
                recipe,
                methods=[get_method(each) for each in (WEIGHTING_METHODS if arguments.all else ())]
                + [get_method("auto")],
                seeds=range(arguments.trials),
                place=place,
                dataset=load_data(recipe, arguments.data),
                listener=Listener(on_message=lambda text: print(text, flush=True)),
            )
        table(recipe, ResultStore(arguments.results), ResultStore(arguments.out))


if __name__ == "__main__":
    main()
