"""What the training loop expects of a model."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class LabModel(Protocol):
    """A module with logits and a regulariser; a user's own model needs nothing else."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the logits, (B, C), or (B, L, C) for tagging."""

    def regulariser(self) -> Tensor:
        """Return the scalar that is added to the mean loss of a batch; 0 when there is none."""
