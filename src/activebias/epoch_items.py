"""The items of one epoch by their position: a permutation, or draws that continue from a position."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

Draw = Callable[[int, torch.Generator], torch.Tensor]

# Draws before the position, made at a time only to move the generator on.
PASSED_OVER_AT_ONCE = 2**20


def epoch_generator(seed: int, epoch: int, *purpose: int) -> torch.Generator:
    """Return a generator of its own for every (seed, epoch), and for every other purpose than the order.

    `seed + epoch` would give trial 0 in epoch 1 the order of trial 1 in epoch 0. (Seeds that differ by
    a multiple of 2³² can still meet so; seeds that are drawn or hashed practically never do.)
    """
    low, high = (int(word) for word in np.random.SeedSequence([seed, epoch, *purpose]).generate_state(2))
    return torch.Generator("cpu").manual_seed(low | high << 31)


class EpochItems:
    """The items of an epoch; every iteration over them has a generator of its own."""

    def __init__(self, num_items: int, *, seed: int, epoch: int, draw: Draw | None) -> None:
        """Use `draw(number, generator)`; None for a permutation."""
        self.num_items = num_items
        self._seed, self._epoch, self._draw = seed, epoch, draw
        # Draws that a loaded state brought, the position of the first, and the generator's state after them.
        self._pending, self._pending_from = np.empty(0, dtype=np.int64), 0
        self._generator_state = epoch_generator(seed, epoch).get_state()

    def generator_at(self, position: int) -> torch.Generator | None:
        """Return a generator as it stands when all items before `position` are drawn; None for a scan."""
        if self._draw is None:
            return None
        generator = torch.Generator("cpu")
        generator.set_state(self._generator_state)
        left = position - self._pending_from - len(self._pending)
        while left > 0:
            self._draw(min(left, PASSED_OVER_AT_ONCE), generator)
            left -= PASSED_OVER_AT_ONCE
        return generator

    def at(self, position: int, number: int, generator: torch.Generator | None) -> np.ndarray:
        """Return the items from `position` on: of the permutation, or drawn now."""
        if self._draw is None or generator is None:
            return self.permutation[position : position + number]
        start = position - self._pending_from
        pending = self._pending[start : start + number]
        if len(pending) == number:
            return pending
        return np.concatenate([pending, self._draw(number - len(pending), generator).numpy()])

    @cached_property
    def permutation(self) -> np.ndarray:
        """A scan's whole order, drawn when it is first asked for."""
        # int32 while it can: at 100 million instances the permutation is a fifth of all memory.
        dtype = torch.int32 if self.num_items < 2**31 else torch.int64
        generator = epoch_generator(self._seed, self._epoch)
        return torch.randperm(self.num_items, generator=generator, dtype=dtype, device="cpu").numpy()

    def pending(self, position: int) -> tuple[np.ndarray, torch.Tensor]:
        """Return the draws from `position` on that a loaded state brought, and the generator's state."""
        return self._pending[position - self._pending_from :], self._generator_state

    def go_on(self, position: int, pending: np.ndarray, generator_state: torch.Tensor) -> None:
        """Go on from `position` with these draws, then with a generator in that state."""
        self._pending, self._pending_from = pending.copy(), position
        self._generator_state = generator_state.clone()
