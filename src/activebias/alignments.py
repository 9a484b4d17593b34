"""Measures the alignments of the method `auto`: does training at a knot lower the validation loss?"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from activebias.evidence import NUM_KNOTS, place_of
from activebias.indexing import TokenIndex
from activebias.trust import Judge, Trust, number_by_class

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

    def batches(self, examples: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the examples in batches; none if a rank has no examples."""
        return torch.split(examples, self.at_once) if len(examples) else ()


class Members(NamedTuple):
    """The knot that every instance is nearest to, and how many instances each knot has."""

    knot: torch.Tensor
    number: torch.Tensor

    @staticmethod
    def of(means: torch.Tensor) -> "Members":
        """Assign the instances to knots by p̄."""
        knot = place_of(means).round().to(torch.int8).cpu()
        return Members(knot, torch.bincount(knot, minlength=NUM_KNOTS))

    @property
    def share(self) -> torch.Tensor:
        """The share of the instances that each knot has."""
        return self.number.double() / self.number.sum()

    @property
    def known(self) -> torch.Tensor:
        """How far the alignment of each knot is known: 1 where MEMBERS instances are measured."""
        return self.number.clamp(max=MEMBERS).double() / MEMBERS

    def drawn(self, order: torch.Tensor) -> list[torch.Tensor]:
        """Return up to MEMBERS instances of every knot, the first ones in a random order of all instances."""
        knot = self.knot[order]
        return [order[(knot == each).nonzero()[:MEMBERS, 0]] for each in range(NUM_KNOTS)]


class Sums:
    """Sums of gradients by all parameters, each sum as one vector: `flat`, (number, numbers of a gradient).

    On a GPU the host limits the speed of learning, so one call adds the gradients of all parameters.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], number: int) -> None:
        """Begin at 0."""
        self._parameters = parameters
        shapes = [_real(value).shape for value in parameters]
        sizes = [shape.numel() for shape in shapes]
        device = parameters[0].device
        self.flat = torch.zeros(number, sum(sizes), dtype=torch.float32, device=device)
        self._views = [
            [part.view(shape) for part, shape in zip(row.split(sizes), shapes, strict=True)]
            for row in self.flat
        ]

    def add(self, loss: torch.Tensor, factors: torch.Tensor) -> None:
        """Add to each sum the gradient of Σ factor · loss; `factors` are (number, *shape of loss)."""
        if not loss.requires_grad:
            raise RuntimeError(
                "Expected the logits to have a gradient, but they depend on no parameter: let neither "
                "the model nor `forward=` detach them or compute them under `torch.no_grad()`."
            )
        for number, (views, factor) in enumerate(zip(self._views, factors, strict=True), 1):
            again = number < len(self._views)
            found = torch.autograd.grad(loss, self._parameters, factor, allow_unused=True, retain_graph=again)
            used = [(view, _real(new)) for view, new in zip(views, found, strict=True) if new is not None]
            if used:
                torch._foreach_add_(*map(list, zip(*used, strict=True)))


@torch.enable_grad()
def alignments(
    bias: "ActiveBias", sources: Sources, members: Members, trust: Trust, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a_b = <G_b, g> of every knot, 0 where it has no instances; the ranks share the work.

    The alignments, (2, knots), are with the gradients of both validation losses of `Judge`. The second value
    is the number of validation labels by class.
    """
    ranks = bias._ranks
    rank, number = ranks.rank(), ranks.number()
    order = torch.randperm(len(members.knot), generator=generator, device="cpu")
    chosen = torch.randperm(sources.num_validation, generator=generator, device="cpu")[:VALIDATION]

    device = sources.parameters[0].device
    judge = trust.judge(members.share, device)
    directions, seen = _directions(bias, sources, judge, chosen[rank::number])

    sums = torch.zeros(3, NUM_KNOTS, dtype=torch.float64, device=device)
    gradient = Sums(sources.parameters, 1)
    knot_of = torch.cat([members.knot, members.knot.new_full((1,), -1)]).to(device)  # instance -1: none
    for knot, drawn in enumerate(members.drawn(order)):
        gradient.flat.zero_()
        for examples in sources.batches(sources.examples_of(drawn)[rank::number]):
            loss, instances = sources.training(examples)
            counts = knot_of[instances] == knot
            gradient.add(loss, counts.to(loss.dtype)[None])
            sums[2, knot] += counts.sum()
        if len(drawn):
            sums[:2, knot] = _inner(directions, gradient.flat[0])
    sums = ranks.summed(sums).cpu()
    return sums[:2] / sums[2].clamp(min=1), seen.cpu()


def _directions(
    bias: "ActiveBias", sources: Sources, judge: Judge, examples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean gradients of both validation losses, as `Sums.flat`, and the number of labels by class.

    `examples` are those of this rank; gradients and labels are those of all ranks.
    """
    device = sources.parameters[0].device
    sums, labels = Sums(sources.parameters, 2), [torch.empty(0, dtype=torch.int64, device=device)]
    for some in sources.batches(examples):
        loss, found = sources.validation(some)
        sums.add(loss, judge.factors(loss.detach(), found))
        labels.append(found.flatten())
    seen = bias._ranks.summed(number_by_class(torch.cat(labels), bias.num_classes))
    return bias._ranks.summed(sums.flat).div_(seen.sum().clamp(min=1)), seen


def _real(value: torch.Tensor) -> torch.Tensor:
    """Return a parameter or a gradient, dense; a complex number is a pair of real numbers."""
    dense = value.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def _inner(directions: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return <gradient, direction> of every direction in float64, without a whole copy in float64."""
    parts = zip(torch.split(directions, IN_FLOAT64, 1), torch.split(gradient, IN_FLOAT64), strict=True)
    products = [some.double() @ part.double() for some, part in parts]
    return torch.stack(products).sum(0)
