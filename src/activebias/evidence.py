"""The knots of the method `auto`, and the alignments of gradients that were measured at them."""

from typing import Any, NamedTuple

import torch

from activebias._arrays import Array, namespace

# The knots lie at the integers of logit(p̄), which are p̄ = 0.007 … 0.5 … 0.999.
LOWEST, HIGHEST = -5, 7
NUM_KNOTS = HIGHEST - LOWEST + 1
# Found on seeds 2000 to 2003 of rows of docs/peers.md (benchmarks/auto_designs.py).
DECAY = 0.9  # of an alignment, each time that new ones come
UNIFORM = 0.1  # the part of the emphasis that all instances share; ½ in the paper
# Scores are cut where their weight would be this. Weights divide by the mean of the cut scores, so they can
# come out higher: 14 was seen, and 416 in a made-up case (docs/methods/auto.md).
MOST = 8.0
FIRST_ROUNDS = 3  # of measuring alignments, the first time
# The largest Σ v (1 - p̄), as a multiple of plain training's. Found on seeds 2000 to 2005 of clean data sets
# (benchmarks/auto_unseen_changes.py).
LARGEST_STEPS = 1.5


class Evidence(NamedTuple):
    """Decayed sums of the alignments of the knots, and of how far each was measured: (…, knots)."""

    total: torch.Tensor
    weight: torch.Tensor

    @staticmethod
    def none(*leading: int, device: torch.device | str = "cpu") -> "Evidence":
        """Return the evidence of a curve that has learnt nothing."""
        zeros = torch.zeros(*leading, NUM_KNOTS, dtype=torch.float64, device=device)
        return Evidence(zeros, zeros.clone())

    def with_new(self, aligned: torch.Tensor, share: torch.Tensor, known: torch.Tensor) -> "Evidence":
        """Return the evidence after new alignments; `known` (0 to 1) is how far each knot was measured.

        Gradients shrink in training: alignments count relative to their mean over the data set, in which a
        knot has the `share` of its instances. An alignment that is NaN or infinite is not known. Alignments
        that tell nothing change nothing.
        """
        tells, finite = is_usable(aligned)[..., None], aligned.isfinite()
        aligned, known = aligned.where(finite, 0), known * finite
        relative = aligned / (share * aligned.abs()).sum(-1, keepdim=True).clamp(min=1e-30)
        total = DECAY * self.total + (1 - DECAY) * relative * known
        weight = DECAY * self.weight + (1 - DECAY) * known
        return Evidence(torch.where(tells, total, self.total), torch.where(tells, weight, self.weight))

    def means(self) -> torch.Tensor:
        """Return the mean alignments, smoothed over knots.

        A knot that was hardly ever measured has the value of the nearest one.
        """
        total, weight = _smoothed(self.total), _smoothed(self.weight)
        return (total / weight.clamp(min=1e-9)).gather(-1, _nearest(weight > 0.1 * (1 - DECAY)))

    def scores(self, share: torch.Tensor, most: float = (MOST - UNIFORM) / (1 - UNIFORM)) -> torch.Tensor:
        """Return s at the knots: the mean alignments, none negative; their mean is 1, none exceeds `most`."""
        mean = self.means().clamp(min=0)
        mean = mean / (share * mean).sum(-1, keepdim=True).clamp(min=1e-9)
        return mean.clamp(max=most)

    def mixed(self, share: torch.Tensor, rule_share: torch.Tensor) -> torch.Tensor:
        """Return the learnt scores, mixed with a share (…,) of the rule p̄ (1 - p̄): see `less_rule`."""
        rule = rule_scores().to(share.device)
        rule = rule / (share * rule).sum(-1, keepdim=True)
        learnt = self.scores(share)
        # If no knot helps, a small share alone would scale the rule.
        left = rule_share[..., None].where((learnt > 0).any(-1, keepdim=True), 1)
        return (1 - left) * learnt + left * rule


