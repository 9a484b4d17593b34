"""Convert and check the user's arguments; errors name the fix."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from activebias._arrays import Array
from activebias.statistics import prediction_variance

if TYPE_CHECKING:
    from activebias.history import PredictionHistory
    from activebias.methods import Method

# The target that does not count unless told otherwise, as in torch's cross-entropy.
IGNORED = -100

# Softmax in float32 may end a rounding error above 1.
PROBABILITY_TOLERANCE = 1e-6


def integer(name: str, value: Any, *, at_least: int) -> int:
    """Return `value` if it is an integer of at least `at_least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"Expected `{name}` to be an integer, but got {value!r} ({type(value).__name__}).")
    value = value.__index__()
    if value < at_least:
        raise ValueError(f"Expected `{name}` to be at least {at_least}, but got {value}.")
    return int(value)


def boolean(name: str, value: Any) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"Expected `{name}` to be True or False, but got {value!r}.")
    return bool(value)


def usable(method: "Method", *, multi_label: bool, window: int | None) -> None:
    """Refuse a method that has nothing to emphasise by."""
    if method.learns and multi_label:
        raise ValueError(
            f"Method {method.name!r} learns from examples with one label, but `multi_label` is True: use "
            "'wtc'."
        )
    if method.statistic is prediction_variance and window == 1:
        raise ValueError(
            f"Method {method.name!r} goes by the variance of a history, but `window` is 1, and one entry has "
            "none: use a window of at least 2, or None."
        )


def max_weight(value: Any, method: "Method") -> float | None:
    """Return the largest weight allowed, None for no bound."""
    if value is None:
        return None
    if method.weights != "emphasis":
        raise ValueError(
            f"`max_weight` bounds weights, but method {method.name!r} does not emphasise by weights: use a "
            "W* method, or leave it out."
        )
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not 1 < value < math.inf:
        raise ValueError(f"Expected `max_weight` to be a number above 1, the mean weight, but got {value!r}.")
    return float(value)


def device_of_state(value: torch.device | str) -> torch.device:
    """Return a device that can hold history and scores."""
    device = torch.device(value)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"Expected `device` to be the CPU or a CUDA GPU (ROCm's count as CUDA), but got {str(device)!r}: "
            "the scores need float64, which MPS does not have, and a step on a GPU needs CUDA graphs. Leave "
            "`device` out: the bias stays on the CPU, and the model may be anywhere."
        )
    return device


def tensor_of(name: str, value: Any) -> torch.Tensor:
    """Return `value` (list, NumPy or JAX array, tensor) as a tensor."""
    if isinstance(value, torch.Tensor):
        return value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of other lengths, or of torch's tensors
        pair = "; a pair of logits and targets is a tuple" if name == "prob" else ""
        raise TypeError(
            f"Expected `{name}` to be one array or tensor, but got a list ({error}){pair}."
        ) from None
    if array.dtype.kind in "OSUMm":  # objects, text, dates
        raise TypeError(f"Expected `{name}` to be a list, an array or a tensor, but got {value!r}.")
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch takes neither
    return torch.from_numpy(array)


def loss_tensor(loss: Any) -> torch.Tensor:
    """Return per-instance losses in at least float32: a weight must not be rounded, nor overflow float16."""
    tensor = tensor_of("per_instance_loss", loss)
    wide = tensor.is_complex() or (tensor.is_floating_point() and tensor.dtype.itemsize > 2)
    return tensor if wide else tensor.float()


def factors(name: str, values: Any, *, like: torch.Tensor) -> torch.Tensor:
    """Return a user's weights beside the tensor `like`. On a CPU they must be finite and at least 0."""
    tensor = tensor_of(name, values)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"Expected `{name}` to hold weights, but got {tensor.dtype}.")
    if tensor.is_cpu and not bool(((tensor >= 0) & tensor.isfinite()).all()):
        raise ValueError(f"Expected `{name}` to hold finite weights of at least 0.")
    return _moved(tensor, like.device, like.dtype)


def constant_share(share: torch.Tensor | None) -> None:
    """Refuse weights that are learnt on several ranks: the sum over the ranks has no gradient."""
    if share is not None and share.requires_grad:
        raise ValueError(
            "`sample_weight` and `class_weight` must not need gradients on several ranks: pass "
            "`weight.detach()`, or weigh the losses of `reduction='none'` yourself."
        )


def _moved(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    if tensor.dtype == dtype and tensor.device == device:
        return tensor  # as `to` would, but it takes a microsecond to find out
    # A GPU works in order, so a copy to it arrives before the next kernel reads it. A copy to the CPU must be
    # waited for: the history may stay on the CPU while the model is on a GPU.
    return tensor.to(device=device, dtype=dtype, non_blocking=device.type != "cpu")


def mask_tensor(mask: Any, index: torch.Tensor) -> torch.Tensor:
    """Return `mask` as a bool tensor beside `index`, whose shape it must have."""
    tensor = tensor_of("mask", mask)
    if tensor.dtype != torch.bool:
        raise TypeError(f"Expected `mask` to hold booleans, but got {tensor.dtype}.")
    same_shape("mask", tensor, index)
    return _moved(tensor, index.device, torch.bool)


def integers(name: str, values: Any, *, why: str = "") -> torch.Tensor:
    """Return `values` as an int64 tensor where they are; floats and booleans are refused, with the reason."""
    tensor = tensor_of(name, values)
    if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
        raise TypeError(f"Expected `{name}` to hold integers, but got {tensor.dtype}.{why}")
    return tensor.long()


def index_tensor(index: Any, device: torch.device) -> torch.Tensor:
    """Return `index` (list, NumPy array, tensor) as an int64 tensor on `device`."""
    why = " An index that has been a float cannot be trusted: bfloat16 turns 49999 into 49920."
    tensor = integers("index", index, why=why)
    if tensor.dim() == 0:
        raise ValueError(
            "Expected `index` to hold one index per instance, as `with_index` brings it into the batch, but "
            "got a single number: use [i] for a single instance."
        )
    return _moved(tensor, device, torch.int64)


def probability_tensor(prob: Any, device: torch.device) -> torch.Tensor:
    """Return `prob` as a float32 tensor on `device`, outside of autograd."""
    tensor = tensor_of("prob", prob).detach()
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"Expected `prob` to hold probabilities, but got {tensor.dtype}.")
    return _moved(tensor, device, torch.float32)


class Batch(NamedTuple):
    """Checked visits: NumPy arrays on a CPU, tensors on a GPU.

    Attributes:
        index: the instances.
        prob: their p(y|x); with `has_losses`, -log p(y|x).
        mask: which entries count (None: all); with `has_losses`, their targets.
        items: the index as it was given: of examples, where each has several labels.
        host_index: the items as `to_compare` returns them.
        has_losses: whether exp(-loss) is left to the memory, as on a GPU.
    """

    index: Array
    prob: Array
    mask: Array | None
    items: torch.Tensor
    host_index: np.ndarray | None
    has_losses: bool = False

    def counted(self) -> Array | None:
        """Return which entries count (None: all)."""
        return self.mask != IGNORED if self.has_losses else self.mask

    def with_probabilities(self) -> "Batch":
        """Return the batch with probabilities and a mask."""
        if not self.has_losses:
            return self
        return self._replace(prob=torch.exp(-self.prob), mask=self.counted(), has_losses=False)

    def number(self, num_real: int) -> Any:
        """Return how many entries of the first `num_real` rows count."""
        mask = self.counted()
        return math.prod(self.index[:num_real].shape) if mask is None else mask[:num_real].sum()

    def without_padding(self, num_real: int) -> "Batch":
        """Return a batch in which the entries after the first `num_real` do not count."""
        batch = self.with_probabilities()
        counts = batch.index == batch.index if batch.mask is None else batch.mask & True  # a copy
        counts[num_real:] = False
        return batch._replace(mask=counts)


def to_compare(index: Any) -> np.ndarray | None:
    """Return an index that can be compared with the items handed out, as an array on the CPU.

    Return None for an index on a GPU, where reading it would wait, and for words, whose numbers do not show
    their sentences.
    """
    if isinstance(index, torch.Tensor) and not index.is_cpu:
        return None
    array = np.asarray(index)
    return array if array.ndim == 1 else None


def batch(
    index: Any,
    prob: Any,
    mask: Any,
    losses: torch.Tensor | None,
    history: "PredictionHistory",
    num_labels: int | None = None,
) -> Batch:
    """Return visits to `history`. On a GPU values are not checked here: unusable visits are skipped later.

    Without `prob`, `losses` are -log p(y|x), and `mask` holds the targets. With `num_labels` an index stands
    for an example with that many labels, each of which is an instance.
    """
    given, items = index, index_tensor(index, history.device)
    index = labels_of(items, num_labels)
    if losses is not None and losses.dim() == 2 and index.dim() == 1:
        raise ValueError(
            f"Expected `index` to have the shape of the targets, {tuple(losses.shape)}, but got "
            f"{tuple(index.shape)}: number the words by `TokenIndex`, `tokens(sentence, width=…)`; if "
            "whole sequences are the instances, pass `sequences=True`."
        )
    if losses is not None:
        same_shape("per_instance_loss", losses, index)
    if prob is None and losses is not None:
        losses = probability_tensor(losses, history.device)
        targets = _moved(mask, history.device, torch.int64)
        return Batch(index, losses, targets, items, to_compare(given), has_losses=True)
    prob = probability_tensor(prob, history.device)
    same_shape("prob", prob, index)
    mask = None if mask is None else mask_tensor(mask, index)
    if history.on_gpu:
        return Batch(index, prob, mask, items, to_compare(given))
    index, prob, mask = index.numpy(), prob.numpy(), None if mask is None else mask.numpy()
    index_range(index if mask is None else index[mask], history.num_instances)
    return Batch(index, _clipped(prob, mask), mask, items, to_compare(items))


def labels_of(index: torch.Tensor, num_labels: int | None) -> torch.Tensor:
    """Return the instances of examples with `num_labels` labels each, shape (examples, labels)."""
    if num_labels is None:  # an instance has one
        return index
    if index.dim() != 1:
        raise ValueError(
            f"With `multi_label=True` expected `index` to have one index per example, but got the shape "
            f"{tuple(index.shape)}."
        )
    return index[:, None] * num_labels + torch.arange(num_labels, device=index.device)


def _clipped(prob: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return probabilities within [0, 1], or not finite; refuse finite ones that are clearly outside."""
    if prob.size == 0 or (prob.min() >= 0 and prob.max() <= 1):  # NaN fails both
        return prob
    counted = prob if mask is None else prob[mask]
    wrong = counted[np.isfinite(counted) & ~is_probability(counted)]
    if wrong.size:
        raise ValueError(
            f"Expected `prob` to hold probabilities p(y|x) in [0, 1], but got {wrong[0]:g}. "
            "Logits need a softmax first."
        )
    return np.where(np.isfinite(prob), prob.clip(0, 1), prob)


def same_shape(name: str, value: torch.Tensor, index: torch.Tensor) -> None:
    """Refuse a tensor that does not have one value for every index."""
    if value.shape != index.shape:
        raise ValueError(
            f"Expected `{name}` and `index` to have the same shape, but got {tuple(value.shape)} and "
            f"{tuple(index.shape)}."
        )


def too_many_dimensions(targets: torch.Tensor) -> str:
    """Return the message for targets of three dimensions or more."""
    advice = (
        "where every pixel is an instance, pass `logits.permute(0, 2, 3, 1).flatten(1, 2)` and "
        "`targets.flatten(1)`."
    )
    if targets.is_floating_point():
        advice = "shares of the classes of words need `bias.weigh`, with `prob` = Σ_c t_c p_c of every word."
    return f"Expected `targets` to have one or two dimensions, but got {tuple(targets.shape)}: {advice}"


def wrong_shape(logits: torch.Tensor, targets: torch.Tensor, num_classes: int, multi_label: bool) -> str:
    """Return the message for logits and targets whose shapes do not fit each other."""
    if multi_label:
        return (
            f"With `multi_label=True` expected `logits` and `targets` of shape (examples, {num_classes}), "
            f"but got {tuple(logits.shape)} and {tuple(targets.shape)}."
        )
    if logits.shape == targets.shape and targets.dim() > 1 and targets.shape[-1] == num_classes:
        return (
            f"Expected `targets` to be class labels of shape {tuple(targets.shape[:-1])}, but got the "
            f"logits' shape {tuple(targets.shape)}: of one-hot targets take `argmax(-1)`; shares of the "
            "classes are floats; for several labels an example use `ActiveBias(…, multi_label=True)`."
        )
    if logits.shape == targets.shape:
        return (
            f"`logits` of the targets' shape {tuple(targets.shape)} are binary logits, but there are "
            f"{num_classes} classes: expected shape {(*targets.shape, num_classes)}."
        )
    hint = ": use `logits.squeeze(-1)`" if logits.shape == (*targets.shape, 1) else ""
    return (
        f"Expected `logits` of shape {(*targets.shape, num_classes)} for `targets` of shape "
        f"{tuple(targets.shape)} and {num_classes} classes, but got {tuple(logits.shape)}{hint}."
    )


def stored(name: str, value: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Refuse a tensor of a state that has another form than expected, or a value that is not finite."""
    if (tuple(value.shape), value.dtype) != (shape, dtype):
        raise ValueError(
            f"The stored `{name}` has the shape {tuple(value.shape)} and {value.dtype}, but expected {shape} "
            f"and {dtype}."
        )
    # By its extremes: `isfinite` of everything would be a large copy.
    if value.numel() and not torch.stack(value.aminmax()).isfinite().all():
        raise ValueError(f"The stored `{name}` holds a value that is not finite.")


def index_range(index: Array, num_instances: int) -> None:
    """Refuse indices outside the data set. On a GPU looking would wait: there they are skipped."""
    if isinstance(index, torch.Tensor):
        if not index.is_cpu:
            return
        index = index.numpy()
    if index.size == 0:
        return
    low, high = index.min(), index.max()
    if low < 0 or high >= num_instances:
        wrong = low if low < 0 else high
        hint = "`num_instances` is the length of the data set; wrap the outermost one in `with_index`"
        if wrong == -1:
            hint = "-1 is the padding of `TokenIndex`, whose target must be `ignore_index`"
        raise ValueError(
            f"Expected `index` to be from 0 to {num_instances - 1} (num_instances={num_instances}), "
            f"but got {wrong}: {hint}."
        )


def is_probability(prob: Array) -> Array:
    """Return which values are in [0, 1]; NaN is not."""
    return (prob >= -PROBABILITY_TOLERANCE) & (prob <= 1 + PROBABILITY_TOLERANCE)


def own_scores(name: str, scores: Any, count: torch.Tensor) -> torch.Tensor:
    """Refuse invalid scores of a user's own statistic. On a GPU only their shape is checked."""
    if not isinstance(scores, torch.Tensor) or scores.shape != count.shape:
        shape = getattr(scores, "shape", None)
        returned = repr(scores) if shape is None else f"a {type(scores).__name__} of shape {tuple(shape)}"
        raise ValueError(
            f"The statistic of method {name!r} must return a tensor with one score per instance, shape "
            f"{tuple(count.shape)}, but returned {returned}."
        )
    # A score beyond float32 would be infinite from now on.
    usable = scores.device.type != "cpu" or bool(((scores >= 0) & scores.float().isfinite()).all())
    if not usable:
        raise ValueError(f"The statistic of method {name!r} must return finite scores of at least 0.")
    return scores.detach()
