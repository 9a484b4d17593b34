"""Which validation labels the method `auto` trusts, and the validation losses that follow from it."""

from typing import NamedTuple

import torch

from activebias.evidence import Evidence, between

CAUTION = 10  # the power of `Trust.harmless`, which is the least trust in a label


class Trust(NamedTuple):
    """The knots at which training lowers the robust loss 1 - p, and the validation labels seen so far.

    A leading dimension, if there is one, counts models.

    Attributes:
        robust: the alignments with the gradient of 1 - p.
        labels: the number of validation labels of every class, and last of labels without a class of their
            own, which are soft targets and whole sequences: (…, classes + 1).
    """

    robust: Evidence
    labels: torch.Tensor

    @staticmethod
    def none(num_classes: int, *leading: int, device: torch.device | str = "cpu") -> "Trust":
        """Return the trust of a curve that has learnt nothing."""
        labels = torch.zeros(*leading, num_classes + 1, dtype=torch.float64, device=device)
        return Trust(Evidence.none(*leading, device=device), labels)

    def with_new(
        self, aligned: torch.Tensor, labels: torch.Tensor, share: torch.Tensor, known: torch.Tensor
    ) -> "Trust":
        """Return the trust after new alignments with the gradient of 1 - p, measured on such labels."""
        return Trust(self.robust.with_new(aligned, share, known), self.labels + labels)

    def at_knots(self, share: torch.Tensor) -> torch.Tensor:
        """Return how far labels with the p(y|x) of a knot are trusted, from 0 to 1.

        A `share` of the training instances is at each knot. Where few of them harm, all labels are trusted.
        """
        aligned = self.robust.means()
        trusted = aligned.clamp(min=0) / aligned.amax(-1, keepdim=True).clamp(min=1e-9)
        return trusted.maximum(self.harmless(share)[..., None])

    def harmless(self, share: torch.Tensor) -> torch.Tensor:
        """Return how harmless the training instances are: (1 - h)^CAUTION if a share h of them harms."""
        harm = (share * (self.robust.means() < 0)).sum(-1)
        return (1 - harm) ** CAUTION

    def bounds(self) -> torch.Tensor:
        """Return the largest loss of a label, by its class: 1 - log ρ, where ρ is the share of the class.

        A label with a lower p than ρ / e is wrong, or too difficult for the model: it has no gradient. Labels
        without a class have the bound of classes of the same size.

        >>> Trust.none(10).bounds()[[0, 10]]
        tensor([3.3026, 3.3026], dtype=torch.float64)
        """
        number = self.labels[..., :-1] + 1
        share = number / number.sum(-1, keepdim=True)
        same = torch.full_like(share[..., :1], 1 / share.shape[-1])
        return 1 - torch.cat([share, same], dim=-1).log()

    def judge(self, share: torch.Tensor, device: torch.device | str = "cpu") -> "Judge":
        """Return the judge of the validation labels in a round of learning."""
        helps = (self.robust.means() > 0).any(-1, keepdim=True)
        found = Judge(self.at_knots(share), self.bounds(), helps)
        return Judge(*(each.to(device) for each in found))


class Judge(NamedTuple):
    """How far each label counts in a round: trust at the knots, bounds by class, and whether any knot helps.

    No knot helps as long as none is known at which training lowers 1 - p.
    """

    knots: torch.Tensor
    bounds: torch.Tensor
    helps: torch.Tensor

    def factors(self, loss: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the derivatives of two validation losses by the cross-entropy, -log p, of each label.

        The first loss is trust · min(-log p, bound of the class), in which trust is a constant: it has the
        derivative trust, or 0 above the bound. The second is 1 - p, and has the derivative p. Where no knot
        helps, the first loss is 1 - p too. Labels of -1 do not count.
        """
        leading = self.knots.dim() - 1
        flat, classes = loss.flatten(leading), labels.flatten(leading).clamp(min=0)
        prob = flat.neg().exp()
        below, part = between(prob)
        trust = (1 - part) * self.knots.gather(-1, below) + part * self.knots.gather(-1, below + 1)
        trusted = trust.to(flat.dtype) * (flat < self.bounds.gather(-1, classes).to(flat.dtype))
        factors = torch.stack([torch.where(self.helps, trusted, prob), prob])
        return torch.where(labels >= 0, factors.view(2, *loss.shape), 0)


def number_by_class(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return the number of labels of every class, and last of those without a class (label `num_classes`).

    >>> number_by_class(torch.tensor([[1, 1, 3, -1], [0, 0, 0, -1]]), 3)
    tensor([[0., 2., 0., 1.],
            [3., 0., 0., 0.]], dtype=torch.float64)
    """
    number = torch.zeros(*labels.shape[:-1], num_classes + 2, dtype=torch.float64, device=labels.device)
    ones = torch.ones(labels.shape, dtype=torch.float64, device=labels.device)
    return number.scatter_add(-1, labels + 1, ones)[..., 1:]  # the first: labels that do not count
