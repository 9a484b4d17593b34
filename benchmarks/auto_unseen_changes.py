"""Changes of the design of `auto`, for the rows of benchmarks/auto_unseen.py in which it lost.

    python benchmarks/auto_unseen_changes.py --data FOLDER --first-seed 2000 --rate 0.1 --out OUT \\
      --sides scan we wtc auto class-rounds careful same-step --sets NAME --noises clean

    python benchmarks/auto_unseen_changes.py --rows digits mnist-fc --designs class-rounds rounds-same-step \\
      --baselines --seeds 8 --device cpu --out results/auto/same-step.jsonl

The options are those of benchmarks/auto_unseen.py; with `--rows`, those of benchmarks/auto_designs.py. Try
changes on other seeds than 0 to 9, and with another `--out`: on those seeds `auto` is judged.
"""

import sys
from itertools import combinations_with_replacement
from typing import NamedTuple

import auto_designs
import auto_unseen
import torch
from auto_designs import DESIGNS, ROBUST, Design, Tried

from activebias.evidence import DECAY
from activebias.lab.side_by_side.learning import _inner

BASE = DESIGNS["trusted-class"]


class Change(NamedTuple):
    """A design, and how it is changed."""

    design: Design
    kinds: tuple[str | float, ...]


DESIGNS |= {
    # The uniform part is that of the paper, ½, where no instance harms, and falls to 0.1 where many harm.
    "careful": Change(BASE, ("careful",)),
    # Weights are divided by one number, so that the sum of v (1 - p̄) is that of plain training.
    "same-step": Change(BASE, ("same-step",)),
    "careful-same-step": Change(BASE, ("careful", "same-step")),
    "harm-same-step": Change(DESIGNS["class-harm"], ("same-step",)),
    # Weights are divided by one number where this sum exceeds that of plain training so many times.
    **{f"harm-limit-{most}": Change(DESIGNS["class-harm"], (float(most),)) for most in (1.25, 1.5, 2, 3)},
    "rounds-same-step": Change(DESIGNS["class-rounds"], ("same-step",)),
    # Steps may be larger than those of plain training as far as its gradient agrees with that of validation.
    "rounds-agreeing": Change(DESIGNS["class-rounds"], ("agreeing",)),
    # No weight exceeds 8, as every score is raised by the same number until the highest weight is 8.
    "rounds-held": Change(DESIGNS["class-rounds"], ("held",)),
    "rounds-held-same-step": Change(DESIGNS["class-rounds"], ("held", "same-step")),
}


def lift(scores, share, uniform, most=8.0):
    """Return the number that, added to all scores, makes `most` the highest weight; 0 if none exceeds it."""
    most = (most - uniform) / (1 - uniform)  # of a score divided by the mean
    highest, mean = scores[share > 0].max(), (share * scores).sum()
    return ((highest - most * mean) / (most - 1)).clamp(min=0)


class Changed(Tried):
    """Curves of designs, some of them changed."""

    def adopt(self, designs):
        self.kinds = [getattr(each, "kinds", ()) for each in designs]
        super().adopt([getattr(each, "design", each) for each in designs])
        self.agreement, self.known = torch.zeros(
            2, len(designs), dtype=torch.float64, device=self._memory.device
        )

    def _measure(self, epoch, number, knot, count):
        self.share = count / knot.shape[1]
        super()._measure(epoch, number, knot, count)
        products = [_inner(a, b) for a, b in combinations_with_replacement((self.whole, self.direction), 2)]
        cosine = products[1] / (products[0] * products[2]).sqrt().clamp(min=1e-30)
        self.agreement = DECAY * self.agreement + (1 - DECAY) * cosine
        self.known = DECAY * self.known + (1 - DECAY)

    def _gradient(self, loss, counts, again=False):
        gradient = super()._gradient(loss, counts, again)
        if self.loss == ROBUST:  # the first gradient is that of validation, the others are those of the knots
            if len(self.norms) == 1:
                self.direction, self.whole = gradient, [torch.zeros_like(each) for each in gradient]
            else:
                share = self.share[:, len(self.norms) - 2]
                for whole, each in zip(self.whole, gradient, strict=True):
                    whole += share.view(-1, *[1] * (each.dim() - 1)).to(each) * each
        return gradient

    def _curves(self, share):
        curves, uniform = super()._curves(share)
        harmful = (share * (self.seen[ROBUST, "plain"].means() < 0)).sum(-1)
        for lane, kinds in enumerate(self.kinds):
            if "careful" in kinds:
                uniform[lane] = 0.1 + 0.4 * (1 - harmful[lane]) ** 10
            if "held" in kinds:
                curves[lane] += lift(curves[lane], share[lane], float(uniform[lane]))
        return curves, uniform

    def learn(self, epoch):
        super().learn(epoch)
        means, scores = self._memory.means(self._models), self._memory.scores[self._models].double()
        uniform = self._memory._uniform[self._models]
        weights = uniform + (1 - uniform) * scores / scores.mean(-1, keepdim=True)
        factors = (1 - means).mean(-1) / (weights * (1 - means)).mean(-1).clamp(min=1e-9)
        for lane, kinds in enumerate(self.kinds):
            factor = factors[lane]
            if "agreeing" in kinds and factor < 1:
                agreement = (self.agreement / self.known.clamp(min=1e-9)).clamp(0, 1)[lane]
                factor = agreement + (1 - agreement) * factor
            for most in (each for each in kinds if isinstance(each, float)):
                factor = (most * factor).clamp(max=1)
            if kinds and kinds[-1] not in ("careful", "held"):
                self._memory.factors[self._models.start + lane] = factor


def main():
    script = auto_designs if "--rows" in sys.argv else auto_unseen
    script.Tried = Changed
    script.main()


if __name__ == "__main__":
    main()
