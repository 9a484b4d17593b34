"""From logits to a weighted loss: cross-entropy, the p(y|x) that it computes anyway, the weighted mean."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from activebias.checks import IGNORED


class PerInstance(NamedTuple):
    """Loss and p(y|x) of every instance, in the shape of the targets, and which ones count (None: all).

    Where `prob` is None, it is exp(-loss), and `mask` holds the targets.
    """

    loss: torch.Tensor
    prob: torch.Tensor | None
    mask: torch.Tensor | None


class Weights(NamedTuple):
    """The weights of a batch, and how to take their mean.

    Attributes:
        value, number, mean: the fields of `LookedUp`.
        num_ranks: the ranks that `number` counts over.
        padding_scale, num_real: as in the batch's `Place`.
    """

    value: torch.Tensor
    number: torch.Tensor | int | None
    mean: torch.Tensor | None
    num_ranks: int
    padding_scale: float | None
    num_real: int


# Looks up the weights of a batch of losses, and remembers the probabilities.
Visit = Callable[[torch.Tensor, Any, Any], Weights]


def weighted_cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, *, visit: Visit, reduction: str, **options: Any
) -> torch.Tensor:
    """Return the weighted `cross_entropy`, which takes the options."""
    per_instance = cross_entropy(logits, targets, **options)
    return weighted(per_instance.loss, per_instance.prob, per_instance.mask, visit=visit, reduction=reduction)


def weighted(losses: torch.Tensor, prob: Any, mask: Any, *, visit: Visit, reduction: str) -> torch.Tensor:
    """Return v_i · loss_i, or their mean or sum."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"Expected `reduction` to be 'mean', 'sum' or 'none', but got {reduction!r}.")
    # During backward torch has a graph task: activation checkpointing computes its block a second time.
    if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
        raise RuntimeError(
            "The bias remembers every batch that is weighed, once, but this one is computed without "
            "gradients or a second time: to evaluate, use torch's own loss; with activation "
            "checkpointing, compute the loss outside of the checkpointed block; to remember the "
            "probabilities of a training batch alone, call `bias.record`."
        )
    weights = visit(losses, prob, mask)
    if reduction == "mean":
        return _mean(weights, losses)
    weighed = weights.value.to(losses, copy=losses.is_cuda) * losses
    if reduction == "sum":
        return weighed.sum()
    return weighed if weights.padding_scale is None else weights.padding_scale * weighed


