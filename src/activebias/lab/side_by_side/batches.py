"""The data of the trials of a run, and the random numbers of every trial, epoch by epoch.

Every number comes from the same generator as in a trial trained alone, and is therefore the same number.
The methods of a trial share the numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from activebias.internal import epoch_generator
from activebias.lab.experiment.prepared import Prepared
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.splitting import Parts
from activebias.lab.models import draw_shifts
from activebias.training.examples import Examples
from activebias.training.randomness import derived_generator, derived_seed


@final
@dataclass(frozen=True)
class EpochNumbers:
    """The random numbers of an epoch: for S trials, T iterations and batches of B examples, on the device.

    `order` (S, T, B): the examples in a scan, or drawn uniformly. `uniform` (S, T, B): float64, for draws by
    emphasis, or None. `shifts` (S, T, 3, B): the crop positions of the images, and which images are flipped.
    `widths`: in tagging, the length of the longest sentence of every iteration. `chance` (S, T, B): float32,
    for the peers that draw within a batch.
    """

    order: Tensor
    uniform: Tensor | None
    shifts: Tensor | None
    widths: list[int] | None
    chance: Tensor | None = None

    def overwritten_by(self, new: "EpochNumbers") -> "EpochNumbers":
        """Copy the new numbers into this storage, because a CUDA graph may hold its address; return them."""
        for old, fresh in (
            (self.order, new.order),
            (self.uniform, new.uniform),
            (self.shifts, new.shifts),
            (self.chance, new.chance),
        ):
            if old is not None and fresh is not None:
                old.copy_(fresh)
        return replace(self, widths=new.widths)


@final
class TrialData:
    """The data of S trials on the device: shared inputs, and training targets (S, N, …) per trial.

    Splits of one data set share its inputs too: `parts` (S, …) are then the rows of each trial's parts, and
    `whole` are all examples.
    """

    def __init__(
        self, recipe: Recipe, prepared: Sequence[Prepared], seeds: Sequence[int], device: torch.device
    ) -> None:
        """Use the data that `prepare` returned for every seed, on the CPU."""
        self.recipe, self.seeds, self.device = recipe, tuple(seeds), device
        first = prepared[0]
        self.dataset, self.tokens, self.num_instances = first.dataset, first.tokens, first.num_instances
        self.prepared = tuple(prepared)
        self.inputs = tuple(tensor.to(device) for tensor in first.train.inputs)
        self.targets = torch.stack([each.train.targets for each in prepared]).to(device)
        self.test = first.test.to(device)
        self.validation: Examples | None = None
        if first.validation is not None:
            targets = torch.stack([each.validation.targets for each in prepared if each.validation])
            self.validation = first.validation.to(device)
            self.validation_targets = targets.to(device)
        self.lengths = first.train.lengths
        self.teacher = None if first.teacher is None else first.teacher.to(device)
        self._shifts = [derived_generator(seed, "augmentation") for seed in seeds]
        self.whole: Examples | None = None
        self.parts: Parts | None = None
        if len(prepared) > 1 and first.whole is not None:
            self.whole = first.whole.to(device)
            self.inputs = self.whole.inputs
            splits = [each.parts for each in prepared if each.parts is not None]
            self.parts = Parts(*(torch.stack(rows).to(device) for rows in zip(*splits, strict=True)))

    @property
    def num_iterations(self) -> int:
        """The number of iterations per epoch: floor(|D| / batch)."""
        return self.num_examples // self.recipe.batch_size

    @property
    def num_examples(self) -> int:
        """The number of training examples of a trial."""
        return int(self.targets.shape[1])

    def batch_inputs(self, index: Tensor, trial: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs of training examples (K, B); `trial` (K,) says whose examples they are."""
        rows = index if self.parts is None else self.parts.train[trial[:, None], index]
        return tuple(tensor[rows] for tensor in self.inputs)

    def validation_batch(self, index: Tensor, trial: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs and targets of validation examples (K, B)."""
        trial = trial[:, None]
        if self.parts is not None and self.whole is not None:
            rows = self.parts.validation[trial, index]
            return tuple(tensor[rows] for tensor in self.whole.inputs), self.whole.targets[rows]
        assert self.validation is not None
        return tuple(tensor[index] for tensor in self.validation.inputs), self.validation_targets[
            trial, index
        ]

    @property
    def num_validation(self) -> int:
        """The number of validation examples of a trial, 0 without a validation part."""
        if self.parts is not None:
            return int(self.parts.validation.shape[1])
        return 0 if self.validation is None else len(self.validation)

    def numbers(self, epoch: int, *, scans: bool, chance: bool = False) -> EpochNumbers:
        """Draw the numbers of an epoch, with `chance` for peers; call this for every epoch, in order."""
        shape = (len(self.seeds), self.num_iterations, self.recipe.batch_size)
        used, number = shape[1] * shape[2], self.num_examples
        orders, uniforms = [], []
        for seed in self.seeds:
            order_seed = derived_seed(seed, "order")
            generator = epoch_generator(order_seed, epoch)
            if scans:
                orders.append(torch.randperm(number, generator=generator, dtype=torch.int32)[:used])
            else:
                orders.append(torch.randint(number, (used,), generator=generator))
                generator = epoch_generator(order_seed, epoch)
                uniforms.append(torch.rand(used, dtype=torch.float64, generator=generator))
        order = torch.stack(orders).view(shape)
        widths = None
        if self.lengths is not None:
            widths = self.lengths[order.long()].amax(dim=(0, 2)).tolist()
        return EpochNumbers(
            order.to(self.device).long(),
            torch.stack(uniforms).view(shape).to(self.device) if uniforms else None,
            self._draw_shifts(shape),
            widths,
            self._draw_chance(epoch, shape) if chance else None,
        )

    def _draw_chance(self, epoch: int, shape: tuple[int, int, int]) -> Tensor:
        drawn = [
            torch.rand(shape[1] * shape[2], generator=self.peer_generator(seed, epoch)) for seed in self.seeds
        ]
        return torch.stack(drawn).view(shape).to(self.device)

    @staticmethod
    def peer_generator(seed: int, epoch: int) -> torch.Generator:
        """Return the generator of a trial's peers in an epoch."""
        return epoch_generator(derived_seed(seed, "peer"), epoch)

    def _draw_shifts(self, shape: tuple[int, int, int]) -> Tensor | None:
        if self.recipe.augmentation is None:
            return None
        drawn = [
            torch.stack([draw_shifts(shape[2], generator) for _ in range(shape[1])])
            for generator in self._shifts
        ]
        return torch.stack(drawn).to(self.device)

    def state_dict(self) -> list[Tensor]:
        """Return the states of the generators that continue from epoch to epoch."""
        return [generator.get_state() for generator in self._shifts]

    def load_state_dict(self, state: Sequence[Tensor]) -> None:
        """Restore the generators from a `state_dict`."""
        for generator, value in zip(self._shifts, state, strict=True):
            generator.set_state(value)
