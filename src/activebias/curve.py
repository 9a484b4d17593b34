"""The curve of the method `auto`: the score of an instance over its p̄, learnt from gradients.

Training on instances with p̄ near knot b lowers the validation loss by the alignment a_b = <G_b, g>: G_b is
their mean gradient, g the gradient of the validation loss. Equations: docs/methods/auto.md.
"""

import math
from itertools import takewhile
from typing import Any, NamedTuple, final

import torch

from activebias import checks
from activebias._arrays import Array, as_tensor, namespace, native
from activebias.emphasis import weights
from activebias.statistics import Estimate

# The knots lie at the integers of logit(p̄), which are p̄ = 0.007 … 0.5 … 0.999.
LOWEST, HIGHEST = -5, 7
NUM_KNOTS = HIGHEST - LOWEST + 1
# Found on seeds 2000 to 2003 of rows of docs/peers.md (benchmarks/auto_designs.py).
DECAY = 0.9  # of an alignment, each time that new ones come
UNIFORM = 0.1  # the part of the emphasis that all instances share; ½ in the paper
# Scores are cut where their weight would be this. Weights divide by the mean of the cut scores, so they can
# come out higher: 14 was seen (docs/methods/auto.md).
MOST = 8.0
EQUAL = 0.05  # weights so near to 1 are called equal
FIRST_ROUNDS = 3  # of measuring alignments, the first time


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
        knot has the `share` of its instances. An alignment that is NaN or infinite is not known.
        """
        finite = aligned.isfinite()
        aligned, known = aligned.where(finite, 0), known * finite
        relative = aligned / (share * aligned.abs()).sum(-1, keepdim=True).clamp(min=1e-30)
        total = DECAY * self.total + (1 - DECAY) * relative * known
        return Evidence(total, DECAY * self.weight + (1 - DECAY) * known)

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

    def mixed(self, share: torch.Tensor, num_epochs: Array | int) -> torch.Tensor:
        """Return the learnt scores, mixed with the rule p̄ (1 - p̄).

        The share of the rule falls in the first epochs of learning, in which the model and the curve still
        change much.
        """
        rule = rule_scores().to(share.device)
        rule = rule / (share * rule).sum(-1, keepdim=True)
        left = torch.as_tensor(DECAY ** (num_epochs + FIRST_ROUNDS), dtype=torch.float64, device=share.device)
        return (1 - left[..., None]) * self.scores(share) + left[..., None] * rule


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
    xp = namespace(mean)
    mean = xp.asarray(mean, dtype=xp.float64, device=mean.device).clip(1e-6, 1 - 1e-6)
    return (xp.log(mean / (1 - mean)) - LOWEST).clip(0, NUM_KNOTS - 1)


def in_words(weights: torch.Tensor, share: torch.Tensor) -> str:
    """Return one sentence about a curve: where it emphasises, and which instances count for little.

    Knots without instances say nothing.

    >>> weights = torch.tensor([0.1] * 3 + [0.8, 1.4, 2.0, 2.2, 1.6, 1.0, 0.9, 0.8, 0.7, 0.7])
    >>> in_words(weights, torch.tensor([0.05, 0.03, 0.01] + [0.091] * 10))  # doctest: +ELLIPSIS
    'Emphasises p̄ from 0.27 to 0.88, most of all p̄ near 0.73 (weight 2.2). ...'
    """
    knots = (share > 0).nonzero().flatten().tolist()
    means, weight = knot_means(), weights.tolist()
    if all(abs(weight[knot] - 1) < EQUAL for knot in knots) or max(weight[knot] for knot in knots) <= 1:
        return "Emphasises nothing: all instances weigh about the same."
    most = max(knots, key=weight.__getitem__)
    middle = knots.index(most)
    first = list(takewhile(lambda knot: weight[knot] > 1, knots[middle::-1]))[-1]
    last = list(takewhile(lambda knot: weight[knot] > 1, knots[middle:]))[-1]
    peak = f"{weight[most]:.{1 if weight[most] >= 1.05 else 2}f}"
    whole = f"from {means[first]:.2g} to {means[last]:.2g}, most of all p̄ " if first < last else ""
    text = f"Emphasises p̄ {whole}near {means[most]:.2g} (weight {peak})."
    little = list(takewhile(lambda knot: weight[knot] < 0.5 and knot < first, knots))
    if little and (part := float(share[little].sum())) >= 0.005:
        edge = 1 / (1 + math.exp(-(little[-1] + LOWEST + 0.5)))
        text += f" Instances with p̄ below {edge:.2f} count for little and may be mislabelled: "
        text += f"{100 * part:.0f} % of all."
    return text


def between(mean: Array) -> tuple[Array, Array]:
    """Return the knot below p̄, and how far p̄ is from it towards the next one (0 to 1)."""
    xp, place = namespace(mean), place_of(mean)
    below = xp.asarray(place, dtype=xp.int64, device=place.device).clip(0, NUM_KNOTS - 2)
    return below, place - below


@final
class Curve:
    """The statistic of the method `auto` in one training: p̄ in, the score at p̄ out.

    Until it has learnt, the scores are those of `wtc`, p̄ (1 - p̄). The uniform part is UNIFORM from the
    beginning.
    """

    def __init__(self, device: torch.device) -> None:
        """Begin with the curve of `wtc`."""
        # A CUDA graph holds the address of the scores.
        self.scores: Array = native(rule_scores().to(device))
        self.evidence = Evidence.none()
        self.num_learnt = 0
        self.first_epoch: int | None = None  # in which it learnt
        self.last_epoch: int | None = None
        self.has_warned = False  # that it has learnt nothing

    def __call__(self, estimate: Estimate) -> Array:
        """Return the scores, linear between the knots."""
        below, part = between(estimate.mean)
        return (1 - part) * self.scores[below] + part * self.scores[below + 1]

    def learn(self, aligned: torch.Tensor, share: torch.Tensor, known: torch.Tensor, epoch: int) -> None:
        """Take the alignments after an epoch in."""
        self.evidence = self.evidence.with_new(aligned, share, known)
        self.first_epoch = epoch if self.first_epoch is None else self.first_epoch
        self.last_epoch = epoch
        self.num_learnt += 1
        as_tensor(self.scores).copy_(self.evidence.mixed(share, max(0, epoch - self.first_epoch)))

    def weights(self, share: torch.Tensor) -> torch.Tensor:
        """Return v at the knots, of which each has a `share` of the instances."""
        scores = as_tensor(self.scores).cpu()
        return as_tensor(weights(scores, (share * scores).sum(), UNIFORM))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything."""
        return {
            "scores": as_tensor(self.scores).cpu().clone(),
            "total": self.evidence.total.clone(),
            "weight": self.evidence.weight.clone(),
            "num_learnt": self.num_learnt,
            "first_epoch": self.first_epoch,
            "last_epoch": self.last_epoch,
        }

    @staticmethod
    def check_state(state: dict[str, Any]) -> None:
        """Raise if `state` does not fit."""
        for name in ("scores", "total", "weight"):
            checks.stored(f"curve {name}", state[name], (NUM_KNOTS,), torch.float64)
        for name in ("num_learnt", "first_epoch", "last_epoch"):
            if not isinstance(state[name], int) and (name == "num_learnt" or state[name] is not None):
                raise TypeError(f"Expected the stored `{name}` to be an integer, but got {state[name]!r}.")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        as_tensor(self.scores).copy_(state["scores"])
        self.evidence = Evidence(state["total"].clone(), state["weight"].clone())
        self.num_learnt = state["num_learnt"]
        self.first_epoch, self.last_epoch = state["first_epoch"], state["last_epoch"]
