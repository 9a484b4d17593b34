"""The interface of the lab's models."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class LabModel(Protocol):
    """A model of the lab: logits and a regulariser. A user's model needs the logits only."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the logits, (B, C), or (B, L, C) for tagging."""

    def regulariser(self) -> Tensor:
        """Return the scalar that is added to the mean loss of a batch, or 0."""

    def weight_decay(self) -> dict[str, float]:
        """Return λ by parameter, for a regulariser Σ ½ λ ‖·‖².

        Its gradient, λ times the parameter, equals an optimiser's weight decay, which needs no additional
        pass over the weights.
        """
