"""A learning rate per model, as a factor of the recipe's rate."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from activebias.lab.side_by_side.momentum import HalfPrecisionSGD
from activebias.lab.side_by_side.stacking import Stack


@final
class LaneRates:
    """The factors (K,) of the models' learning rates, and the step of an optimiser with them.

    torch's optimisers have one rate for a tensor. Their steps are proportional to it, so that a step with
    another rate is the step times the factor.
    """

    def __init__(self, factors: Tensor, stack: Stack) -> None:
        """Use factors on the device; `of` leaves them out where all are 1."""
        self.factors = factors
        self._parameters = list(stack.parameters.values())

    @staticmethod
    def of(factors: Sequence[float], stack: Stack) -> "LaneRates | None":
        """Return the rates of K models, or None if all have the recipe's rate."""
        if all(factor == 1 for factor in factors):
            return None
        return LaneRates(torch.tensor(factors, device=stack.device), stack)

    @torch.no_grad()
    def step(self, optimiser: torch.optim.Optimizer) -> None:
        """Update the parameters, every model with its own rate."""
        if isinstance(optimiser, HalfPrecisionSGD):  # its rate is already one per model
            optimiser.step()
            return
        before = [parameter.clone() for parameter in self._parameters]
        optimiser.step()
        for parameter, old in zip(self._parameters, before, strict=True):
            factor = self.factors.view(-1, *(1 for _ in parameter.shape[1:]))
            parameter.copy_(old + factor * (parameter - old))
