"""What every reader returns: a data set in memory, as plain tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

# The value of a target that is no instance (padding of a sentence); torch's cross-entropy ignores it by
# default.
IGNORE = -100


@dataclass(frozen=True)
class Examples:
    """Inputs and targets whose first dimension counts the examples.

    Images: ``inputs = (pixels,)``, uint8 (N, C, H, W), raw. Questions: ``inputs = (word_ids,)``, int64 (N,
    L), padded with 0. Tagging: ``inputs = (word_ids, shape_ids)``, both int64 (S, L), padded with 0, and
    ``targets`` (S, L) padded with ``IGNORE``. ``lengths`` says how much of each row is no padding.

    >>> examples = Examples((torch.zeros(3, 1, 2, 2, dtype=torch.uint8),), torch.tensor([0, 1, 0]))
    >>> len(examples), len(examples.select(torch.tensor([0, 2])))
    (3, 2)
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse tensors that do not belong together."""
        if not self.inputs:
            raise ValueError("`inputs` needs at least one tensor, but got none.")
        if self.targets.dtype != torch.int64:
            raise TypeError(f"`targets` must be int64, but got {self.targets.dtype}: call `.long()` on it.")
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
        """Return the examples at the given positions, in that order."""
        return Examples(
            tuple(tensor[positions] for tensor in self.inputs),
            self.targets[positions],
            None if self.lengths is None else self.lengths[positions],
        )


@dataclass(frozen=True)
class Dataset:
    """Training and test examples with what is needed to train on them and to report about them.

    ``embedding``: fixed word vectors, float32 (V, D); row 0 is padding, row 1 the unknown word.
    ``vocabulary``: the word of each row. ``clean_targets``: the true training labels, when
    ``train.targets`` carries noise. ``notes``: sentences that belong beside any result obtained with this
    data.

    >>> examples = Examples((torch.zeros(2, 4),), torch.tensor([0, 1]))
    >>> dataset = Dataset("toy", examples, examples, 2, ("cat", "dog"))
    >>> dataset.num_classes, dataset.clean_targets is None
    (2, True)
    """

    name: str
    train: Examples
    test: Examples
    num_classes: int
    class_names: tuple[str, ...]
    embedding: Tensor | None = None
    vocabulary: tuple[str, ...] | None = None
    clean_targets: Tensor | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        if len(self.class_names) != self.num_classes:
            raise ValueError(
                f"`class_names` has {len(self.class_names)} names for {self.num_classes} classes."
            )
        if self.clean_targets is not None and self.clean_targets.shape != self.train.targets.shape:
            raise ValueError(
                f"`clean_targets` has shape {tuple(self.clean_targets.shape)}, but the training targets have "
                f"{tuple(self.train.targets.shape)}."
            )
