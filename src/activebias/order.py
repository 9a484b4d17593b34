"""The order of one epoch: what has been drawn, what has been trained on, and how to go on from there."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """Return a generator of its own for every (seed, epoch).

    `seed + epoch` would give trial 0 in epoch 1 the order of trial 1 in epoch 0. (Seeds that differ by
    a multiple of 2³² can still meet so; seeds that are drawn or hashed practically never do.)
    """
    low, high = (int(word) for word in np.random.SeedSequence([seed, epoch]).generate_state(2))
    return torch.Generator("cpu").manual_seed(low | high << 31)


class EpochOrder:
    """The order of the instances (or sentences) of the current epoch, on every rank the same.

    `position` counts what has been recorded. What is drawn but not yet recorded is kept, so that a run that
    goes on from a checkpoint sees the very batches that were under way.
    """

    def __init__(
        self, num_items: int, *, seed: int, draw: Callable[[int, torch.Generator], torch.Tensor]
    ) -> None:
        """Use `draw(number, generator)` for the epochs that draw with replacement."""
        self.num_items = num_items
        self.seed = seed
        self.epoch: int | None = None
        self.position = 0
        self._draw = draw
        self._scans = True
        self._begin()

    def _begin(self) -> None:
        self.position = 0
        self._drawn: torch.Tensor | None = None  # a scan's permutation, or the latest draws
        self._drawn_from = 0  # the position of the first entry of `_drawn`
        self.asked = self.recorded = False  # whether somebody drew, and trained, in this epoch
        self._ended_from: int | None = None  # where the iteration began that reached the epoch's end
        self._times_ended = 0  # how often in a row one has from there
        self._generator = epoch_generator(self.seed, self.epoch or 0)

    def begin(self, epoch: int, *, scans: bool) -> None:
        """Begin `epoch`, in a new permutation (`scans`) or with draws."""
        self.epoch, self._scans = epoch, scans
        self._begin()

    def warn_if_nobody_drew(self, method: str) -> None:
        """Warn of an epoch that was trained in somebody else's order, by a method that lives by its own."""
        if self.recorded and not self.asked:
            warnings.warn(
                f"Method {method!r} emphasises by the order of the instances, but in epoch {self.epoch} "
                "nobody asked for one: give the DataLoader `sampler=bias.sampler(…)`, or draw from "
                "`bias.probabilities()`.",
                stacklevel=3,
            )

    def resize(self, num_items: int) -> None:
        """Order another number of things: the sentences of a tagging task, whose words are the instances."""
        if num_items == self.num_items:
            return
        if self.position:
            raise ValueError(
                f"The epoch under way orders {self.num_items} items, but the sampler is to order "
                f"{num_items}: pass the same `num_sequences` as before, or begin another epoch first."
            )
        self.num_items = num_items
        self._begin()

    def advance(self, num_items: int) -> None:
        """Count as trained on what came next in the order."""
        self.position = min(self.position + num_items, self.num_items)
        if not self._scans and self._drawn is not None:
            done = min(self.position - self._drawn_from, self._drawn.numel())
            self._drawn = self._drawn[done:]
            self._drawn_from += done

    def batches(self, batch_size: int) -> Iterator[torch.Tensor]:
        """Yield what is left of the epoch, each batch drawn when it is asked for."""
        if self.epoch is None:
            raise RuntimeError(
                "The order needs to know the epoch: call `bias.set_epoch(epoch)` before iterating."
            )
        self.asked = True
        # A last short batch may have been fetched but not trained on. Asking for it a second time, however,
        # shows that nobody will: it is dropped (drop_last), and `set_epoch` was forgotten. Where nothing was
        # trained on yet, somebody may have only looked, once.
        left = self.num_items - self.position
        dropped = self.position == self._ended_from and self._times_ended > (0 if self.recorded else 1)
        if self._ended_from is not None and (left == 0 or (left < batch_size and dropped)):
            raise RuntimeError(
                f"Epoch {self.epoch} has been iterated to its end: call `bias.set_epoch({self.epoch + 1})` "
                "before the next one."
            )
        epoch, start, cursor = self.epoch, self.position, self.position
        while cursor < self.num_items and self.epoch == epoch:
            batch = self._at(cursor, min(batch_size, self.num_items - cursor))
            cursor += batch.numel()
            if cursor >= self.num_items:
                self._times_ended = self._times_ended + 1 if self._ended_from == start else 1
                self._ended_from = start
            yield batch

    def _at(self, cursor: int, size: int) -> torch.Tensor:
        """Return up to `size` entries of the order from position `cursor` on."""
        if self._scans and self._drawn is None:
            # int32 while it can: at 100 million instances the permutation is a fifth of all memory.
            dtype = torch.int32 if self.num_items < 2**31 else torch.int64
            self._drawn = torch.randperm(self.num_items, generator=self._generator, dtype=dtype, device="cpu")
        if self._drawn is None:
            self._drawn, self._drawn_from = torch.empty(0, dtype=torch.int64, device="cpu"), cursor
        start = cursor - self._drawn_from
        if start >= self._drawn.numel():
            drawn = self._draw(size, self._generator)
            self._drawn = torch.cat([self._drawn, drawn]) if self._drawn.numel() else drawn
        return self._drawn[start : start + size].long()

    def state_dict(self) -> dict[str, Any]:
        """Return where the epoch stands."""
        pending = None if self._scans or self._drawn is None else self._drawn.clone()
        return {
            "epoch": self.epoch,
            "scans": self._scans,
            "num_items": self.num_items,
            "position": self.position,
            "pending": pending,
            "pending_from": self._drawn_from,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` stood."""
        self.epoch, self._scans, self.num_items = state["epoch"], state["scans"], state["num_items"]
        self._begin()
        self.position = state["position"]
        if not self._scans:
            # A scan's permutation comes again from the epoch's seed; draws depend on what was drawn before.
            self._drawn, self._drawn_from = state["pending"], state["pending_from"]
            self._generator.set_state(state["generator"])
