"""From scores to emphasis: e_i = s_i + ε with ε = mean(s), so that N = mean(e) = 2ε.

Pure functions along the last dimension, for torch tensors and NumPy arrays.
"""

import numpy as np
import torch

from activebias._arrays import Array

# Each step leaves a fraction of the distance; six suffice in practice.
NEWTON_STEPS = 8


def weights(scores: Array, mean: Array, uniform: Array | float = 0.5) -> Array:
    """v_i = e_i / N = u + (1 - u) s_i / mean(s), where `mean` is the mean of s over the whole data set.

    `uniform` is u = ε / N, the part of the emphasis that all instances share: ½ in the paper.

    The mean of v over the data set is 1. Where every score is 0, the weights are 1.

    >>> import numpy as np
    >>> weights(np.array([0.0, 0.1, 0.2]), np.array(0.1))
    array([0.5, 1. , 1.5])
    """
    xp = torch if isinstance(scores, torch.Tensor) else np
    if xp is np and (isinstance(mean, float) or np.ndim(mean) == 0):
        # The usual case on a CPU: a single mean needs no `where`.
        return uniform + ((1 - uniform) / float(mean)) * scores if mean > 0 else np.ones_like(scores)
    positive = mean > 0
    return xp.where(positive, uniform + (1 - uniform) * scores / xp.where(positive, mean, 1), 1)


def bound(weights: Array, number: int, max_weight: float) -> tuple[Array, Array]:
    """Return (limit, lift) for which min(v, limit) + lift has the mean 1 and the maximum `max_weight`.

    The excess above the limit is given to all `number` instances alike: lift = Σ max(v - limit, 0) / number.
    No lift exceeds 1 - u, so only weights above `max_weight` - 1 + u need be given. Newton's method from the
    right: limit + lift rises with the limit, and is convex. On a GPU no value is looked at, so all steps are
    taken.

    >>> import numpy as np
    >>> limit, lift = bound(np.array([0.5, 0.5, 0.5, 2.5]), 4, 1.5)
    >>> np.minimum([0.5, 0.5, 0.5, 2.5], limit) + lift
    array([0.83333333, 0.83333333, 0.83333333, 1.5       ])
    """
    xp = torch if isinstance(weights, torch.Tensor) else np
    weights = xp.asarray(weights, dtype=xp.float64, device=weights.device)
    limit = weights.sum() * 0 + max_weight
    for _ in range(NEWTON_STEPS):
        lift = (weights - limit).clip(0).sum() / number
        slope = 1 - (weights >= limit).sum() / number
        change = (limit + lift - max_weight) / xp.where(slope > 0, slope, 1)
        if xp is np and abs(change) < 1e-12:
            break
        limit = limit - change
    return limit, (weights - limit).clip(0).sum() / number


def probabilities(scores: Array, uniform: float = 0.5) -> Array:
    """P(i) = e_i / Σe: a part u uniform, the rest proportional to s; in float64.

    >>> import numpy as np
    >>> probabilities(np.array([0.0, 0.1, 0.3]))
    array([0.16666667, 0.29166667, 0.54166667])
    """
    xp = torch if isinstance(scores, torch.Tensor) else np
    scores = xp.asarray(scores, dtype=xp.float64, device=scores.device)
    return weights(scores, scores.mean(-1)[..., None], uniform) / scores.shape[-1]
