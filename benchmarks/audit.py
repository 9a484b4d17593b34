"""How well wrong labels are found: the audit beside cleanlab, AUM and cartography.

    python benchmarks/audit.py --data digits [--trials 10] [--out out/audit-digits.json]
    python benchmarks/audit.py --data cifar10n --device cuda --train --small   # needs no cleanlab
    python benchmarks/audit.py --data cifar10n --score                           # needs no GPU
    python benchmarks/audit.py --data mnist --device cuda --side-by-side --judges 10 --train --small

The data have labels that are known to be wrong. A trial is one seed: its noise, its initial weights, its
order. It trains one model on all instances, whose visits give the audit, AUM's margin and cartography's
confidence; and the same model on four of five folds, five times, whose probabilities of the fifth give
cleanlab's scores. The same five models are five judges, as in `activebias train --judges 5`. What was
observed is kept in `--folder`, one file a trial. `--side-by-side` trains the folds of all trials at once, and
no model on all instances.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import numpy as np
from audit_observed import NUM_FOLDS, find_recipe, kept_epochs, observe, unpack

import activebias as ab

DATA = ("digits", "mnist", "mnist-cnn", "cifar10n")


def cleanlab_scores(labels, probabilities):
    """Return cleanlab's rankings of these out-of-sample probabilities, higher for more likely wrong."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    # Softmax in float32 ends a rounding error off 1, which cleanlab's checks do not like.
    probabilities = probabilities.astype(np.float64)
    probabilities /= probabilities.sum(1, keepdims=True)
    methods = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
    scores = {
        f"cleanlab, {method.replace('_', ' ')}": 1
        - get_label_quality_scores(labels, probabilities, method=method)
        for method in methods
    }
    # Its default filter only says which: those first, then the others, each by its default quality score.
    issues = find_label_issues(labels, probabilities, n_jobs=1)
    return scores | {"cleanlab, find_label_issues first": issues + scores["cleanlab, self confidence"]}


def own_scores(history, margins, rival):
    """Return the scores that one training run gives, higher for more likely wrong."""
    alone = ab.audit(history)
    return {
        "audit": ab.audit(history, rival=rival).score,
        "audit, history alone": alone.score,
        "cartography's confidence (mean p)": -alone.confidence,
        "AUM": -margins.mean(1),
    }


def quality(scores, wrong):
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {
        "average_precision": float(average_precision_score(wrong, scores)),
        "auroc": float(roc_auc_score(wrong, scores)),
    }


def best_of(candidates):
    """Return the candidate with the best average precision, chosen with the truth at hand, and its name."""
    name = max(candidates, key=lambda name: candidates[name]["average_precision"])
    return candidates[name] | {"chosen": name}


def score(path):
    """Score everything that one trial observed."""
    seen = unpack(path)
    labels, kept = seen["labels"], seen["kept"]
    wrong = labels != seen["true"]
    epochs, number, by_epochs = int(kept[-1]), len(labels), {}
    folds = int(seen.get("folds", NUM_FOLDS))
    if "history" in seen:
        for count, rival in zip(kept, seen["rivals"], strict=True):
            cost = {"seconds": float(seen["own_seconds"]) * count / epochs, "epochs": int(count)}
            found = own_scores(seen["history"][:, :count], seen["margins"][:, :count], rival)
            for name, scores in found.items():
                trained = {"trained": int(count) * number}
                by_epochs.setdefault(name, {})[f"{count} epochs"] = quality(scores, wrong) | cost | trained
    for count, probabilities, seconds in zip(kept, seen["outside"], seen["fold_seconds"], strict=True):
        for name, scores in cleanlab_scores(labels, probabilities).items():
            cost = {
                "seconds": float(seconds),
                "epochs": int(count),
                "trained": (folds - 1) * int(count) * number,
            }
            by_epochs.setdefault(name, {})[f"{count} epochs"] = quality(scores, wrong) | cost
    last = {name: by[f"{epochs} epochs"] for name, by in by_epochs.items()}
    if "judged_history" in seen:
        judges = ab.audit(seen["judged_history"], rival=seen["judged_rival"].clip(0, 1)).score
        cost = {"seconds": float(seen["judged_seconds"]), "epochs": epochs}
        cost["trained"] = (folds - 1) * epochs * number
        last = {JUDGES: quality(judges, wrong) | cost} | last
    if "judged_outside" in seen:
        for name, scores in cleanlab_scores(labels, seen["judged_outside"]).items():
            last[f"{name}, mean of the epochs that count"] = quality(scores, wrong) | cost
    half = {}
    if "history" in seen:
        half = {"audit, half of the epochs": by_epochs["audit"][f"{max(epochs // 2, 1)} epochs"]}
    best = {f"{name}, best number of epochs": best_of(by) for name, by in by_epochs.items()}
    return {
        "scores": last | half | best,
        "by_epochs": by_epochs,
        "wrong": int(wrong.sum()),
        "instances": len(wrong),
        "counted": [int(epoch) for epoch in seen.get("judged_epochs", ())],
        "where": str(seen["where"]),
    }


