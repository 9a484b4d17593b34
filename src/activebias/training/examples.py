"""Examples in RAM or on a GPU: inputs and targets as tensors, selected by index."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from activebias.internal import IGNORED


@final
@dataclass(frozen=True)
class Examples:
    """Inputs and targets; the first dimension is the number of examples.

    Images: ``inputs = (pixels,)``, raw uint8 (N, C, H, W). Questions: ``inputs = (word_ids,)``, int64 (N,
    L), padded with 0. Tagging: ``inputs = (word_ids, shape_ids)``, both int64 (S, L), padded with 0, and
    ``targets`` (S, L) padded with -100. ``lengths`` holds the length of each row without padding.

    >>> examples = Examples((torch.zeros(3, 1, 2, 2, dtype=torch.uint8),), torch.tensor([0, 1, 0]))
    >>> len(examples), len(examples.select(torch.tensor([0, 2])))
    (3, 2)
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        """Raise if the tensors do not belong together."""
        if not self.inputs:
            raise ValueError("`inputs` needs at least one tensor, but got none.")
        if self.targets.dtype != torch.int64:
            raise TypeError(
                f"Expected `targets` to be int64, but got {self.targets.dtype}: call `.long()` on it."
            )
        count = self.targets.shape[0]
        others = [("inputs", tensor) for tensor in self.inputs]
        if self.lengths is not None:
            others.append(("lengths", self.lengths))
        for name, tensor in others:
            if tensor.shape[0] != count:
                raise ValueError(f"`{name}` has {tensor.shape[0]} examples, but `targets` has {count}.")

    def __len__(self) -> int:
        """Return the number of examples (sentences, for tagging)."""
        return int(self.targets.shape[0])

    def select(self, positions: Tensor) -> "Examples":
        """Return the examples at the given positions, in the given order."""
        return Examples(
            tuple(tensor[positions] for tensor in self.inputs),
            self.targets[positions],
            None if self.lengths is None else self.lengths[positions],
        )

    def to(self, device: torch.device) -> "Examples":
        """Return the examples on a device."""
        return Examples(
            tuple(tensor.to(device) for tensor in self.inputs),
            self.targets.to(device),
            None if self.lengths is None else self.lengths.to(device),
        )

    @property
    def is_tagging(self) -> bool:
        """Whether every word of a sentence is an instance."""
        return self.targets.dim() == 2

    def batch(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs and targets of the given examples; sentences are cut at the longest of them."""
        inputs = tuple(tensor[index] for tensor in self.inputs)
        targets = self.targets[index]
        if self.is_tagging and self.lengths is not None:
            longest = int(self.lengths[index].max())
            return tuple(tensor[:, :longest] for tensor in inputs), targets[:, :longest]
        return inputs, targets


def joined(first: Examples, second: Examples) -> Examples:
    """Return the examples of both; sentences are padded to the same length."""
    parts = (first, second)
    inputs = tuple(_stacked(pair, 0) for pair in zip(*(part.inputs for part in parts), strict=True))
    lengths = [part.lengths for part in parts if part.lengths is not None]
    targets = _stacked([part.targets for part in parts], IGNORED)
    return Examples(inputs, targets, torch.cat(lengths) if lengths else None)


def _stacked(tensors: Sequence[Tensor], padding: int) -> Tensor:
    if tensors[0].shape[1:] == tensors[1].shape[1:]:
        return torch.cat(list(tensors))
    width = max(tensor.shape[1] for tensor in tensors)
    return torch.cat(
        [
            F.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, width - tensor.shape[1]], value=padding)
            for tensor in tensors
        ]
    )
