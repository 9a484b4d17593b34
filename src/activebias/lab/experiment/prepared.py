"""The data of a trial (noise drawn, tensors on the device), and the result of the trial."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from activebias import Method, TokenIndex
from activebias.lab.data import Dataset, load, with_noise
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.rules import rule_of
from activebias.lab.experiment.splitting import Parts, split_rows
from activebias.training.examples import Examples
from activebias.training.randomness import derived_generator


@final
@dataclass(frozen=True)
class Prepared:
    """The data of one trial. `teacher` holds a teacher's probabilities (N, C) of the training examples.

    A trial of a recipe with a `split` has a validation part. `parts` are then the rows of its parts in
    `whole`, all examples, which stay where they are.
    """

    dataset: Dataset
    train: Examples
    test: Examples
    tokens: TokenIndex | None
    num_instances: int
    device: torch.device
    teacher: Tensor | None = None
    validation: Examples | None = None
    whole: Examples | None = None
    parts: Parts | None = None


def load_data(recipe: Recipe, root: str | Path | None = None) -> Dataset:
    """Load a recipe's data set, without noise, cut to the recipe's `limit`."""
    dataset = load(recipe.data, root, **recipe.data_options)
    if recipe.limit is None:
        return dataset
    return replace(
        dataset, train=_first(dataset.train, recipe.limit), test=_first(dataset.test, recipe.limit)
    )


def prepare(
    recipe: Recipe,
    dataset: Dataset,
    *,
    seed: int,
    device: torch.device,
    root: str | Path | None = None,
    teacher: Tensor | None = None,
) -> Prepared:
    """Draw the trial's split and label noise, and move all tensors to the device."""
    whole, parts = None, None
    if recipe.split is not None:
        whole, parts = dataset.train, split_rows(dataset.train, recipe.split, seed)
        dataset = replace(dataset, train=whole.select(parts.train), test=whole.select(parts.test))
    if recipe.noise is not None:
        dataset = with_noise(
            dataset,
            recipe.noise.kind,
            fraction=recipe.noise.fraction,
            seed=derived_generator(seed, "noise"),
            annotation=recipe.noise.annotation,
            root=root,
        )
    if len(dataset.train) < recipe.batch_size:
        raise ValueError(
            f"Expected `batch_size` to be at most the number of training examples, {len(dataset.train)}, "
            f"but got {recipe.batch_size}."
        )
    tokens = None
    if dataset.train.is_tagging:
        if dataset.train.lengths is None:
            raise ValueError("Tagging needs `lengths`, the number of words of each training sentence.")
        tokens = TokenIndex(dataset.train.lengths.tolist())
    return Prepared(
        dataset,
        _to(device, dataset.train),
        _to(device, dataset.test),
        tokens,
        len(dataset.train) if tokens is None else tokens.num_instances,
        device,
        None if teacher is None else teacher.to(device),
        None if whole is None or parts is None else _to(device, whole.select(parts.validation)),
        whole,
        parts,
    )


def _first(examples: Examples, limit: int) -> Examples:
    return examples.select(torch.arange(min(limit, len(examples))))


def _to(device: torch.device, examples: Examples) -> Examples:
    if examples.is_tagging and len(examples.inputs) > 1:
        # The tagging model takes word and shape of a token as one tensor (B, L, 2).
        examples = replace(examples, inputs=(torch.stack(examples.inputs, dim=-1),))
    return examples.to(device)


def trial_result(
    recipe: Recipe,
    data: Prepared,
    method: Method,
    seed: int,
    *,
    test_error: Sequence[float],
    train_error: Sequence[float],
    seconds: float,
    validation_error: Sequence[float] = (),
    device: torch.device | None = None,
    **details: Any,
) -> TrialResult:
    """Return the result of a trial with its details: hardware, noise, notes of the data."""
    device = device or data.device
    if device.type == "cpu":
        details["threads"] = torch.get_num_threads()
    clean = data.dataset.clean_targets
    if clean is not None:
        details["wrong_labels"] = int((clean != data.dataset.train.targets).sum())
    if validation_error:
        details["validation_error"] = [round(float(error), 6) for error in validation_error]
    if data.dataset.notes:
        details["notes"] = list(data.dataset.notes)
    return TrialResult(
        recipe=recipe.name,
        method=method.name,
        seed=seed,
        config=recipe.config(),
        test_error=list(test_error),
        train_error=list(train_error),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        seconds=seconds,
        details=details,
        rule=rule_of(method),
    )
