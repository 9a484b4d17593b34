"""From data to a run folder: train, and write what came out."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from activebias import get_method
from activebias.lab.own import digest_of
from activebias.lab.recipe import Recipe
from activebias.lab.trials import Place
from activebias.own.data import OwnData
from activebias.own.recipes import RecipeLearner, inputs_of, kind_of, prepare_recipe
from activebias.own.training import (
    BurnIn,
    Learner,
    OnEpoch,
    OwnLearner,
    checkpoint_beside,
    instances_of,
    predictions_of,
    train,
)
from activebias.report.folder import RunFolder, RunInfo, check_target, write_run


def train_own(
    data: OwnData,
    out: Path,
    *,
    method: str = "wtc",
    epochs: int = 30,
    burn_in: BurnIn = "auto",
    seed: int = 0,
    device: str = "cpu",
    on_epoch: OnEpoch = lambda seen: None,
) -> RunFolder:
    """Train a small model on data of one's own, and write the run folder `out`."""
    check_target(out)
    learner = OwnLearner(data, method=method, burn_in=burn_in, seed=seed, device=torch.device(device))
    settings = {
        "method": method,
        "burn_in": burn_in,
        "seed": seed,
        "model": str(learner.model),
        "data": digest_of([data.train, data.validation]),
    }
    checkpoint = checkpoint_beside(out)
    train(learner, epochs, checkpoint, fingerprint=_hash(settings), on_epoch=on_epoch)
    info = RunInfo(
        kind=data.kind,
        title=f"{Path(data.source).name}: {len(data.class_names)} classes",
        source=data.source,
        class_names=data.class_names,
        num_instances=learner.bias.num_instances,
        seed=seed,
        model=data.model
        | {"optimiser": "adam", "learning_rate": data.learning_rate, "batch_size": learner.batch_size},
        skipped=data.skipped,
        notes=data.notes,
        **_outcome(learner, epochs),
    )
    instances = instances_of(learner, learner.train_part, learner.tokens, data.train_position)
    folder = write_run(
        out,
        info,
        bias=learner.bias,
        model=learner.model.state_dict(),
        instances=replace(instances, conflict=data.conflicts.train if data.conflicts.train.any() else None),
        inputs=data.inputs,
        validation=predictions_of(learner.model, learner.validation_part, data.validation_position),
        conflicts=data.conflicts.rows,
    )
    checkpoint.remove()
    return folder


def train_recipe(
    recipe: Recipe,
    out: Path,
    *,
    place: Place,
    method: str = "wtc",
    seed: int = 0,
    on_epoch: OnEpoch = lambda seen: None,
) -> RunFolder:
    """Train one method of a recipe, and write the run folder `out`."""
    check_target(out)
    data = prepare_recipe(recipe, seed=seed, place=place)
    inputs = inputs_of(data.dataset)  # first: it may lack a package
    learner = RecipeLearner(recipe, data, get_method(method), seed=seed)
    checkpoint = checkpoint_beside(out)
    settings = {"method": method, "seed": seed, "model": str(learner.model), "config": recipe.config()}
    train(learner, recipe.epochs, checkpoint, fingerprint=_hash(settings), on_epoch=on_epoch)
    info = RunInfo(
        kind=kind_of(data.dataset),
        title=recipe.title,
        source=recipe.data,
        class_names=data.dataset.class_names,
        num_instances=data.num_instances,
        seed=seed,
        model={"recipe": recipe.name, "name": recipe.architecture, "config": recipe.config()},
        notes=(*recipe.notes, *data.dataset.notes),
        **_outcome(learner, recipe.epochs),
    )
    folder = write_run(
        out,
        info,
        bias=learner.bias,
        model=learner.model.state_dict(),
        instances=instances_of(learner, data.train, data.tokens, np.arange(len(data.train))),
        inputs=inputs,
        validation=predictions_of(learner.model, data.test, np.arange(len(data.test))),
    )
    checkpoint.remove()
    return folder


def _outcome(learner: Learner, epochs: int) -> dict[str, Any]:
    """Return what the training itself decided."""
    end = learner.bias.burn_in_end
    return {
        "method": learner.bias.method.name,
        "epochs": epochs,
        "burn_in": epochs if end is None else min(end, epochs),
        "window": learner.bias.history.window,
        "curves": learner.curves,
        "warnings": (*learner.warnings, *_without_emphasis(learner, epochs)),
    }


def _without_emphasis(learner: Learner, epochs: int) -> list[str]:
    """Say why a method that emphasises has not: its burn-in took all the epochs."""
    method, end = learner.bias.method, learner.bias.burn_in_end
    if "emphasis" not in (method.order, method.weights) or (end is not None and end < epochs):
        return []
    if end is not None:
        return [
            f"A burn-in of {end} epochs leaves none of the training's {epochs}, so that nothing was "
            f"emphasised. Train for more than {end} epochs, or give a smaller `--burn-in`."
        ]
    reason = "had not yet gone three epochs without a new best"
    if min(learner.curves["validation_error"]) == 100:
        reason = "was 100 % after every epoch"
    return [
        f"The burn-in never ended, so that nothing was emphasised: the validation error {reason}. "
        f"Train for more than {epochs} epochs, or give `--burn-in`."
    ]


def _hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
