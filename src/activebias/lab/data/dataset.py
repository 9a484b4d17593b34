"""The data set that every reader of the lab returns, as tensors in RAM."""

from dataclasses import dataclass

from torch import Tensor

from activebias.training.examples import Examples


@dataclass(frozen=True)
class Dataset:
    """Training and test examples, with the facts for training and reports.

    ``embedding``: fixed word vectors, float32 (V, D); row 0 is padding, row 1 the unknown word.
    ``vocabulary``: the word of each row. ``clean_targets``: the true training labels, if
    ``train.targets`` has noise. ``notes``: sentences to show beside every result with this data.

    >>> import torch
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
        """Raise if the parts do not belong together."""
        if len(self.class_names) != self.num_classes:
            raise ValueError(
                f"`class_names` has {len(self.class_names)} names for {self.num_classes} classes."
            )
        if self.clean_targets is not None and self.clean_targets.shape != self.train.targets.shape:
            raise ValueError(
                f"`clean_targets` has shape {tuple(self.clean_targets.shape)}, but the training targets have "
                f"{tuple(self.train.targets.shape)}."
            )
