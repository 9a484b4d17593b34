"""Indices on a GPU, compared with those handed out without waiting for the device."""

import numpy as np
import torch

# Every batch would cost a small model's step a hundredth. A wrong index comes in many batches.
EVERY = 16


class Checksum:
    """Two sums over indices of an epoch, one on the GPU and one on the host, that must agree in the end.

    They look at the first 16 batches and then at every 16th. The sums depend on the order of the indices
    within a batch and of the batches.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._number = 0
        self._expected = 0
        self._seen: torch.Tensor | None = None

    def add(self, index: torch.Tensor, expected: np.ndarray) -> None:
        """Add a batch that came back, and the items that were handed out; padding behind them is left out."""
        if torch.cuda.is_current_stream_capturing():
            return  # a graph of the user's replays without the host
        self._number += 1
        if self._number > EVERY and self._number % EVERY:
            return
        ramp = np.arange(1, len(expected) + 1)
        self._expected += self._number * int((expected * ramp).sum())
        if self._seen is None:
            self._seen = torch.zeros((), dtype=torch.int64, device=index.device)
        ramp_there = torch.arange(1, len(expected) + 1, device=index.device)
        self._seen.add_((index[: len(expected)] * ramp_there).sum(), alpha=self._number)

    def agrees(self) -> bool:
        """Return whether all indices were those handed out; waits for the device if there were any."""
        if self._seen is None:
            return True
        return (int(self._seen) - self._expected) % 2**64 == 0  # both sums may have wrapped around
