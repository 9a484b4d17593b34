"""Measures the alignments of the method `auto`: does training at a knot lower the validation loss?"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from activebias.evidence import NUM_KNOTS, place_of
from activebias.indexing import TokenIndex
from activebias.trust import Trust, number_by_class

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias

MEMBERS = 64  # training instances of a knot, each time
VALIDATION = 1024  # validation examples, each time
IN_FLOAT64 = 2**22  # numbers of a gradient that are copied to float64 at a time

Losses = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""From the numbers of examples to losses, and to their instances or, in validation, labels (-1: none)."""


class Sources(NamedTuple):
    """A model's parameters, and the losses of examples of the two parts that a curve is learnt from."""

    parameters: Sequence[torch.Tensor]
    training: Losses
    num_training: int
    validation: Losses
    num_validation: int
    at_once: int = MEMBERS
    tokens: TokenIndex | None = None

    def examples_of(self, instances: torch.Tensor) -> torch.Tensor:
        """Return the examples that hold the instances: in tagging, the sentences of words."""
        return instances if self.tokens is None else self.tokens.sequence_of(instances)


class Members(NamedTuple):
    """The knot that every instance is nearest to, and how many instances each knot has."""

    knot: torch.Tensor
    number: torch.Tensor

    @staticmethod
    def of(means: torch.Tensor) -> "Members":
        """Assign the instances to knots by p̄."""
        knot = place_of(means).round().long().cpu()
        return Members(knot, torch.bincount(knot, minlength=NUM_KNOTS))

    @property
    def share(self) -> torch.Tensor:
        """The share of the instances that each knot has."""
        return self.number.double() / self.number.sum()

    @property
    def known(self) -> torch.Tensor:
        """How far the alignment of each knot is known: 1 where MEMBERS instances are measured."""
        return self.number.clamp(max=MEMBERS).double() / MEMBERS

    def drawn(self, knot: int, order: torch.Tensor) -> torch.Tensor:
        """Return up to MEMBERS instances of a knot, the first ones in a random order of all instances."""
        return order[self.knot[order] == knot][:MEMBERS]


def alignments(
    bias: "ActiveBias", sources: Sources, members: Members, trust: Trust, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a_b = <G_b, g> of every knot, 0 where it has no instances; the ranks share the work.

    The alignments, (2, knots), are with the gradients of both losses of `Judge.losses`. The second value is
    the number of validation labels by class.
    """
    ranks = bias._ranks
    rank, number = ranks.rank(), ranks.number()
    order = torch.randperm(len(members.knot), generator=generator, device="cpu")
    chosen = torch.randperm(sources.num_validation, generator=generator, device="cpu")[:VALIDATION]
    part = chosen[rank::number]

    device = sources.parameters[0].device
    judge, seen = trust.judge(members.share, device), torch.zeros_like(trust.labels, device=device)

    def of_validation(examples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss, labels = sources.validation(examples)
        seen.add_(number_by_class(labels.flatten(), bias.num_classes))
        return judge.losses(loss, labels), labels >= 0

    directions, count = _gradients(sources, of_validation, part, number=2)
    directions = ranks.summed(directions).div_(ranks.summed(count).clamp(min=1))
    sums = torch.zeros(3, NUM_KNOTS, dtype=torch.float64, device=device)
    knot_of = members.knot.to(device)
    for knot in members.number.nonzero().flatten().tolist():
        drawn = members.drawn(knot, order)

        def of_knot(examples: torch.Tensor, knot: int = knot) -> tuple[torch.Tensor, torch.Tensor]:
            loss, instances = sources.training(examples)
            return loss[None], (instances >= 0) & (knot_of[instances.clamp(min=0)] == knot)

        gradients, count = _gradients(sources, of_knot, sources.examples_of(drawn)[rank::number])
        sums[:2, knot], sums[2, knot] = _inner(directions, gradients[0]), count
    sums = ranks.summed(sums).cpu()
    return sums[:2] / sums[2].clamp(min=1), ranks.summed(seen).cpu()


def _gradients(
    sources: Sources, losses_of: Losses, examples: torch.Tensor, number: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a flat gradient for each of a `number` of losses: of its sum over the instances that count.

    The second value is how many instances count.
    """
    device = sources.parameters[0].device
    size = sum(value.numel() for value in sources.parameters)
    total = torch.zeros(number, size, dtype=torch.float32, device=device)
    num_counted = torch.zeros((), dtype=torch.float32, device=device)
    for some in torch.split(examples, sources.at_once):
        if len(some) == 0:  # of several ranks this one has none of them
            continue
        with torch.enable_grad():
            loss, counts = losses_of(some)
            if not loss.requires_grad:
                raise RuntimeError(
                    "Expected the logits to have a gradient, but they depend on no parameter: let neither "
                    "the model nor `forward=` detach them or compute them under `torch.no_grad()`."
                )
            for kind, each in enumerate(loss):
                total[kind] += _flat_gradient((each * counts).sum(), sources.parameters, kind < number - 1)
        num_counted += counts.sum()
    return total, num_counted


def _flat_gradient(loss: torch.Tensor, parameters: Sequence[torch.Tensor], again: bool) -> torch.Tensor:
    """Return the gradient by all parameters as a vector; `again` keeps the graph for another loss."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=again)
    flat = [
        torch.zeros_like(value) if gradient is None else gradient.to_dense()
        for value, gradient in zip(parameters, found, strict=True)
    ]
    return torch.cat([gradient.flatten().float() for gradient in flat])


def _inner(directions: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return <gradient, direction> of every direction in float64, without a whole copy in float64."""
    parts = zip(torch.split(directions, IN_FLOAT64, 1), torch.split(gradient, IN_FLOAT64), strict=True)
    products = [some.double() @ part.double() for some, part in parts]
    return torch.stack(products).sum(0)
