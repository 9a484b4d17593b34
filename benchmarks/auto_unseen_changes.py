"""Changes of the design of `auto`, for the rows of benchmarks/auto_unseen.py in which it lost.

    python benchmarks/auto_unseen_changes.py --data FOLDER --first-seed 2000 --rate 0.1 --out OUT \\
      --sides scan we wtc auto class-rounds careful same-step --sets NAME --noises clean

The options are those of benchmarks/auto_unseen.py. Try changes on other seeds than 0 to 9, and with another
`--out`: on those seeds `auto` is judged.
"""

from typing import NamedTuple

import auto_unseen
from auto_designs import DESIGNS, ROBUST, Design, Tried

BASE = DESIGNS["trusted-class"]


class Change(NamedTuple):
    """A design, and how it is changed."""

    design: Design
    kinds: tuple[str, ...]


DESIGNS |= {
    # The uniform part is that of the paper, ½, where no instance harms, and falls to 0.1 where many harm.
    "careful": Change(BASE, ("careful",)),
    # Weights are divided by one number, so that the sum of v (1 - p̄) is that of plain training.
    "same-step": Change(BASE, ("same-step",)),
    "careful-same-step": Change(BASE, ("careful", "same-step")),
    "rounds-same-step": Change(DESIGNS["class-rounds"], ("same-step",)),
}


class Changed(Tried):
    """Curves of designs, some of them changed."""

    def adopt(self, designs):
        self.kinds = [getattr(each, "kinds", ()) for each in designs]
        super().adopt([getattr(each, "design", each) for each in designs])
        plain, memory = self._memory.weights, self._memory
        self.factors = memory.scores.new_ones(memory.num_models, 1)
        memory.weights = lambda index: plain(index) * self.factors

    def _curves(self, share):
        curves, uniform = super()._curves(share)
        harmful = (share * (self.seen[ROBUST, "plain"].means() < 0)).sum(-1)
        for lane, kinds in enumerate(self.kinds):
            if "careful" in kinds:
                uniform[lane] = 0.1 + 0.4 * (1 - harmful[lane]) ** 10
        return curves, uniform

    def learn(self, epoch):
        super().learn(epoch)
        means, scores = self._memory.means(self._models), self._memory.scores[self._models].double()
        uniform = self._memory._uniform[self._models]
        weights = uniform + (1 - uniform) * scores / scores.mean(-1, keepdim=True)
        factors = (1 - means).mean(-1) / (weights * (1 - means)).mean(-1).clamp(min=1e-9)
        for lane, kinds in enumerate(self.kinds):
            if "same-step" in kinds:
                self.factors[self._models.start + lane] = factors[lane]


def main():
    auto_unseen.Tried = Changed
    auto_unseen.main()


if __name__ == "__main__":
    main()
