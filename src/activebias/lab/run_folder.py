"""Trains one method of a recipe, and writes a run folder."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from activebias import get_method
from activebias.internal import IGNORED
from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.prepared import Prepared, load_data, prepare
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.one_by_one import build_run
from activebias.lab.trials import teacher_probabilities
from activebias.runs.beliefs import instances_of, predictions_of
from activebias.runs.contents import Inputs, Kind, RunInfo
from activebias.runs.folder import RunFolder, check_target, require_pandas, write_run
from activebias.runs.outcome import outcome_of, resuming
from activebias.training.checkpoints import checkpoint_beside
from activebias.training.evaluation import evaluate
from activebias.training.fingerprint import digest_of_settings
from activebias.training.loop import OBSERVED_STATE, OnEpoch


def train_recipe(
    recipe: Recipe,
    out: Path,
    *,
    place: Place,
    method: str = "wtc",
    seed: int = 0,
    on_epoch: OnEpoch = lambda seen: None,
    on_message: Callable[[str], object] = lambda text: None,
) -> RunFolder:
    """Train one method of a recipe, and write the run folder `out`.

    The numbers are those of `activebias compare`. The validation part of the run folder is the recipe's test
    part. A stopped run resumes from its checkpoint, and `on_message` gets a sentence about it.
    """
    check_target(out)
    data = prepare_recipe(recipe, seed=seed, place=place)
    inputs = inputs_of(data.dataset)  # before training, because it fails if a package is missing
    run = build_run(recipe, data, [get_method(method)], seed=seed, observed=True)
    settings = {
        "state": OBSERVED_STATE,
        "method": method,
        "seed": seed,
        "model": str(run.model),
        "config": recipe.config(),
    }
    checkpoint = checkpoint_beside(out, digest_of_settings(settings))
    run.train(recipe.epochs, checkpoint, on_epoch, lambda epoch: on_message(resuming(epoch)))
    info = RunInfo(
        kind=kind_of(data.dataset),
        title=recipe.title,
        source=recipe.data,
        class_names=data.dataset.class_names,
        num_instances=data.num_instances,
        seed=seed,
        model={"recipe": recipe.name, "name": recipe.architecture, "config": recipe.config()},
        notes=(*recipe.notes, *data.dataset.notes),
        **outcome_of(run.bias, run.train_error, run.test_error, run.warnings),
    )
    folder = write_run(
        out,
        info,
        bias=run.bias,
        model=run.model.state_dict(),
        instances=instances_of(
            run.observers[0].mean_beliefs(run.epoch),
            data.train.targets,
            np.arange(len(data.train)),
            bias=run.bias,
        ),
        inputs=inputs,
        validation=predictions_of(evaluate(run.model, data.test), np.arange(len(data.test))),
        emphasis=run.emphasis,
    )
    checkpoint.remove()
    return folder


def prepare_recipe(recipe: Recipe, *, seed: int, place: Place) -> Prepared:
    """Load a recipe's data, draw its noise, and train its teacher if it has one."""
    dataset = load_data(recipe, place.data)
    teacher = None
    if recipe.teacher is not None:
        teacher = teacher_probabilities(recipe.teacher, dataset, place, Listener())
    device = torch.device(place.device)
    return prepare(recipe, dataset, seed=seed, device=device, root=place.data, teacher=teacher)


def kind_of(dataset: Dataset) -> Kind:
    """Return the kind of a recipe's data: tagged text, images or text."""
    if dataset.train.is_tagging:
        return "tagging"
    return "images" if dataset.train.inputs[0].dim() == 4 else "text"


def inputs_of(dataset: Dataset) -> Inputs:
    """Return the training instances of a recipe in a form to show to a person."""
    kind = kind_of(dataset)
    first = dataset.train.inputs[0]
    if kind == "images":
        return Inputs(images=_pixels(first.numpy()))
    pd = require_pandas("A run folder of text")
    vocabulary = np.array(dataset.vocabulary or (), dtype=object)
    if kind == "tagging":
        words = first[dataset.train.targets != IGNORED].numpy()
        return Inputs(rows=pd.DataFrame({"word": vocabulary[words]}))
    texts = [" ".join(vocabulary[row[row != 0]]) for row in first.numpy()]
    return Inputs(rows=pd.DataFrame({"text": texts}))


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images (N, C, H, W) as (N, H, W) or (N, H, W, 3); values from 0 to 16 (digits) are stretched."""
    if images.max(initial=0) <= 16:
        images = (images.astype(np.uint16) * 255 // 16).astype(np.uint8)
    return images[:, 0] if images.shape[1] == 1 else np.ascontiguousarray(images.transpose(0, 2, 3, 1))
