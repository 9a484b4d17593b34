"""From logits to a weighted loss: cross-entropy, the p(y|x) that it computes anyway, the weighted mean."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from activebias import checks
from activebias.checks import IGNORED

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias


class PerInstance(NamedTuple):
    """Loss and p(y|x) of every instance.

    Attributes:
        loss: the loss, times the user's own weights.
        prob: p(y|x). None: it is exp(-loss), and `mask` holds the targets.
        mask: which entries count (None: all).
        share: the mean divides by the sum of these numbers, 0 for entries that do not count (None: 1 each).
    """

    loss: Any
    prob: Any
    mask: torch.Tensor | None
    share: torch.Tensor | None = None

    def times(self, weight: Any) -> "PerInstance":
        """Return the losses weighted by a factor for each instance; the mean becomes the weighted mean."""
        factor = checks.factors("sample_weight", weight, like=self.loss)
        if factor.dim() == 1 and self.loss.dim() == 2:
            factor = factor[:, None].expand_as(self.loss)  # one factor for all words of a sentence
        if factor.shape != self.loss.shape:
            raise ValueError(
                f"Expected `sample_weight` to have the shape of the targets, {tuple(self.loss.shape)}, but "
                f"got {tuple(factor.shape)}."
            )
        share = factor if self.share is None else self.share * factor
        return self._replace(loss=self.loss * factor, share=share).where_counted()

    def where_counted(self) -> "PerInstance":
        """Return 0 as loss and share of entries that do not count: they may be NaN, and 0 · NaN is NaN."""
        if self.mask is None:
            return self
        share = None if self.share is None else torch.where(self.mask, self.share, 0)
        return self._replace(loss=torch.where(self.mask, self.loss, 0), share=share)

    def of_sequences(self) -> "PerInstance":
        """Return (B,) sequences for (B, L) tokens: p is the geometric mean of p(token) over its tokens."""
        if self.loss.dim() != 2:
            raise ValueError(
                f"`sequences=True` takes targets of shape (sequences, tokens), got {tuple(self.loss.shape)}."
            )
        mask = torch.ones_like(self.loss, dtype=torch.bool) if self.mask is None else self.mask
        log_prob = torch.where(mask, self.prob.clamp(min=1e-38).log(), 0)
        number = mask.sum(1)
        prob = (log_prob.sum(1) / number.clamp(min=1)).exp()
        share = number.to(self.loss) if self.share is None else self.share.sum(1)
        return PerInstance(self.loss.sum(1), prob, number > 0, share)


class Weights(NamedTuple):
    """The weights of a batch, and how to take their mean. On a GPU the next step may overwrite them.

    Attributes:
        value: v of every entry, 0 where it does not count.
        number: how many entries count, at least 1, or the sum of their shares; None for all.
        mean: on a GPU, value / number.
        num_ranks: the ranks that `number` counts over.
        padding_scale, num_real: as in the batch's `Place`.
    """

    value: torch.Tensor
    number: torch.Tensor | int | None
    mean: torch.Tensor | None = None
    num_ranks: int = 1
    padding_scale: float | None = None
    num_real: int = 0

    def apply(self, losses: torch.Tensor, reduction: str) -> torch.Tensor:
        """Return the weighted losses, or their sum or mean: 0 where no target counts, or none came."""
        if not losses.numel():
            return losses if reduction == "none" else losses.sum()
        if reduction == "mean" and self.mean is not None and losses.dim() == 1:
            # One launch. The copy is for autograd: the next step may overwrite the weights.
            mean = torch.dot(self.mean.to(losses, copy=True), losses)
        else:
            weighed = self.value.to(losses, copy=losses.is_cuda) * losses
            if reduction == "none":
                return weighed if self.padding_scale is None else self.padding_scale * weighed
            if reduction == "sum":
                return weighed.sum()
            number = self.number.clamp(min=1e-30) if isinstance(self.number, torch.Tensor) else self.number
            # DistributedDataParallel divides the sum of the gradients by the number of ranks.
            mean = weighed.mean() if number is None else weighed.sum() * self.num_ranks / number
        if self.padding_scale is None:
            return mean
        # This mean is over the items. The mean of all ranks counts the padding too.
        return self.padding_scale * self.num_real / len(losses) * mean


def loss(
    bias: "ActiveBias",
    logits: torch.Tensor,
    targets: torch.Tensor,
    index: Any,
    *,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    class_weight: Any = None,
    sample_weight: Any = None,
    sequences: bool = False,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the weighted cross-entropy, and remember p(y|x). Call it once for every batch.

    Takes class logits (B, C), token logits (B, L, C) with targets and index (B, L), or binary logits (B,)
    with targets 0 and 1. Targets whose value is `ignore_index` do not count. Float targets (B, C) are the
    shares t of the classes; p(y|x) is then Σ_c t_c p_c. With `multi_label` logits and targets are (B, C).

    `class_weight` (C,) means the same as `weight` in torch's losses, `sample_weight` a weighted mean.
    They multiply our weights, and the history stays the plain p(y|x). With `sequences` an instance is a
    whole sequence: token logits and targets with an index (B,).
    """
    found = cross_entropy(
        logits,
        targets,
        num_classes=bias.num_classes,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        class_weight=class_weight,
        words=sequences or np.ndim(index) > 1,
        multi_label=bias.multi_label,
        leave_exp=bias._memory.on_gpu and sample_weight is None and not sequences,
    )
    if sequences:
        found = found.of_sequences()
    return _weighted(bias, found, index, sample_weight, reduction)


