"""A data set as a trial trains on it: noise drawn, tensors on the device, batches gathered by index."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from activebias import TokenIndex
from activebias.lab.data import Dataset, Examples, load, with_noise
from activebias.lab.randomness import derived_generator
from activebias.lab.recipe import Recipe, is_tagging, num_instances


@final
@dataclass(frozen=True)
class Part:
    """Training or test examples on the device."""

    inputs: tuple[Tensor, ...]
    targets: Tensor
    lengths: Tensor | None

    def __len__(self) -> int:
        """Return the number of examples (sentences, in tagging)."""
        return len(self.targets)

    def batch(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the inputs and targets of the given examples; sentences are cut at the longest of them."""
        inputs = tuple(tensor[index] for tensor in self.inputs)
        targets = self.targets[index]
        if targets.dim() == 2 and self.lengths is not None:
            longest = int(self.lengths[index].max())
            return tuple(tensor[:, :longest] for tensor in inputs), targets[:, :longest]
        return inputs, targets


@final
@dataclass(frozen=True)
class Prepared:
    """The data of one trial. `teacher` holds a teacher's probabilities (N, C) of the training examples."""

    dataset: Dataset
    train: Part
    test: Part
    tokens: TokenIndex | None
    num_instances: int
    device: torch.device
    teacher: Tensor | None = None

    def instances(self, index: Tensor, width: int) -> Tensor:
        """Return the instances of a batch of examples: the examples themselves, or their words (B, width)."""
        return index if self.tokens is None else self.tokens(index, width)


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
    """Draw the trial's label noise and move everything to the device."""
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
            f"`batch_size` must be at most the number of training examples, {len(dataset.train)}, "
            f"but got {recipe.batch_size}."
        )
    tokens = None
    if is_tagging(dataset):
        if dataset.train.lengths is None:
            raise ValueError("Tagging needs `lengths`, the number of words of each training sentence.")
        tokens = TokenIndex(dataset.train.lengths.tolist())
    return Prepared(
        dataset,
        _part(dataset.train, device),
        _part(dataset.test, device),
        tokens,
        num_instances(dataset) if tokens is None else tokens.num_instances,
        device,
        None if teacher is None else teacher.to(device),
    )


def _first(examples: Examples, limit: int) -> Examples:
    return examples.select(torch.arange(min(limit, len(examples))))


def _part(examples: Examples, device: torch.device) -> Part:
    inputs = examples.inputs
    if examples.targets.dim() == 2:
        # The tagging model takes word and shape of a token as one tensor (B, L, 2).
        inputs = (torch.stack(inputs, dim=-1),) if len(inputs) > 1 else inputs
    return Part(
        tuple(tensor.to(device) for tensor in inputs),
        examples.targets.to(device),
        None if examples.lengths is None else examples.lengths.to(device),
    )
