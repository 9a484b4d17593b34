"""Trials: burn-ins trained once and branched into the methods, resumable, with results in the store."""

import logging
import operator
import warnings
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from activebias import Method, get_method
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.prepared import load_data, prepare
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.rules import name_by_rule
from activebias.lab.experiment.sides import Missing, Side, find_side
from activebias.lab.one_by_one import OneByOne, build_run, remove_stopped
from activebias.lab.side_by_side import can_stack, epochs_of, lanes_of, remove_finished, run_side_by_side
from activebias.training.checkpoints import Checkpoint
from activebias.training.evaluation import predict

_log = logging.getLogger(__name__)


class Spread(Protocol):
    """Trains missing trials on several devices or machines, and appends the results to the place's store."""

    def __call__(
        self, recipe: Recipe, missing: Missing, place: Place, listener: Listener, dataset: Dataset | None
    ) -> None:
        """Return when all missing trials are stored."""


class UnlearntWarning(UserWarning):
    """A method that learns has no validation part."""


def nothing_to_learn_from(recipe: Recipe, methods: Iterable[str | Method | Side]) -> str:
    """Return a sentence if a method learns and the recipe has no validation part, else an empty text."""
    names = [side.name for side in map(find_side, methods) if side.method.learns]
    if not names or recipe.validation is not None or recipe.split is not None:
        return ""
    return (
        f"{recipe.name} has no validation part to learn from, so {' and '.join(names)} emphasises by "
        "the rule p̄ (1 - p̄): `--search`, or `recipe.holding_out(0.1)`, holds a part out."
    )


def missing_runs(
    recipe: Recipe,
    methods: Iterable[str | Method | Side],
    seeds: Iterable[int],
    place: Place,
    *,
    keep_models: bool = False,
) -> dict[int, list[Side]]:
    """Return the sides to train, by seed: those without a result, or (`keep_models`) without a model."""
    sides = _resolved(methods)
    done = {result.key[2:] for result in place.store.load(recipe.name, recipe.config())}

    def is_missing(side: Side, seed: int) -> bool:
        if side.key(seed) not in done:
            return True
        path = place.model_path(recipe, name_by_rule(side.name, side.rule), seed)
        return keep_models and not path.exists()

    wanted = {seed: [side for side in sides if is_missing(side, seed)] for seed in _checked(seeds)}
    return {seed: group for seed, group in wanted.items() if group}


def _resolved(methods: Iterable[str | Method | Side]) -> list[Side]:
    """Return the sides; raise if two have the same name and settings, which identify results."""
    resolved: dict[tuple[str, str], Side] = {}
    for side in map(find_side, methods):
        # A method of the user's own has a rule, which does not count here: one name, one method.
        key = side.name, side.setting.rule
        if key in resolved:
            raise ValueError(
                f"Expected `methods` to have different names, but got {side.name!r} twice: rename or "
                "remove one of them."
            )
        resolved[key] = side
    return list(resolved.values())


def _checked(seeds: Iterable[int]) -> list[int]:
    """Return every seed once, as a Python integer; raise if a seed cannot be stored."""
    return list(dict.fromkeys(map(_checked_seed, seeds)))


def _checked_seed(value: Any) -> int:
    try:
        seed = operator.index(value)
    except TypeError:
        seed = -1
    if seed < 0 or isinstance(value, bool):
        raise ValueError(f"Expected `seeds` to be integers of at least 0, but got {value!r}.")
    return seed


def count_epochs(recipe: Recipe, missing: Missing) -> int:
    """Return the number of epochs of the missing runs; methods of the same order share their burn-in."""
    return sum(epochs_of(recipe, lanes_of(missing, scans=scans)) for scans in (True, False))


