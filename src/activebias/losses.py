"""Per-instance cross-entropy together with the probability p(y|x) that it already computed."""

from typing import NamedTuple

import torch
from torch.nn import functional

# The target that does not count unless told otherwise, as in torch's cross-entropy.
IGNORED = -100


class PerInstance(NamedTuple):
    """Loss and p(y|x) of every instance, in the shape of the targets, and which ones count (None: all)."""

    loss: torch.Tensor
    prob: torch.Tensor
    mask: torch.Tensor | None


def _at_least_float32(logits: torch.Tensor) -> torch.Tensor:
    # Half-precision logits come from autocast; a bfloat16 probability has 8 bits, too few for a history.
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    num_classes: int,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
) -> PerInstance:
    """Return the cross-entropy of class logits (…, C) to int targets (…), or of binary logits in their shape.

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
    logits = _at_least_float32(logits)
    if logits.shape == targets.shape:
        return _binary(logits, targets, num_classes, ignore_index, label_smoothing)
    if logits.shape != (*targets.shape, num_classes):
        raise ValueError(
            f"Expected `logits` of shape {(*targets.shape, num_classes)} for `targets` of shape "
            f"{tuple(targets.shape)} and {num_classes} classes, but got {tuple(logits.shape)}."
        )
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise TypeError(f"Expected `targets` to be integer class labels, but got {targets.dtype}.")
    mask = _counted(targets, num_classes, ignore_index)
    flat_logits, flat_targets = logits.reshape(-1, num_classes), targets.reshape(-1).long()
    losses = functional.cross_entropy(
        flat_logits,
        flat_targets,
        reduction="none",
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    with torch.no_grad():
        plain = losses
        if label_smoothing:
            plain = functional.cross_entropy(
                flat_logits, flat_targets, reduction="none", ignore_index=ignore_index
            )
        prob = torch.exp(-plain)
    return PerInstance(losses.view(targets.shape), prob.view(targets.shape), mask)


def is_plain(logits: object, targets: object, index: torch.Tensor, num_classes: int) -> bool:
    """Tell whether these are class logits (B, C) and labels beside the index (B,), nothing to convert."""
    return (
        isinstance(logits, torch.Tensor)
        and isinstance(targets, torch.Tensor)
        and logits.device == targets.device == index.device
        and index.dim() == 1
        and targets.dtype == torch.int64
        and targets.shape == index.shape
        and logits.shape == (*index.shape, num_classes)
        and logits.dtype in (torch.float32, torch.float16, torch.bfloat16)
    )


def surprisal(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return -log p(y|x) of plain logits, (B,); 0 where the target is ignored."""
    return functional.cross_entropy(_at_least_float32(logits), targets, reduction="none")


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
