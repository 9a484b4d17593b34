"""What is worth logging about a bias, as plain floats."""

from typing import TYPE_CHECKING

import torch

from activebias._arrays import as_tensor, native
from activebias.statistics import estimate

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias

# Estimates need some copies of the histories they read: at 100 million instances only a part fits.
CHUNK = 2**18


def metrics(bias: "ActiveBias") -> dict[str, float]:
    """Return the numbers of `ActiveBias.metrics`.

    The effective sample size is (Σe)² / Σe² of what the method emphasises by, draws or weights: the number
    of instances that an equal emphasis would need to be as varied.
    """
    weights = bias.weights()
    probabilities = bias.probabilities()
    emphasis = (weights if probabilities is None else probabilities).double()
    confidence = variability = unvisited = 0.0
    for first in range(0, bias.num_instances, CHUNK):
        last = min(first + CHUNK, bias.num_instances)
        index = native(torch.arange(first, last, device=bias.device))
        entries, count = bias.history.entries(index)
        estimated = estimate(entries, count, remove_outliers=bias.remove_outliers)
        confidence += float(as_tensor(estimated.mean).sum(dtype=torch.float64))
        variability += float(as_tensor(estimated.variance).sqrt().sum(dtype=torch.float64))
        if bias.history.window == 1:  # a single entry does not tell how often it was replaced
            unvisited += float((entries[..., 0] == bias.history.initial).sum())
        else:
            unvisited += float((count <= 1).sum())
    return {
        "effective_sample_size": float(emphasis.sum() ** 2 / (emphasis**2).sum()),
        "weight_min": float(weights.min()),
        "weight_max": float(weights.max()),
        "weight_std": float(weights.double().std(correction=0)),
        "score_mean": float(bias.scores.mean(dtype=torch.float64)),
        "confidence_mean": confidence / bias.num_instances,
        "variability_mean": variability / bias.num_instances,
        "share_unvisited": unvisited / bias.num_instances,
        "num_skipped": float(bias.num_skipped),
    }
