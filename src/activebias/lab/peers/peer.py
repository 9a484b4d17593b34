"""A peer: another loss, choice of instances, order or average of weights; once for one or K models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor


class Batch(NamedTuple):
    """A batch as a peer sees it, of one model, or of K models with a leading dimension.

    `losses` (…, B) is the cross-entropy of every instance, `log_prob` (…, B, C) the logarithms of the class
    probabilities. `rows` (…, B, R) is the peer's memory of these instances. `chance` (…, B) holds uniform
    random numbers. `epoch` counts from 0 (a tensor, which a CUDA graph reads), `epochs` is their number.
    """

    losses: Tensor
    log_prob: Tensor
    epoch: Tensor
    epochs: int
    rows: Tensor | None = None
    chance: Tensor | None = None


class Plan(NamedTuple):
    """The instances of an epoch in their order, and the weight of every instance (N,) in that epoch."""

    order: Tensor
    weights: Tensor


class Epoch(NamedTuple):
    """An epoch to plan: its number from 0, the number of epochs, and how many instances it trains on."""

    number: int
    epochs: int
    length: int


# A value of the peer's parameter: a tensor without dimensions, or (K, 1) for K models.
Value = Tensor
OfBatch = Callable[[Batch, Value], Tensor]
Planner = Callable[[Tensor, Value, Epoch, torch.Generator], Plan]


@final
@dataclass(frozen=True, kw_only=True)
class Peer:
    """A peer by its functions; a function that is None leaves plain training as it is.

    Args:
        name: the name on the command line and in results.
        parameter: the name of its one parameter.
        values: the values that a search tries.
        default: the value without a search, as its authors recommend.
        loss: the loss of every instance.
        weights: the weights of the losses in a batch, whose mean is taken. Not for tagging.
        remember: the new memory of a batch's instances, (…, B, R), before `loss` sees it. Not for tagging.
        first_row: the memory (R,) of an instance that was never trained on, from the number of classes.
        plan: the order and weights of an epoch, from the memory (N, R) of one model. Not for tagging, and not
            together with a method.
        averages: whether evaluation uses a moving average of the weights, with the parameter as its decay.
        passes: the passes of a step, in words.
    """

    name: str
    parameter: str
    values: tuple[float, ...]
    default: float
    loss: OfBatch | None = None
    weights: OfBatch | None = None
    remember: OfBatch | None = None
    first_row: Callable[[int], Tensor] | None = None
    plan: Planner | None = None
    averages: bool = False
    passes: str = "1 forward, 1 backward"

    @property
    def can_tag(self) -> bool:
        """Whether the peer can train a tagger, whose words come in whole sentences."""
        return self.weights is None and self.remember is None and self.plan is None


def last_losses(batch: Batch, value: Value) -> Tensor:
    """Return a peer's memory of the last losses: those of the batch's instances, (…, B, 1)."""
    return batch.losses.detach().unsqueeze(-1)
