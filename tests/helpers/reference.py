"""The paper's method, slow and obvious: plain lists and floats, to be read beside method.md and section 3.

Nothing here is shared with the library. Every fast path of the library is tested equal to this file.

Notation of the paper (Chang, Learned-Miller, McCallum, NIPS 2017):

    H_i    history of p(y_i|x_i), one entry for every time instance i was trained on, starting as {1/|C|}
    p̄      mean of what stays of H_i after outlier removal;  var: its variance;  n: its size
    s_i    the statistic of instance i
    ε      mean of s over the data set ("the ε in each method is set as the average of current estimation")
    e_i    s_i + ε
    N      mean of e over the data set, which is 2ε
    P(i)   probability of drawing instance i;  v_i: its weight in the loss

>>> bias = ReferenceActiveBias("wd", num_instances=2, num_classes=2)
>>> bias.set_epoch(0)
>>> bias.record([0, 1], [0.1, 0.9])
>>> [round(v, 6) for v in bias.weights()]
[1.2, 0.8]
"""

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

# Added to the outlier threshold so that exact ties are kept, whatever the rounding (method.md).
TIE = 1e-6


class History:
    """H_i of one instance: starts as {1/|C|} (Algorithm 1); only the latest `window` entries count."""

    def __init__(self, num_classes: int, window: int | None = None):
        self.window = window
        self.entries = [1.0 / num_classes]

    def append(self, prob: float) -> None:
        self.entries.append(prob)  # Algorithm 1: H_i <- H_i ∪ {p_t(y_i|x_i)}
        if self.window is not None:
            self.entries = self.entries[-self.window :]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def without_outliers(entries: Sequence[float], tie: float = TIE) -> list[float]:
    """Supplement, section 1: d_t = |p_t - p̄|, and p_t is excluded when d_t > 2 median(d)."""
    center = mean(entries)
    deviations = [abs(p - center) for p in entries]
    limit = 2 * median(deviations) + tie
    return [p for p, d in zip(entries, deviations, strict=True) if not d > limit]


class Estimate(NamedTuple):
    count: int  # n
    mean: float  # p̄
    variance: float  # var, divided by n - 1


def estimate(entries: Sequence[float], remove_outliers: bool = True, tie: float = TIE) -> Estimate:
    kept = without_outliers(entries, tie) if remove_outliers else list(entries)
    n = len(kept)
    p_bar = mean(kept)
    variance = math.fsum((p - p_bar) ** 2 for p in kept) / (n - 1) if n >= 2 else 0.0
    return Estimate(n, p_bar, variance)


def difficulty(of: Estimate) -> float:
    """Section 3.1, SD and WD: 1 - p̄."""
    return 1.0 - of.mean


def easiness(of: Estimate) -> float:
    """Section 3.1, SE and WE: p̄."""
    return of.mean


def prediction_variance(of: Estimate) -> float:
    """Equation 1, SPV and WPV: sqrt(var + var² / (n - 1)); 0 while one entry says nothing about variance."""
    if of.count < 2:
        return 0.0
    return math.sqrt(of.variance + of.variance**2 / (of.count - 1))


def threshold_closeness(of: Estimate) -> float:
    """Section 3.3, STC and WTC: p̄ (1 - p̄)."""
    return of.mean * (1.0 - of.mean)


class Rule(NamedTuple):
    """One row of method.md's table."""

    statistic: Callable[[Estimate], float] | None  # None: the method looks at no statistic
    draws: bool  # True: with replacement from P; False: scans, a new permutation each epoch
    weight: str  # "one", "e / N" or "N / e"


METHODS = {
    "uni": Rule(None, True, "one"),
    "scan": Rule(None, False, "one"),
    "sd": Rule(difficulty, True, "one"),
    "isd": Rule(difficulty, True, "N / e"),
    "se": Rule(easiness, True, "one"),
    "spv": Rule(prediction_variance, True, "one"),
    "stc": Rule(threshold_closeness, True, "one"),
    "wd": Rule(difficulty, False, "e / N"),
    "we": Rule(easiness, False, "e / N"),
    "wpv": Rule(prediction_variance, False, "e / N"),
    "wtc": Rule(threshold_closeness, False, "e / N"),
}


class ReferenceActiveBias:
    """Algorithm 1's bookkeeping: histories in, P and v out."""

    def __init__(
        self,
        method: str,
        num_instances: int,
        num_classes: int,
        burn_in: int = 0,
        window: int | None = None,
        remove_outliers: bool = True,
    ):
        self.rule = METHODS[method]
        self.burn_in = burn_in
        self.remove_outliers = remove_outliers
        self.epoch: int | None = None
        self._histories = [History(num_classes, window) for _ in range(num_instances)]
        self._scores = [self.score_of(i) for i in range(num_instances)]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch  # 0-based

    def history(self, i: int) -> list[float]:
        """Return what counts of H_i, oldest first."""
        return list(self._histories[i].entries)

    def estimate_of(self, i: int, tie: float = TIE) -> Estimate:
        return estimate(self._histories[i].entries, self.remove_outliers, tie)

    def score_of(self, i: int, tie: float = TIE) -> float:
        if self.rule.statistic is None:
            return 0.0
        return self.rule.statistic(self.estimate_of(i, tie))

    def record(self, index_list: Sequence[int], prob_list: Sequence[float]) -> None:
        """Append p_t of a whole batch, in its order; an instance drawn twice appends both. Then s follows."""
        for i, prob in zip(index_list, prob_list, strict=True):
            self._histories[i].append(prob)
        for i in set(index_list):
            self._scores[i] = self.score_of(i)  # all other histories, and so their s, are as they were

    def retake(self, i: int, tie: float) -> None:
        """Take s_i with another tie constant until the next visit: for entries on the edge in float32."""
        self._scores[i] = self.score_of(i, tie)

    def scores(self) -> list[float]:
        return list(self._scores)

    def emphasis(self) -> tuple[list[float], float] | None:
        """Return e over all instances and N, or None where nothing is emphasised."""
        if self.epoch is None:
            raise RuntimeError("call set_epoch(epoch) first")
        burning_in = self.epoch < self.burn_in  # S* and ISD behave as Uni, W* as Scan
        all_zero = not any(self._scores)  # also the methods without a statistic
        if burning_in or all_zero:
            return None
        epsilon = mean(self._scores)
        e = [s + epsilon for s in self._scores]
        return e, mean(e)

    def weights(self) -> list[float]:
        """Return v over all instances."""
        emphasis = self.emphasis()
        if emphasis is None or self.rule.weight == "one":
            return [1.0] * len(self._scores)
        e, normaliser = emphasis
        if self.rule.weight == "e / N":
            return [e_i / normaliser for e_i in e]
        return [normaliser / e_i for e_i in e]

    def probabilities(self) -> list[float] | None:
        """Return P over all instances; None for the methods that scan."""
        if not self.rule.draws:
            return None
        emphasis = self.emphasis()
        if emphasis is None:
            return [1.0 / len(self._scores)] * len(self._scores)
        e, _ = emphasis
        total = math.fsum(e)
        return [e_i / total for e_i in e]

    def weighted_mean_loss(self, losses: Sequence[float], indices: Sequence[int]) -> float:
        """Section 3.1, L = Σ v_i loss_i, as a mean over the batch, with v from before it is recorded."""
        v = self.weights()
        return mean([v[i] * loss for i, loss in zip(indices, losses, strict=True)])
