"""Trials: burn-ins trained once and branched into the methods, resumable, with results in the store."""

import logging
import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from activebias import Method, get_method
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.rules import rule_of, run_name
from activebias.lab.one_by_one import OneByOne, build_run, remove_stopped
from activebias.lab.side_by_side import can_stack, remove_finished, run_side_by_side
from activebias.training.checkpoints import Checkpoint
from activebias.training.evaluation import predict

_log = logging.getLogger(__name__)


def missing_runs(
    recipe: Recipe,
    methods: Iterable[str | Method],
    seeds: Iterable[int],
    place: Place,
    *,
    keep_models: bool = False,
) -> dict[int, list[Method]]:
    """Return the methods that are still to be trained, by seed: no result, or (`keep_models`) no model."""
    resolved = _by_name(methods)
    seeds = _checked(seeds)
    rules = {name: rule_of(method) for name, method in resolved.items()}
    missing = set(place.store.missing(recipe.name, recipe.config(), rules, seeds))
    if keep_models:
        missing |= {
            (name, seed)
            for name in resolved
            for seed in seeds
            if not place.model_path(recipe, run_name(resolved[name]), seed).exists()
        }
    wanted = {seed: [resolved[name] for name in resolved if (name, seed) in missing] for seed in seeds}
    return {seed: group for seed, group in wanted.items() if group}


def _by_name(methods: Iterable[str | Method]) -> dict[str, Method]:
    """Return the methods by name; two of one name are refused, for results and tables go by it."""
    resolved: dict[str, Method] = {}
    for method in map(get_method, methods):
        if method.name in resolved:
            raise ValueError(
                f"Expected `methods` to have different names, but got {method.name!r} twice: name one of "
                "them anew, or leave it out."
            )
        resolved[method.name] = method
    return resolved


def _checked(seeds: Iterable[int]) -> list[int]:
    """Return the seeds as Python's integers, each once; what a result could not be stored by is refused."""
    return list(dict.fromkeys(map(_checked_seed, seeds)))


def _checked_seed(value: Any) -> int:
    try:
        seed = operator.index(value)
    except TypeError:
        seed = -1
    if seed < 0 or isinstance(value, bool):
        raise ValueError(f"Expected `seeds` to be integers of at least 0, but got {value!r}.")
    return seed


def count_epochs(recipe: Recipe, missing: Mapping[int, Sequence[Method]]) -> int:
    """Return how many epochs the missing runs take; methods of one order share their burn-in."""
    burn_ins = sum(len({method.order == "scan" for method in group}) for group in missing.values())
    branches = sum(len(group) for group in missing.values())
    burn_in = min(recipe.burn_in, recipe.epochs)
    return burn_ins * burn_in + branches * (recipe.epochs - burn_in)


def run_trials(
    recipe: Recipe,
    *,
    methods: Sequence[str | Method],
    seeds: Sequence[int],
    place: Place,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
    keep_models: bool = False,
) -> list[TrialResult]:
    """Train what the store does not hold yet, and return the results of these methods and seeds.

    They come by seed, then by method, in the order asked for, however they were trained.

    Args:
        recipe: the experiment.
        methods: names, or `Method`s of your own (a new statistic needs a new name: results go by it, by
            `order` and by `weights`).
        seeds: one trial each.
        place: where results and checkpoints go, where the data lies, and the device.
        dataset: the data, if it is not the recipe's named one.
        listener: is told about epochs and results, and how many are read from the store.
        keep_models: save every model with its history, and train again what has a result but no file.
    """
    listener = listener or Listener()
    resolved, seeds = list(_by_name(methods).values()), _checked(seeds)
    missing = missing_runs(recipe, resolved, seeds, place, keep_models=keep_models)
    _tell_known(recipe, len(resolved) * len(seeds), missing, place, listener)
    if missing:
        place.folder.mkdir(parents=True, exist_ok=True)  # before hours of training, not after
    device = torch.device(place.device)
    teacher: Tensor | None = None
    if missing and dataset is None:
        dataset = load_data(recipe, place.data)
    if missing and dataset is not None:
        if recipe.teacher is not None:
            teacher = teacher_probabilities(recipe.teacher, dataset, place, listener)
        # A model that is kept has to be found whole when the run is stopped: those are trained one by one.
        if not keep_models and place.side_by_side != 1 and can_stack(recipe, dataset):
            with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                missing = run_side_by_side(recipe, dataset, missing, place, listener, teacher)
    listener.on_recount(0)
    for seed, wanted in missing.items():
        assert dataset is not None
        data = prepare(recipe, dataset, seed=seed, device=device, root=place.data, teacher=teacher)
        OneByOne(recipe, data, seed, place, listener, keep_models).train(wanted)
    stored = {result.key[2:]: result for result in place.store.load(recipe.name, recipe.config())}
    remove_finished(recipe, place, stored)
    remove_stopped(recipe, resolved, seeds, place, stored, keep_models=keep_models)
    wanted_keys = [(each.name, seed, rule_of(each)) for seed in seeds for each in resolved]
    return [stored[key] for key in wanted_keys if key in stored]


def _tell_known(
    recipe: Recipe, total: int, missing: Mapping[int, Sequence[Method]], place: Place, listener: Listener
) -> None:
    """Say how many results are not computed now: whoever changed something expects new ones."""
    known = total - sum(len(group) for group in missing.values())
    if known:
        listener.on_message(
            f"{known} of {total} results are read from {place.store.path(recipe.name)}, not trained again."
        )


def teacher_probabilities(recipe: Recipe, dataset: Dataset, place: Place, listener: Listener) -> Tensor:
    """Return a teacher's probabilities of the training examples, (N, C); it is trained if it is not here.

    There is one teacher for all trials (Scan, seed 0), as in the paper.
    """
    path = place.model_path(recipe, "scan", 0)
    if not path.exists():
        _log.info("Training the teacher %s first.", recipe.name)
        run_trials(
            recipe,
            methods=["scan"],
            seeds=[0],
            place=place,
            dataset=dataset,
            listener=replace(listener, on_recount=lambda number: None),  # not of what was counted
            keep_models=True,
        )
    state = Checkpoint(path).read()
    if state is None:
        raise ValueError(f"The teacher {path} cannot be read: delete it, and it is trained again.")
    data = prepare(recipe, dataset, seed=0, device=torch.device(place.device))
    run = build_run(recipe, data, [get_method("scan")], seed=0)
    run.model.load_state_dict(state["model"])
    return predict(run.model, data.train).softmax(-1)
