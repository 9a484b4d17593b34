"""Exact draws from P(i) = e_i / Σe at any data-set size.

A part of P is uniform, ½ in the paper, the rest proportional to the score. The uniform part is a
multiplication. The other part goes down a tree of sums over blocks of 64 scores: drawing or updating a batch
touches a few blocks a level, never the data set. All sums are float64.
"""

import numpy as np
import torch

from activebias._arrays import Array, namespace

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

    def __init__(self, scores: Array) -> None:
        """Build the tree over `scores` (float32, whole blocks), which stays shared with the caller."""
        xp = namespace(scores)
        self._levels = [scores]
        while (num_sums := self._levels[-1].shape[0] // BLOCK) > 1:
            length = padded_length(num_sums - 1)
            self._levels.append(xp.zeros(length, dtype=xp.float64, device=scores.device))
        self.rebuild()

    def rebuild(self) -> None:
        """Sum everything anew, in place; on a CPU to the very bits that `update` gives."""
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            blocks = below.reshape(-1, BLOCK)
            for first in range(0, len(blocks), AT_ONCE):
                part = slice(first, min(first + AT_ONCE, len(blocks)))
                above[part] = _float64(blocks[part]).sum(-1)

    @property
    def num_bytes(self) -> int:
        """How many bytes the sums take (the scores not counted)."""
        return sum(level.nbytes for level in self._levels[1:])

    def total(self) -> Array:
        """Return the sum of all scores."""
        return _float64(self._levels[-1]).sum()

    def update(self, index: Array) -> Array:
        """Bring the sums up to date after the scores at `index` changed; return the sum of all scores."""
        if index.shape[0] * BLOCK > self._levels[0].shape[0]:
            self.rebuild()
        else:
            for below, above in zip(self._levels, self._levels[1:], strict=False):
                index = index // BLOCK
                above[index] = _float64(below.reshape(-1, BLOCK)[index]).sum(-1)
        return self.total()

    def draw(self, uniform: Array) -> Array:
        """Map uniform numbers in [0, 1) to indices with probability proportional to the score."""
        xp = namespace(uniform)
        target = uniform * self.total()
        index = xp.zeros_like(uniform, dtype=xp.int64)
        first = xp.arange(index.shape[0], device=index.device) * BLOCK
        for level in reversed(self._levels):
            cumulative = _running_sum(_float64(level.reshape(-1, BLOCK)[index]))
            # Rounding must not carry the target past the block's end, where the padding is.
            end = cumulative[..., -1]
            target = xp.minimum(target, xp.nextafter(end, xp.zeros_like(end)))
            # If every score is 0, the caller does not use the index, but it must be valid.
            inside = xp.where(end > 0, (cumulative <= target[..., None]).sum(-1), 0)
            below = cumulative.reshape(-1)[first + (inside - 1).clip(0)]
            target = target - xp.where(inside > 0, below, 0)
            index = index * BLOCK + inside
        return index


def draw(sums: BlockSums, num_instances: int, uniform: Array, part: float = 0.5) -> Array:
    """Draw from P: below `part` a uniform number picks uniformly, above it in proportion to the score."""
    scored = sums.draw(((uniform - part) / (1 - part)).clip(0))
    # If every score is 0, all draws are uniform.
    by_score = (uniform >= part) & (sums.total() > 0)
    return namespace(uniform).where(by_score, scored, _anywhere(num_instances, uniform, part))


def draw_directly(scores: Array, uniform: Array, part: Array | float = 0.5) -> Array:
    """Draw as `draw` does, the same instances for the same numbers, by one pass over all scores (…, N).

    Faster where the batch is no small part of the data set. Tensors may have leading dimensions: trials that
    are trained side by side.

    >>> draw_directly(torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.4, 0.6, 0.7]], dtype=torch.float64))
    tensor([[2, 1, 2]])
    """
    xp, num_instances = namespace(uniform), scores.shape[-1]
    cumulative = _running_sum(_float64(scores))
    total = cumulative[..., -1:]
    target = ((uniform - part) / (1 - part)).clip(0) * total
    target = xp.minimum(target, xp.nextafter(total, xp.zeros_like(total)))
    scored = xp.searchsorted(cumulative, target, side="right").clip(0, num_instances - 1)
    by_score = (uniform >= part) & (total > 0)
    return xp.where(by_score, scored, _anywhere(num_instances, uniform, part))


def _anywhere(num_instances: int, uniform: Array, part: Array | float) -> Array:
    """Return uniform draws: numbers up to `part` cover the data set once, larger numbers go around again."""
    xp = namespace(uniform)
    return xp.asarray(uniform / part * num_instances, dtype=xp.int64, device=uniform.device) % num_instances


def _float64(array: Array) -> Array:
    if isinstance(array, torch.Tensor):
        return array.double()
    return np.asarray(array, dtype=np.float64)


def _running_sum(array: Array) -> Array:
    """Return the sums up to every entry along the last dimension.

    A GPU's sums may vary by rounding from run to run, and torch refuses them in deterministic mode: there
    the CPU adds.
    """
    if isinstance(array, torch.Tensor) and array.is_cuda and torch.are_deterministic_algorithms_enabled():
        return array.cpu().cumsum(-1).to(array.device)
    return array.cumsum(-1)