def mean_and_error(values):
    values = np.array(values)
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return float(values.mean()), float(error)


def summarise(trials):
    """Return mean and standard error over the trials of every score's numbers."""
    return {
        name: {key: mean_and_error([trial["scores"][name][key] for trial in trials]) for key in KEYS}
        for name in trials[0]["scores"]
    }


KEYS = ("average_precision", "auroc", "epochs", "seconds", "trained")
JUDGES = "judges"
OWN = (JUDGES, "audit", "audit, half of the epochs", "audit, history alone")


def aim(trials, own_name):
    """Return 1 - average precision and seconds of one of our scores, each as a share of cleanlab's."""
    own = summarise(trials)[own_name]
    return {
        name: {
            "missed": (1 - own["average_precision"][0]) / (1 - theirs["average_precision"][0]),
            "cost": own["seconds"][0] / theirs["seconds"][0],
        }
        for name, theirs in summarise(trials).items()
        if name.startswith("cleanlab")
    }


def show(title, trials):
    print(f"\n{title}: {len(trials)} trials, {trials[0]['wrong']} of {trials[0]['instances']} labels wrong")
    print("| score | average precision | AUROC | epochs | seconds | millions trained on |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, numbers in summarise(trials).items():
        precision, area = ("{:.4f} ± {:.4f}".format(*numbers[key]) for key in KEYS[:2])
        epochs, seconds, trained = (numbers[key][0] for key in KEYS[2:])
        print(f"| {name} | {precision} | {area} | {epochs:.0f} | {seconds:.1f} | {trained / 1e6:.2f} |")
    for own in [name for name in OWN if name in trials[0]["scores"]]:
        print(f"\n{own}, as a share of cleanlab's: 1 - AP (aim: 0.5), seconds of training (aim: 0.2)")
        for name, ratios in aim(trials, own).items():
            print(f"  {name}: {ratios['missed']:.2f}, {ratios['cost']:.2f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=DATA, default="digits")
    parser.add_argument("--annotation", default="worst", help="of CIFAR-10N: worst, aggregate, random1, …")
    parser.add_argument("--method", default="scan", help="method of training of the audited model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--limit", type=int, help="train on the first instances only")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--train", action="store_true", help="only train, and keep what was observed")
    either.add_argument("--score", action="store_true", help="only score what was kept")
    parser.add_argument("--folds-only", action="store_true", help="leave out the training on all instances")
    parser.add_argument("--side-by-side", action="store_true", help="train the folds of all trials at once")
    parser.add_argument("--judges", type=int, default=NUM_FOLDS, help="folds, with --side-by-side")
    parser.add_argument("--keep", type=int, nargs="+", help="epochs kept for cleanlab, with --side-by-side")
    parser.add_argument("--small", action="store_true", help="keep half precision and fewer epochs")
    parser.add_argument("--folder", type=Path, default=Path("out/audit"))
    parser.add_argument("--out", type=Path, help="JSON of the scores")
    options = parser.parse_args()
    recipe = find_recipe(options.data, options.annotation, options.epochs)
    if options.limit is not None:
        recipe = dataclasses.replace(recipe, name=f"{recipe.name}-{options.limit}", limit=options.limit)
    name = f"{recipe.name}-{recipe.epochs}-{options.method}"
    if options.judges != NUM_FOLDS:
        name = f"{name}-{options.judges}"
    seeds = range(options.seed, options.seed + options.trials)
    paths = {seed: options.folder / f"{name}-{seed}.npz" for seed in seeds}
    if options.side_by_side and not options.score:
        from audit_side_by_side import observe_together

        started = time.perf_counter()
        kept = options.keep or kept_epochs(recipe.epochs)
        observe_together(recipe, paths, options.judges, options.device, kept, options.small)
        print(f"{name}: {len(paths)} trials within {time.perf_counter() - started:.0f} s", flush=True)
    elif not options.score:
        for seed, path in paths.items():
            started = time.perf_counter()
            observe(recipe, seed, options.device, options.method, path, options.small, options.folds_only)
            print(f"{path}: trained within {time.perf_counter() - started:.0f} s", flush=True)
    if not options.train:
        trials = [score(path) for path in paths.values()]
        show(recipe.title, trials)
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            content = {
                "config": recipe.config(),
                "method": options.method,
                "summary": summarise(trials),
                "aim": {own: aim(trials, own) for own in OWN if own in trials[0]["scores"]},
                "trials": trials,
            }
            options.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