def _mean(weights: Weights, losses: torch.Tensor) -> torch.Tensor:
    number = weights.number
    if weights.mean is not None and losses.dim() == 1:
        # One launch. The copy is for autograd: the next step may overwrite the weights.
        mean = torch.dot(weights.mean.to(losses, copy=True), losses)
    else:
        weighed = weights.value.to(losses, copy=losses.is_cuda) * losses
        # DistributedDataParallel divides the sum of the gradients by the number of ranks.
        mean = weighed.mean() if number is None else weighed.sum() * weights.num_ranks / number
    if weights.padding_scale is None:
        return mean
    # This mean is over the items. The mean of all ranks counts the padding too.
    return weights.padding_scale * weights.num_real / len(losses) * mean


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    num_classes: int,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    leave_exp: bool = False,
) -> PerInstance:
    """Return the cross-entropy of class logits (…, C) to int targets (…), or of binary logits in their shape.

    With `leave_exp` the probabilities of plain class losses are left to be computed with the weights.
    With label smoothing the loss is that of torch's `cross_entropy`; the probability stays the true class's.

    >>> per_instance = cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), num_classes=2)
    >>> per_instance.prob, per_instance.loss
    (tensor([0.8808]), tensor([0.1269]))
    """
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point():
        raise TypeError(f"Expected `logits` to be a floating-point tensor, but got {_describe(logits)}.")
    if not isinstance(targets, torch.Tensor):
        raise TypeError(f"Expected `targets` to be a tensor, but got {type(targets).__name__}.")
    if targets.dtype in (torch.uint16, torch.uint32, torch.uint64):
        targets = targets.long()  # torch cannot compare these
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"Expected `label_smoothing` to be in [0, 1), but got {label_smoothing}.")
    if targets.dim() > 2:
        raise ValueError(
            f"Expected `targets` to have one or two dimensions, but got {tuple(targets.shape)}: where every "
            "pixel is an instance, pass `logits.permute(0, 2, 3, 1).flatten(1, 2)` and `targets.flatten(1)`."
        )
    # Half-precision logits come from autocast; a bfloat16 probability has 8 bits, too few for a history.
    logits = logits.float() if logits.dtype.itemsize == 2 else logits
    if logits.shape == targets.shape:
        return _binary(logits, targets, num_classes, ignore_index, label_smoothing)
    if logits.shape != (*targets.shape, num_classes):
        hint = ": use `logits.squeeze(-1)`" if logits.shape == (*targets.shape, 1) else ""
        raise ValueError(
            f"Expected `logits` of shape {(*targets.shape, num_classes)} for `targets` of shape "
            f"{tuple(targets.shape)} and {num_classes} classes, but got {tuple(logits.shape)}{hint}."
        )
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise TypeError(f"Expected `targets` to be integer class labels, but got {targets.dtype}.")
    leave_exp = leave_exp and not label_smoothing and ignore_index == IGNORED
    mask = targets if leave_exp else _counted(targets, num_classes, ignore_index)
    flat_logits, flat_targets = logits, targets.long()
    if targets.dim() != 1:  # a view costs autograd a node, which shows in a small model's step
        flat_logits, flat_targets = logits.reshape(-1, num_classes), flat_targets.reshape(-1)
    losses = functional.cross_entropy(
        flat_logits,
        flat_targets,
        reduction="none",
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    if leave_exp:
        return PerInstance(losses if targets.dim() == 1 else losses.view(targets.shape), None, mask)
    with torch.no_grad():
        plain = losses
        if label_smoothing:
            plain = functional.cross_entropy(
                flat_logits, flat_targets, reduction="none", ignore_index=ignore_index
            )
        prob = torch.exp(-plain)
    return PerInstance(losses.view(targets.shape), prob.view(targets.shape), mask)


def _binary(
    logits: torch.Tensor, targets: torch.Tensor, num_classes: int, ignore_index: int, label_smoothing: float
) -> PerInstance:
    if num_classes != 2 and targets.dim() > 1 and targets.shape[-1] == num_classes:
        raise ValueError(
            f"Expected `targets` to be class labels of shape {tuple(targets.shape[:-1])}, but got the "
            f"logits' shape {tuple(targets.shape)}: of one-hot targets take `argmax(-1)`; for "
            "soft ones use `weigh`, with a loss of your own."
        )
    if num_classes != 2:
        raise ValueError(
            f"`logits` of the targets' shape {tuple(targets.shape)} are binary logits, but there are "
            f"{num_classes} classes: expected shape {(*targets.shape, num_classes)}."
        )
    mask = _counted(targets, num_classes, ignore_index)
    sign = torch.where(targets > 0, 1.0, -1.0).to(logits)
    true_log_prob = functional.logsigmoid(sign * logits)
    loss = -true_log_prob
    if label_smoothing:
        # Both classes' share of the smoothing, as torch's cross_entropy gives it for two classes.
        loss = loss + 0.5 * label_smoothing * sign * logits
    if mask is not None:
        loss = torch.where(mask, loss, 0)
    return PerInstance(loss, true_log_prob.detach().exp(), mask)


def _counted(targets: torch.Tensor, num_classes: int, ignore_index: int) -> torch.Tensor | None:
    """Return which targets count (None: all), and refuse labels outside the classes.

    On a GPU looking at the values would wait for the device. There torch's cross-entropy refuses wrong class
    labels by a device-side assertion; binary labels above 0 count as 1.
    """
    if targets.device.type != "cpu":
        return targets != ignore_index
    if targets.numel() and not targets.is_floating_point():
        low, high = (bound.item() for bound in targets.aminmax())
        if low >= 0 and high < num_classes and not low <= ignore_index <= high:
            return None
    mask = targets != ignore_index
    labels = targets[mask]
    wrong = labels[(labels < 0) | (labels >= num_classes) | (labels != labels.long())]
    if wrong.numel():
        raise ValueError(
            f"Expected `targets` to be labels from 0 to {num_classes - 1} (or ignore_index={ignore_index}), "
            f"but got {wrong[0].item()}."
        )
    return None if labels.numel() == targets.numel() else mask


def _describe(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, torch.Tensor) else type(value).__name__