def less_rule(rule_share: torch.Tensor, passed: torch.Tensor | int, harmless: torch.Tensor) -> torch.Tensor:
    """Return the share of the rule after a round of learning, `passed` epochs after the round before.

    A round leaves DECAY of the share, so that a curve that has learnt little stays near the rule. Small data
    sets learn seldom. There, as far as training instances harm, every epoch leaves DECAY of it: the rule
    would emphasise instances that harm for long. `harmless`, from 0 to 1, is 1 if no instance harms.

    >>> all_rule, yes, no = torch.tensor(1.0), torch.tensor(1.0), torch.tensor(0.0)
    >>> less_rule(all_rule, 5, yes), less_rule(all_rule, 5, no)
    (tensor(0.9000), tensor(0.5905))
    """
    return rule_share * (harmless * DECAY + (1 - harmless) * DECAY**passed)


def step_factor(weights: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    """Return the factor of all weights (…, N) that limits the steps: 1, or less where they are too large.

    1 - p is about the length of an instance's gradient by the logits. Emphasis falls on instances with a
    large 1 - p, so a step is larger than in plain training. At a learning rate that suits plain training,
    steps several times as large can ruin a model. With the factor Σ v (1 - p̄) is at most LARGEST_STEPS times
    the sum of plain training.

    >>> step_factor(torch.tensor([0.1, 0.1, 2.8]), torch.tensor([1.0, 1.0, 0.4]))
    tensor(0.5357)
    >>> step_factor(torch.tensor([0.1, 1.9]), torch.tensor([0.4, 0.4]))
    tensor(1.)
    """
    plain = 1 - means
    total, weighted = plain.sum(-1), (weights * plain).sum(-1)
    return torch.where(weighted > LARGEST_STEPS * total, LARGEST_STEPS * total / weighted, 1)


def is_usable(aligned: torch.Tensor) -> torch.Tensor:
    """Return whether alignments (…, knots) tell anything: one at least is finite and not 0.

    >>> is_usable(torch.tensor([[0.0, -2.0], [0.0, 0.0], [0.0, torch.nan]]))
    tensor([ True, False, False])
    """
    return (aligned.isfinite() & (aligned != 0)).any(-1)


def _nearest(measured: torch.Tensor) -> torch.Tensor:
    """Return for every knot the nearest one that was measured.

    >>> _nearest(torch.tensor([False, True, False, False, True]))
    tensor([1, 1, 1, 4, 4])
    """
    knot = torch.arange(measured.shape[-1], device=measured.device)
    distance = (knot[:, None] - knot).abs() + ~measured[..., None, :] * 2 * len(knot)
    return distance.argmin(-1)


def _smoothed(values: torch.Tensor) -> torch.Tensor:
    """Return ¼, ½, ¼ of the neighbours; the first and the last knot count twice."""
    padded = torch.cat([values[..., :1], values, values[..., -1:]], dim=-1)
    return 0.25 * padded[..., :-2] + 0.5 * padded[..., 1:-1] + 0.25 * padded[..., 2:]


def knot_means() -> torch.Tensor:
    """Return p̄ at the knots."""
    return torch.arange(LOWEST, HIGHEST + 1, dtype=torch.float64, device="cpu").sigmoid()


def rule_scores() -> torch.Tensor:
    """Return the statistic of `wtc` at the knots: the scores of a curve that has learnt nothing."""
    means = knot_means()
    return means * (1 - means)


def place_of(mean: Array) -> Array:
    """Return where p̄ lies among the knots: 0 at the first, NUM_KNOTS - 1 at the last.

    >>> place_of(torch.tensor([0.0, 0.5, 1.0]))
    tensor([ 0.,  5., 12.], dtype=torch.float64)
    """
    return _place(namespace(mean), mean)


def _place(xp: Any, mean: Array) -> Array:
    mean = xp.asarray(mean, dtype=xp.float64, device=mean.device).clip(1e-6, 1 - 1e-6)
    return (xp.log(mean / (1 - mean)) - LOWEST).clip(0, NUM_KNOTS - 1)


def between(mean: Array) -> tuple[Array, Array]:
    """Return the knot below p̄, and how far p̄ is from it towards the next one (0 to 1)."""
    xp = namespace(mean)
    place = _place(xp, mean)
    below = xp.asarray(place, dtype=xp.int64, device=place.device).clip(0, NUM_KNOTS - 2)
    return below, place - below
