"""The data of a trial (noise drawn, tensors on the device), and the result of the trial."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from activebias import TokenIndex
from activebias.lab.data import Dataset, load, with_noise
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import Side
from activebias.lab.experiment.splitting import Parts, split_rows
from activebias.lab.peers import Peer
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
    """Draw the trial's split and noise, hold the validation part out, and move all tensors to the device."""
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
    validation = None if whole is None or parts is None else whole.select(parts.validation)
    if recipe.validation is not None:
        dataset, validation = _hold_out(dataset, recipe.validation)
    if teacher is not None and len(teacher) != len(dataset.train):
        raise ValueError(
            f"Expected a teacher of the {len(dataset.train)} training examples, but got one of "
            f"{len(teacher)}: it may have seen the validation part. Use `recipe.holding_out(share)`."
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
        None if validation is None else _to(device, validation),
        whole,
        parts,
    )


def _hold_out(dataset: Dataset, share: float) -> tuple[Dataset, Examples]:
    """Return the data set without a share of its training examples, and these examples.

    All trials hold out the same examples, so that trials side by side share their inputs. The labels of a
    validation part are as noisy as the others.
    """
    number = len(dataset.train)
    order = torch.randperm(number, generator=derived_generator(0, "validation"))
    held, kept = (
        part.sort().values for part in (order[: round(share * number)], order[round(share * number) :])
    )
    clean = None if dataset.clean_targets is None else dataset.clean_targets[kept]
    return replace(dataset, train=dataset.train.select(kept), clean_targets=clean), dataset.train.select(held)


def check_peer(peer: Peer | None, data: Prepared) -> None:
    """Raise if the peer cannot train on this data."""
    if peer is None:
        return
    if data.tokens is not None and not peer.can_tag:
        raise ValueError(
            f"Expected a peer that can tag, because the words of a sentence train together, but got "
            f"{peer.name!r}: use focal, label-smoothing, gce, sce or ema."
        )
    if data.teacher is not None:
        raise ValueError(f"Expected no teacher with the peer {peer.name!r}: use a recipe without a teacher.")


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
    side: Side,
    seed: int,
    *,
    test_error: Sequence[float],
    train_error: Sequence[float],
    validation_error: Sequence[float] = (),
    seconds: float,
    device: torch.device | None = None,
    **details: Any,
) -> TrialResult:
    """Return the result of a trial with its details: hardware, noise, notes of the data.

    The errors are of every epoch. Training errors that the recipe does not have are left out.
    """
    device = device or data.device
    evaluated = [epoch for epoch in range(len(train_error)) if recipe.has_train_error(epoch)]
    if len(evaluated) < len(train_error):
        details["train_epochs"] = [epoch + 1 for epoch in evaluated]
    if device.type == "cpu":
        details["threads"] = torch.get_num_threads()
    clean = data.dataset.clean_targets
    if clean is not None:
        details["wrong_labels"] = int((clean != data.dataset.train.targets).sum())
    if data.dataset.notes:
        details["notes"] = list(data.dataset.notes)
    return TrialResult(
        recipe=recipe.name,
        method=side.name,
        seed=seed,
        config=recipe.config(),
        test_error=list(test_error),
        train_error=[train_error[epoch] for epoch in evaluated],
        validation_error=list(validation_error) or None,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        seconds=seconds,
        details=details,
        rule=side.rule,
    )
