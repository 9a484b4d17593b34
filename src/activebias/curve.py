"""The statistic of the method `auto`: a curve over p̄, learnt from the alignments of gradients."""

import math
from itertools import groupby, takewhile
from typing import Any, final

import torch

from activebias import checks
from activebias._arrays import Array, as_tensor, native
from activebias.emphasis import weights
from activebias.evidence import (
    LOWEST,
    NUM_KNOTS,
    UNIFORM,
    Evidence,
    between,
    is_usable,
    knot_means,
    less_rule,
    rule_scores,
)
from activebias.statistics import Estimate
from activebias.trust import Trust

EQUAL = 0.05  # weights so near to 1 are called equal


def in_words(weights: torch.Tensor, share: torch.Tensor) -> str:
    """Say in short sentences where a curve emphasises, and which instances count for little.

    Knots without instances say nothing. A second range is named if at least 1 % of the instances are in it,
    and some of them weigh more than about 1.

    >>> weights = torch.tensor([0.1] * 3 + [0.8, 1.4, 2.0, 2.2, 1.6, 1.0, 0.9, 0.8, 0.7, 0.7])
    >>> in_words(weights, torch.tensor([0.05, 0.03, 0.01] + [0.091] * 10))  # doctest: +ELLIPSIS
    'Emphasises p̄ from 0.27 to 0.88, most of all p̄ near 0.73 (weight 2.2). ...'
    """
    knots = (share > 0).nonzero().flatten().tolist()
    means, weight = knot_means(), weights.tolist()
    if all(abs(weight[knot] - 1) < EQUAL for knot in knots) or max(weight[knot] for knot in knots) <= 1:
        return "Emphasises nothing: all instances weigh about the same."
    most = max(knots, key=weight.__getitem__)
    ranges = [list(each) for is_high, each in groupby(knots, lambda knot: weight[knot] > 1) if is_high]
    first, last = next((each[0], each[-1]) for each in ranges if most in each)
    peak = f"{weight[most]:.{1 if weight[most] >= 1.05 else 2}f}"
    whole = f"from {means[first]:.2g} to {means[last]:.2g}, most of all p̄ " if first < last else ""
    text = f"Emphasises p̄ {whole}near {means[most]:.2g} (weight {peak})."
    for other in ranges:
        highest = max(weight[knot] for knot in other)
        if most not in other and highest >= 1 + EQUAL and float(share[other].sum()) >= 0.01:
            low, high = (f"{means[knot]:.2g}" for knot in (other[0], other[-1]))
            where = f"near {low} (weight" if low == high else f"from {low} to {high} (weight up to"
            text += f" Also emphasises p̄ {where} {highest:.1f})."
    little = list(takewhile(lambda knot: weight[knot] < 0.5 and knot < first, knots))
    if little and (part := float(share[little].sum())) >= 0.005:
        edge = 1 / (1 + math.exp(-(little[-1] + LOWEST + 0.5)))
        text += f" Instances with p̄ below {edge:.2f} count for little and may be mislabelled: "
        text += f"{100 * part:.0f} % of all."
    return text


@final
class Curve:
    """The statistic of the method `auto` in one training: p̄ in, the score at p̄ out.

    Until it has learnt, the scores are those of `wtc`, p̄ (1 - p̄). The uniform part is UNIFORM from the
    beginning.
    """

    def __init__(self, device: torch.device, num_classes: int) -> None:
        """Begin with the curve of `wtc`."""
        # A CUDA graph holds the address of the scores.
        self.scores: Array = native(rule_scores().to(device))
        # Of all weights; float32 as they are. It keeps the steps from becoming much larger.
        self.factor: Array = native(torch.ones((), dtype=torch.float32, device=device))
        self.evidence = Evidence.none()
        self.trust = Trust.none(num_classes)
        self.num_learnt = 0
        self.rule_share = torch.ones((), dtype=torch.float64, device="cpu")  # of the rule, in the scores
        self.last_epoch: int | None = None  # in which it learnt, or tried to
        self.called: int | None = None  # the epoch of the latest `bias.learn` here; no state holds it
        self.has_warned = False  # that it has learnt nothing, or does not learn on

    def __call__(self, estimate: Estimate) -> Array:
        """Return the scores, linear between the knots."""
        below, part = between(estimate.mean)
        return (1 - part) * self.scores[below] + part * self.scores[below + 1]

    def learn(
        self,
        aligned: torch.Tensor,
        labels: torch.Tensor,
        share: torch.Tensor,
        known: torch.Tensor,
        epoch: int,
    ) -> None:
        """Take in the alignments after an epoch, (2, knots): with both validation losses of `Judge`."""
        self.trust = self.trust.with_new(aligned[1], labels, share, known)
        before, self.last_epoch = self.last_epoch, epoch
        if not is_usable(aligned[0]):
            return
        self.evidence = self.evidence.with_new(aligned[0], share, known)
        # 1 for further rounds of an epoch, and if the epochs began again.
        passed = 1 if before is None or self.num_learnt == 0 else max(1, epoch - before)
        self.num_learnt += 1
        self.rule_share = less_rule(self.rule_share, passed, self.trust.harmless(share))
        as_tensor(self.scores).copy_(self.evidence.mixed(share, self.rule_share))

    def weights(self, share: torch.Tensor) -> torch.Tensor:
        """Return v at the knots, of which each has a `share` of the instances."""
        scores = as_tensor(self.scores).cpu()
        return as_tensor(weights(scores, (share * scores).sum(), UNIFORM))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything."""
        return {
            "scores": as_tensor(self.scores).cpu().clone(),
            "factor": as_tensor(self.factor).cpu().clone(),
            "total": self.evidence.total.clone(),
            "weight": self.evidence.weight.clone(),
            "robust_total": self.trust.robust.total.clone(),
            "robust_weight": self.trust.robust.weight.clone(),
            "labels": self.trust.labels.clone(),
            "rule_share": self.rule_share.clone(),
            "num_learnt": self.num_learnt,
            "last_epoch": self.last_epoch,
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if `state` does not fit."""
        for name in ("scores", "total", "weight", "robust_total", "robust_weight"):
            checks.stored(f"curve {name}", state[name], (NUM_KNOTS,), torch.float64)
        checks.stored("curve factor", state["factor"], (), torch.float32)
        checks.stored("curve labels", state["labels"], self.trust.labels.shape, torch.float64)
        checks.stored("curve rule_share", state["rule_share"], (), torch.float64)
        # Divisors, and numbers whose logarithm is taken.
        for name in ("weight", "robust_weight", "labels"):
            if bool((state[name] < 0).any()):
                raise ValueError(f"The stored `curve {name}` holds a negative value.")
        for name in ("rule_share", "factor"):
            if not 0 <= (share := float(state[name])) <= 1:
                raise ValueError(f"Expected the stored `curve {name}` to be from 0 to 1, but got {share}.")
        for name in ("num_learnt", "last_epoch"):
            if not isinstance(state[name], int) and (name == "num_learnt" or state[name] is not None):
                raise TypeError(f"Expected the stored `{name}` to be an integer, but got {state[name]!r}.")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        as_tensor(self.scores).copy_(state["scores"])
        as_tensor(self.factor).copy_(state["factor"])
        self.evidence = Evidence(state["total"].clone(), state["weight"].clone())
        robust = Evidence(state["robust_total"].clone(), state["robust_weight"].clone())
        self.trust = Trust(robust, state["labels"].clone())
        self.rule_share = state["rule_share"].clone()
        self.num_learnt, self.last_epoch = state["num_learnt"], state["last_epoch"]
        self.called = None