def run_trials(
    recipe: Recipe,
    *,
    methods: Sequence[str | Method | Side],
    seeds: Sequence[int],
    place: Place,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
    keep_models: bool = False,
    spread: Spread | None = None,
) -> list[TrialResult]:
    """Train the methods and seeds without a stored result, and return the results of all of them.

    The results are in the given order of seeds, then of methods.

    Args:
        recipe: the experiment.
        methods: names of methods, of peers ("gce") or of both ("wtc+gce"), your own `Method`s, or `Side`s
            with settings. Name, `order` and `weights` identify the results of a `Method`, so that a new
            statistic needs a new name.
        seeds: one seed per trial.
        place: the folder of results and checkpoints, the data folder, and the device.
        dataset: the data, if it is not the recipe's data set.
        listener: receives epochs, results and messages.
        keep_models: save every model with its history; train methods again whose model file is missing.
        spread: trains the missing trials (`OnDevices`, `OnRay`), if not this process on the place's device.
    """
    if keep_models and spread is not None:
        raise ValueError("Expected no `spread` with `keep_models`: models are kept by one process.")
    listener = listener or Listener()
    resolved, seeds = _resolved(methods), _checked(seeds)
    if text := nothing_to_learn_from(recipe, resolved):
        warnings.warn(text, UnlearntWarning, stacklevel=2)
    missing = missing_runs(recipe, resolved, seeds, place, keep_models=keep_models)
    _tell_known(recipe, len(resolved) * len(seeds), missing, place, listener)
    if missing:
        try:
            place.folder.mkdir(parents=True, exist_ok=True)  # fail before hours of training, not after
        except OSError as error:
            why = error.strerror or error
            raise type(error)(f"{place.folder} cannot be written ({why}): choose another folder.") from error
        if spread is None:
            train_trials(recipe, missing, place, listener, dataset, keep_models=keep_models)
        else:
            spread(recipe, missing, place, listener, dataset)
    listener.on_recount(0)
    stored = {result.key[2:]: result for result in place.store.load(recipe.name, recipe.config())}
    remove_finished(recipe, place, stored)
    remove_stopped(recipe, resolved, seeds, place, stored, keep_models=keep_models)
    wanted_keys = [side.key(seed) for seed in seeds for side in resolved]
    return [stored[key] for key in wanted_keys if key in stored]


def train_trials(
    recipe: Recipe,
    missing: Missing,
    place: Place,
    listener: Listener,
    dataset: Dataset | None = None,
    *,
    keep_models: bool = False,
) -> None:
    """Train the missing trials in this process, on the place's device, and store their results."""
    device = torch.device(place.device)
    dataset = load_data(recipe, place.data) if dataset is None else dataset
    teacher: Tensor | None = None
    if recipe.teacher is not None:
        teacher = teacher_probabilities(recipe.teacher, dataset, place, listener)
    # Models to keep are trained one by one, because only these checkpoints hold a whole model.
    if not keep_models and place.side_by_side != 1 and can_stack(recipe, dataset, device):
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            missing = run_side_by_side(recipe, dataset, missing, place, listener, teacher)
    listener.on_recount(0)
    for seed, wanted in missing.items():
        data = prepare(recipe, dataset, seed=seed, device=device, root=place.data, teacher=teacher)
        OneByOne(recipe, data, seed, place, listener, keep_models).train(wanted)


def _tell_known(recipe: Recipe, total: int, missing: Missing, place: Place, listener: Listener) -> None:
    """Tell the listener how many results are stored: a user who changed something expects new results."""
    known = total - sum(len(group) for group in missing.values())
    if known:
        listener.on_message(
            f"{known} of {total} results are read from {place.store.path(recipe.name)}, not trained again."
        )


def teacher_probabilities(recipe: Recipe, dataset: Dataset, place: Place, listener: Listener) -> Tensor:
    """Return the teacher's probabilities of the training examples, (N, C); train the teacher if necessary.

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
            listener=replace(listener, on_recount=lambda number: None),  # the total excludes the teacher
            keep_models=True,
        )
    state = Checkpoint(path).read()
    if state is None:
        raise ValueError(f"The teacher {path} cannot be read: delete the file to train the teacher again.")
    data = prepare(recipe, dataset, seed=0, device=torch.device(place.device))
    run = build_run(recipe, data, [get_method("scan")], seed=0)
    run.model.load_state_dict(state["model"])
    return predict(run.model, data.train).softmax(-1)