def weigh(
    bias: "ActiveBias",
    per_instance_loss: torch.Tensor,
    prob: Any,
    index: Any,
    *,
    mask: torch.Tensor | None = None,
    sample_weight: Any = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the mean over the batch of v_i · loss_i, and remember `prob`.

    `prob` is p(y|x), or the pair (logits, targets) that it follows from. The mean is not normalised again
    within the batch. Entries where `mask` is False do not count. `reduction` may also be "sum" or "none".
    """
    if per_instance_loss is None:
        raise TypeError("Expected `per_instance_loss` to hold one loss per instance, but got None.")
    losses = checks.loss_tensor(per_instance_loss)
    prob, mask = _prob(bias, prob, mask, index)
    mask = None if mask is None else checks.mask_tensor(mask, losses)
    found = PerInstance(losses, prob, mask).where_counted()
    return _weighted(bias, found, index, sample_weight, reduction)


def record(bias: "ActiveBias", index: Any, prob: Any, *, mask: torch.Tensor | None = None) -> None:
    """Remember p(y|x) of the given instances, from the forward pass that training did anyway.

    `prob` may be the pair (logits, targets). With a sampler whose `batch_size` is larger than this batch
    (gradient accumulation), scores and weights change when the step's last visit has come.
    """
    if torch._C._current_graph_task_id() != -1:  # torch has a task during backward
        raise RuntimeError(
            "The bias remembers every batch once, but activation checkpointing computes this one a second "
            "time: call `bias.record` outside of the checkpointed block."
        )
    bias._visit(index, PerInstance(None, *_prob(bias, prob, mask, index)))


def _prob(bias: "ActiveBias", prob: Any, mask: Any, index: Any) -> tuple[torch.Tensor, Any]:
    """Return p(y|x), which may be given as a pair of logits and targets, and which entries count."""
    # A pair of single numbers is a pair of probabilities.
    if isinstance(prob, tuple) and len(prob) == 2 and all(getattr(part, "ndim", 0) for part in prob):
        logits, targets = (checks.tensor_of("prob", part) for part in prob)
        words = np.ndim(index) > 1
        with torch.no_grad():
            found = cross_entropy(
                logits, targets, num_classes=bias.num_classes, multi_label=bias.multi_label, words=words
            )
        prob, counted = found.prob, found.mask
        if counted is not None:
            mask = counted if mask is None else counted & checks.mask_tensor(mask, counted)
    return checks.tensor_of("prob", prob), mask


def _weighted(
    bias: "ActiveBias", found: PerInstance, index: Any, sample_weight: Any, reduction: str
) -> torch.Tensor:
    """Return v_i · loss_i, times the user's own weights, or their mean or sum."""
    if sample_weight is not None:
        found = found.times(sample_weight)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"Expected `reduction` to be 'mean', 'sum' or 'none', but got {reduction!r}.")
    # During backward torch has a task: activation checkpointing computes its block a second time.
    if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
        raise RuntimeError(
            "The bias remembers every batch that is weighed, once, but this one is computed without "
            "gradients or a second time: to evaluate, use torch's own loss; with activation "
            "checkpointing, compute the loss outside of the checkpointed block; to remember the "
            "probabilities of a training batch alone, call `bias.record`."
        )
    return bias._visit(index, found).apply(found.loss, reduction)


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    num_classes: int,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    class_weight: Any = None,
    words: bool = False,
    multi_label: bool = False,
    leave_exp: bool = False,
) -> PerInstance:
    """Return the cross-entropy of class logits (…, C) to int targets (…), or of binary logits in their shape.

    Float targets (B, C) are the shares of the classes; with `words` they are binary targets of words.
    With `leave_exp` the probabilities of plain class losses are left to be computed with the weights.
    With label smoothing the loss is that of torch's `cross_entropy`; the probability stays the true class's.

    >>> found = cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), num_classes=2)
    >>> found.prob, found.loss
    (tensor([0.8808]), tensor([0.1269]))
    """
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point():
        kind = f"a {logits.dtype} tensor" if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise TypeError(f"Expected `logits` to be a floating-point tensor, but got {kind}.")
    if not isinstance(targets, torch.Tensor):
        raise TypeError(f"Expected `targets` to be a tensor, but got {type(targets).__name__}.")
    if not targets.is_floating_point() and targets.dtype != torch.bool:
        targets = targets.long()  # torch takes the class 156 in uint8 for -100
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"Expected `label_smoothing` to be in [0, 1), but got {label_smoothing}.")
    if targets.dim() > 2:
        raise ValueError(checks.too_many_dimensions(targets))
    # Half-precision logits come from autocast; a bfloat16 probability has 8 bits, too few for a history.
    logits = logits.float() if logits.dtype.itemsize == 2 else logits
    weight = None if class_weight is None else checks.factors("class_weight", class_weight, like=logits)
    if weight is not None and weight.shape != (num_classes,):
        raise ValueError(
            f"Expected `class_weight` to have one weight per class, shape ({num_classes},), but got "
            f"{tuple(weight.shape)}."
        )
    if logits.shape == targets.shape:
        per_class = logits.shape[1:] == (num_classes,)
        if per_class and targets.is_floating_point() and not words and not multi_label:
            if ignore_index >= 0:
                raise ValueError(
                    "`ignore_index` is a class, but float `targets` (B, C) are shares of classes."
                )
            return _soft(logits, targets, label_smoothing, weight)
        if per_class if multi_label else num_classes == 2:
            return _binary(logits, targets, ignore_index, label_smoothing, weight, multi_label)
    if logits.shape != (*targets.shape, num_classes) or multi_label:
        raise ValueError(checks.wrong_shape(logits, targets, num_classes, multi_label))
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise TypeError(f"Expected `targets` to be integer class labels, but got {targets.dtype}.")
    if label_smoothing or weight is not None:
        mask = _counted(targets, num_classes - 1, ignore_index)
        return _smoothed(logits, targets, mask, label_smoothing, weight)
    if leave_exp and ignore_index == IGNORED:
        return PerInstance(_plain(logits, targets, ignore_index), None, targets)
    mask = _counted(targets, num_classes - 1, ignore_index)
    losses = _plain(logits, targets, ignore_index)
    return PerInstance(losses, losses.detach().neg().exp(), mask)


