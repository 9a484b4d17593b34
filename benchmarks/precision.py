"""Does bf16 change a baseline's error? Scan in float32 beside the same trials of the result store, in pairs.

    python benchmarks/precision.py noisy-mnist-cnn --trials 10
    python benchmarks/precision.py cifar100-rn27 --trials 5 --epochs 40

Trains Scan of a recipe that runs in bf16 on a GPU once more, in float32, and keeps the results in a store of
their own (`results/float32`). With `--epochs` only the first ones are trained and compared.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from activebias.lab import Place, ResultStore, get_recipe, run_trials
from activebias.lab.experiment.results import best_error, last10_error
from activebias.lab.significance import estimate, paired_t_test


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--store", type=Path, default=Path("results"), help="holds the trials in bf16")
    parser.add_argument("--out", type=Path, default=Path("results/float32"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    recipe = get_recipe(arguments.recipe)
    epochs = arguments.epochs or recipe.epochs
    seeds = range(arguments.trials)
    stored = {
        result.seed: result
        for result in ResultStore(arguments.store).load(recipe.name, recipe.config())
        if result.method == "scan" and result.details.get("precision") == "bf16"
    }
    if lacking := sorted(set(seeds) - stored.keys()):
        raise SystemExit(f"{arguments.store} lacks trials of Scan in bf16: {lacking}")
    exact = replace(recipe, half_precision=False, epochs=epochs, burn_in=min(recipe.burn_in, epochs))
    place = Place(arguments.out, arguments.data, arguments.device)
    exact_results = run_trials(exact, methods=["scan"], seeds=seeds, place=place)
    print(f"{recipe.name}, Scan, {arguments.trials} trials, the first {epochs} of {recipe.epochs} epochs")
    for name, summary in (("best", best_error), ("last ten", last10_error)):
        half = {seed: summary(stored[seed].test_error[:epochs]) for seed in seeds}
        full = {result.seed: summary(result.test_error) for result in exact_results}
        test = paired_t_test(half, full)
        mean_half, mean_full = estimate(half.values()), estimate(full.values())
        print(
            f"{name:>9} test error: bf16 {mean_half.mean:.3f}, float32 {mean_full.mean:.3f} %, difference "
            f"{test.difference:+.3f}"
            + ("" if test.p_value is None else f" ± {test.stderr:.3f} (p = {test.p_value:.2f})")
        )


if __name__ == "__main__":
    main()
