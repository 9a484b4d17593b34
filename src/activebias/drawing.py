"""Exact draws from P(i) = e_i / Σe at any data-set size.

P is half uniform and half proportional to the score. The uniform half is a multiplication. The other half
goes down a tree of sums over blocks of 64 scores: drawing or updating a batch touches a few blocks a
level, never the data set. All sums are float64.
"""

import numpy as np
import torch

from activebias._arrays import Array, arange_like, cast, namespace, native, running_sum

BLOCK = 64
# Blocks that are summed at a time: at 100 million instances, all scores in float64 would take 800 MB.
AT_ONCE = 2**16


def padded_length(num_instances: int) -> int:
    """Return how long the scores must be: whole blocks, with room for the row that does not count."""
    return (num_instances // BLOCK + 1) * BLOCK


class BlockSums:
    """Sums over blocks of 64 scores, over blocks of 64 such sums, and so on up to a single block.

    A touched block is summed anew, so that nothing drifts and repeated indices do no harm.
    """

    def __init__(self, scores: torch.Tensor) -> None:
        """Build the tree over `scores` (float32, whole blocks), which stays shared with the caller."""
        self._levels = [scores]
        while (num_sums := self._levels[-1].numel() // BLOCK) > 1:
            sums = torch.zeros(padded_length(num_sums - 1), dtype=torch.float64, device=scores.device)
            self._levels.append(sums)
        self.rebuild()

    def rebuild(self) -> None:
        """Sum everything anew, in place; on a CPU to the very bits that `update` gives."""
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            blocks, sums = native(below).reshape(-1, BLOCK), native(above)
            for first in range(0, len(blocks), AT_ONCE):
                part = slice(first, min(first + AT_ONCE, len(blocks)))
                sums[part] = cast(blocks[part], "float64").sum(-1)

    @property
    def num_bytes(self) -> int:
        """How many bytes the sums take (the scores not counted)."""
        return sum(level.nbytes for level in self._levels[1:])

    def total(self) -> Array:
        """Return the sum of all scores."""
        return cast(native(self._levels[-1]), "float64").sum()

    def update(self, index: Array) -> None:
        """Bring the sums up to date after the scores at `index` changed."""
        if index.shape[0] * BLOCK > self._levels[0].shape[0]:
            self.rebuild()
            return
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            index = index // BLOCK
            blocks = native(below).reshape(-1, BLOCK)[index]
            native(above)[index] = cast(blocks, "float64").sum(-1)

    def draw(self, uniform: Array) -> Array:
        """Map uniform numbers in [0, 1) to indices with probability proportional to the score."""
        xp = namespace(uniform)
        target = uniform * self.total()
        index = xp.zeros_like(uniform, dtype=xp.int64)
        for level in reversed(self._levels):
            block = native(level).reshape(-1, BLOCK)[index]
            cumulative = running_sum(cast(block, "float64"))
            # Rounding must not carry the target past the block's end, where the padding is.
            end = cumulative[..., -1]
            target = xp.minimum(target, xp.nextafter(end, xp.zeros_like(end)))
            # Where every score is 0 there is no place to find; the caller does not use it, but it must exist.
            inside = xp.where(end > 0, (cumulative <= target[..., None]).sum(-1), 0)
            below = cumulative.reshape(-1)[arange_like(index, index.shape[0]) * BLOCK + (inside - 1).clip(0)]
            target = target - xp.where(inside > 0, below, 0)
            index = index * BLOCK + inside
        return index


def draw(sums: BlockSums, num_instances: int, uniform: Array) -> Array:
    """Draw from P: below ½ a uniform number picks uniformly, above it in proportion to the score."""
    xp = namespace(uniform)
    anywhere = cast(uniform * 2 * num_instances, "int64") % num_instances
    scored = sums.draw(((uniform - 0.5) * 2).clip(0))
    # Where every score is 0 the second half has nothing to choose by: all of it is uniform.
    return xp.where((uniform < 0.5) | (sums.total() <= 0), anywhere, scored)


def draw_directly(scores: Array, uniform: Array) -> Array:
    """Draw as `draw` does, the same instances for the same numbers, by one pass over all scores (…, N).

    Faster where the batch is no small part of the data set. Tensors may have leading dimensions: trials that
    are trained side by side.

    >>> draw_directly(torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.4, 0.6, 0.7]], dtype=torch.float64))
    tensor([[2, 1, 2]])
    """
    xp, num_instances = namespace(uniform), scores.shape[-1]
    cumulative = running_sum(cast(scores, "float64"))
    total = cumulative[..., -1:]
    anywhere = cast(uniform * 2 * num_instances, "int64") % num_instances
    target = xp.minimum(((uniform - 0.5) * 2).clip(0) * total, xp.nextafter(total, xp.zeros_like(total)))
    scored = xp.searchsorted(cumulative, target, side="right").clip(0, num_instances - 1)
    return xp.where((uniform < 0.5) | (total <= 0), anywhere, scored)


def draw_many(scores: Array, num_samples: int, generator: torch.Generator) -> Array:
    """Draw from P as many samples as there are instances, or more: in one pass over the data set.

    Sorted uniform numbers come from exponential spacings, find their place in the cumulative sum from left
    to right, and are shuffled afterwards.
    """
    # NumPy's exponentials and shuffle are several times faster; its generator is seeded by torch's.
    seed = torch.randint(2**63 - 1, (), generator=generator, device="cpu")
    numbers = np.random.default_rng(int(seed))
    spacings = numbers.standard_exponential(num_samples + 1)
    ordered = np.cumsum(spacings, out=spacings)
    ordered /= ordered[-1]
    # e_i = s_i + ε, and 1 where every score is 0.
    emphasis = np.add(scores, scores.mean(dtype=np.float64) or 1.0, dtype=np.float64)
    cumulative = np.cumsum(emphasis, out=emphasis)
    cumulative /= cumulative[-1]
    drawn = np.searchsorted(cumulative, ordered[:-1], side="right")
    np.minimum(drawn, len(scores) - 1, out=drawn)  # the last spacing may round away
    numbers.shuffle(drawn)
    return drawn