def _plain(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return -log p(y|x), and 0 where the target is ignored."""
    if targets.dim() == 1:  # a view costs autograd a node, which shows in a small model's step
        return functional.cross_entropy(logits, targets, reduction="none", ignore_index=ignore_index)
    flat_logits, flat_targets = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    losses = functional.cross_entropy(flat_logits, flat_targets, reduction="none", ignore_index=ignore_index)
    return losses.view(targets.shape)


def _smoothed(
    logits: torch.Tensor,
    targets: torch.Tensor,
    mask: torch.Tensor | None,
    label_smoothing: float,
    weight: torch.Tensor | None,
) -> PerInstance:
    """Return torch's smoothed cross-entropy with class weights, and p(y|x), from one softmax."""
    log_prob = functional.log_softmax(logits, -1)
    safe_targets = targets if mask is None else torch.where(mask, targets, 0)
    flat = log_prob.reshape(-1, logits.shape[-1])
    surprisal = functional.nll_loss(flat, safe_targets.reshape(-1), reduction="none").view(targets.shape)
    share = None if weight is None else weight[safe_targets]
    losses = surprisal if share is None else surprisal * share
    if label_smoothing:
        # No matrix product: autocast would compute it in half precision.
        of_all = log_prob.sum(-1) if weight is None else (log_prob * weight).sum(-1)
        losses = (1 - label_smoothing) * losses - label_smoothing / logits.shape[-1] * of_all
    return PerInstance(losses, surprisal.detach().neg().exp(), mask, share).where_counted()


def _soft(
    logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float, weight: torch.Tensor | None
) -> PerInstance:
    """Return the cross-entropy to shares of the classes, t; p(y|x) is Σ_c t_c p_c."""
    if targets.is_cpu and targets.numel():
        total = targets.sum(-1)
        if targets.min() < 0 or not torch.allclose(total, torch.ones_like(total), atol=1e-2):
            raise ValueError(
                "Expected float `targets` (B, C) to be the shares of the classes, at least 0 and with the "
                "sum 1 in every row; for several labels an example use `ActiveBias(…, multi_label=True)`."
            )
    targets = targets.to(logits)
    losses = functional.cross_entropy(
        logits, targets, reduction="none", label_smoothing=label_smoothing, weight=weight
    )
    prob = logits.detach().softmax(-1).mul_(targets.detach()).sum(-1)
    return PerInstance(losses, prob, None)


def _binary(
    logits: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int,
    label_smoothing: float,
    weight: torch.Tensor | None,
    multi_label: bool,
) -> PerInstance:
    """Return torch's binary cross-entropy. Targets may be shares: p(y|x) is t σ(z) + (1 - t) σ(-z)."""
    mask = _counted(targets, 1, ignore_index)
    share = targets.to(logits) if mask is None else torch.where(mask, targets, 0).to(logits)
    smooth = share * (1 - label_smoothing) + label_smoothing / 2 if label_smoothing else share
    sigmoid = logits.detach().sigmoid()
    prob = share * sigmoid + (1 - share) * (1 - sigmoid)
    divisor = None
    if weight is None or multi_label:
        losses = functional.binary_cross_entropy_with_logits(logits, smooth, weight, reduction="none")
    else:  # torch's cross-entropy of the two classes
        of_one = weight[1] * functional.logsigmoid(logits)
        of_zero = weight[0] * functional.logsigmoid(-logits)
        losses = -smooth * of_one - (1 - smooth) * of_zero
        divisor = share * weight[1] + (1 - share) * weight[0]
    return PerInstance(losses, prob, mask, divisor).where_counted()


def _counted(targets: torch.Tensor, highest: int, ignore_index: int) -> torch.Tensor | None:
    """Return which targets count (None: all), and refuse labels outside of 0 to `highest`.

    On a GPU looking at the values would wait for the device. There torch's cross-entropy refuses wrong class
    labels by a device-side assertion.
    """
    if targets.device.type != "cpu":
        return targets != ignore_index
    if targets.numel():
        low, high = (bound.item() for bound in targets.aminmax())
        if low >= 0 and high <= highest and not low <= ignore_index <= high:
            return None
    mask = targets != ignore_index
    labels = targets[mask]
    wrong = labels[~((labels >= 0) & (labels <= highest))]
    if wrong.numel():
        raise ValueError(
            f"Expected `targets` to be labels from 0 to {highest} (or ignore_index={ignore_index}), "
            f"but got {wrong[0].item()}."
        )
    return None if labels.numel() == targets.numel() else mask
