"""Numbers of a bias for loggers, as plain floats."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from activebias import emphasis
from activebias._arrays import as_tensor, native
from activebias.learning import step_factor_of, weights_at
from activebias.statistics import estimate

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias

SHOWN_MEANS = (0.05, 0.25, 0.5, 0.75, 0.95)  # p̄


class _Numbers(NamedTuple):
    """Numbers of every instance, or their sums or means over the data set."""

    weight: Any
    weight_squared: Any
    emphasis: Any
    emphasis_squared: Any
    score: Any
    confidence: Any
    variability: Any


def describe(bias: "ActiveBias") -> str:
    """Return one line for people: the method, the sizes, the epoch, and whether it emphasises yet.

    >>> from activebias import ActiveBias
    >>> ActiveBias("wtc", num_instances=4, num_classes=2)
    ActiveBias('wtc', num_instances=4, num_classes=2, epoch=None: does not emphasise yet)
    """
    state = "does not emphasise yet"
    if bias.method.statistic is None:
        state = "emphasises nothing"
    elif bias.emphasises:
        state = f"emphasises by {'weights' if bias.method.order == 'scan' else 'draws'}"
    num_labels, option = (bias.num_classes, ", multi_label=True") if bias.multi_label else (1, "")
    sizes = f"num_instances={bias.num_instances // num_labels}, num_classes={bias.num_classes}{option}"
    return f"ActiveBias({bias.method.name!r}, {sizes}, epoch={bias.epoch}: {state})"


def metrics(bias: "ActiveBias") -> dict[str, float]:
    """Return numbers worth logging; reads every history, and waits for the device.

    The effective sample size is (Σe)² / Σe², where e is the emphasis of an instance, by draws or by weights.
    It is the number of instances if all e are equal, and lower if they differ.
    """
    bias._require_epoch()
    draws = bias.method.order == "emphasis" and bias.emphasises
    weight_min, weight_max = math.inf, -math.inf
    sums, unvisited = torch.zeros(len(_Numbers._fields), dtype=torch.float64, device="cpu"), 0
    initial = bias.history.stored_initial
    for index in bias.history.chunks():
        weight = as_tensor(bias._memory.weight(native(index))).double()
        entries, count = bias.history.entries(native(index))
        estimated = estimate(entries, count, remove_outliers=bias.remove_outliers)
        score = bias._memory.scores.values(index)
        emphasised = weight
        if draws:
            scores = bias._memory.scores
            emphasised = as_tensor(emphasis.weights(native(score), scores.mean(), scores.uniform)).double()
        # A single entry does not tell how often it was replaced.
        alone = entries[..., 0] == initial if bias.history.window == 1 else count <= 1
        part = _Numbers(
            weight,
            weight**2,
            emphasised,
            emphasised**2,
            score,
            as_tensor(estimated.mean),
            as_tensor(estimated.variance).sqrt(),
        )
        sums += torch.stack([each.sum(dtype=torch.float64) for each in part]).cpu()
        unvisited += int(alone.sum())
        weight_min, weight_max = min(weight_min, float(weight.min())), max(weight_max, float(weight.max()))
    total, mean = _Numbers(*sums.tolist()), _Numbers(*(sums / bias.num_instances).tolist())
    numbers = {
        "effective_sample_size": total.emphasis * total.emphasis / total.emphasis_squared,
        "weight_min": weight_min,
        "weight_max": weight_max,
        "weight_std": math.sqrt(max(mean.weight_squared - mean.weight**2, 0.0)),
        "score_mean": mean.score,
        "confidence_mean": mean.confidence,
        "variability_mean": mean.variability,
        "share_unvisited": unvisited / bias.num_instances,
        "num_skipped": float(bias.num_skipped),
    }
    if bias.method.learns:  # a few points of the curve
        found = zip(SHOWN_MEANS, weights_at(bias, SHOWN_MEANS), strict=True)
        numbers |= {f"weight_at_{mean}": weight for mean, weight in found}
        numbers["step_factor"] = step_factor_of(bias)
    return numbers
