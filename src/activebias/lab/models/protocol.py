"""What the training loop expects of a model."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class LabModel(Protocol):
    """What the lab's models have: logits and a regulariser. A user's own model needs the logits only."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the logits, (B, C), or (B, L, C) for tagging."""

    def regulariser(self) -> Tensor:
        """Return the scalar that is added to the mean loss of a batch; 0 when there is none."""

    def weight_decay(self) -> dict[str, float]:
        """Return λ by parameter where the regulariser is Σ ½ λ ‖·‖²: its gradient, λ times the parameter, is
        what an optimiser's weight decay adds, without a pass of its own over the weights.
        """
