"""The audit: which labels are likely wrong, by the probabilities that the model gave them in training."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch

from activebias import ActiveBias, PredictionHistory
from activebias.internal import CHUNK, is_probability, tensor_of

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Lower probabilities count as this: one visit with p near 0 must not outweigh all other visits.
LEAST_PROBABILITY = 1e-3
VARIANCE_TOLERANCE = 1e-12
# Sums of class probabilities in float16 differ from 1 by about 1e-3.
SUM_TOLERANCE = 1e-2


class Summary(NamedTuple):
    """Statistics of the visits of each instance; NaN without visits."""

    visits: Integers
    confidence: Floats
    variability: Floats
    correctness: Floats
    plausibility: Floats


@final
@dataclass(frozen=True, eq=False)
class Audit:
    """One entry per instance, in the order of the data set; an instance without visits has NaN.

    Attributes:
        score: the evidence against the label, in [0, 1]: rival / (rival + plausibility), or 1 - plausibility
            if the rival is not known.
        order: the instances, worst first. Equal scores stand in the order of the data set, and instances
            that were never visited at the end.
        plausibility: geometric mean of p(y|x) over the visits, each taken as at least 0.001. A visit counts
            by the variance of p(y|x) over all instances at that visit. So epochs count little in which
            nothing is learned yet, or everything is memorised.
        confidence: mean of p(y|x) over the visits.
        variability: standard deviation of p(y|x) over the visits (divided by their number, as in dataset
            cartography); 0 for a single visit.
        correctness: share of the visits with p(y|x) > 1/2. With more than two classes the model may have
            chosen the label at other visits too; the history does not tell.
        visits: the number of visits that count.
        label: the labels, if they were given.
        believed: the classes that the model believes in, if they were given.
        rival: the highest mean probability of a class other than the label, if it was given.
    """

    score: Floats
    order: Integers
    plausibility: Floats
    confidence: Floats
    variability: Floats
    correctness: Floats
    visits: Integers
    label: Integers | None = None
    believed: Integers | None = None
    rival: Floats | None = None

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.score)

    @property
    def suspected(self) -> Flags:
        """Whether the model believes in another class than the label; score > 1/2 if that is unknown."""
        if self.label is None or self.believed is None:
            return np.greater(self.score, 0.5)
        return np.not_equal(self.label, self.believed) & np.greater(self.visits, 0)


def audit(
    history: Any = None,
    labels: Any = None,
    believed: Any = None,
    *,
    rival: Any = None,
    prior: float | None = None,
    pred_probs: Any = None,
) -> Audit:
    """Rank the instances by how likely their label is wrong, from the probabilities of training.

    The history alone suffices. With mean class probabilities as `believed` (or with `rival`) the ranking is
    better: a wrong label has one strong rival, while a merely difficult instance spreads its probability.

    The entry 1/C that every history begins with is no visit and does not count. A window may have dropped
    it. So the oldest entry is left out only if it is exactly 1/C.

    Out-of-sample probabilities of any model, as cleanlab uses them, are audited without a history: give them
    as `pred_probs`, with `labels`.

    >>> bias = ActiveBias("scan", num_instances=3, num_classes=10)
    >>> for epoch, prob in enumerate([[0.3, 0.1, 0.2], [0.8, 0.1, 0.6], [1.0, 0.4, 0.7]]):
    ...     bias.set_epoch(epoch)
    ...     bias.record([0, 1, 2], prob)
    >>> found = audit(bias, labels=[7, 1, 4], believed=[7, 9, 4])
    >>> found.order
    array([1, 2, 0])
    >>> found.score.round(2)
    array([0.16, 0.83, 0.39])
    >>> found.suspected
    array([False,  True, False])

    Args:
        history: an `ActiveBias`, a `PredictionHistory`, or arrays (values, valid), both (N, T) and oldest
            first, as `PredictionHistory.values()` returns them; values alone if all of them are visits.
        labels: the class of each instance as labelled, integers.
        believed: the class of each instance that the model believes in, integers (N,); or the sum or mean
            over the epochs of the model's class probabilities (N, C). It is compared with `labels`.
        rival: the highest mean probability of a class other than the label; not needed if `believed` holds
            class probabilities.
        prior: with arrays, the value 1/C that the histories begin with; None if they begin with a visit.
        pred_probs: in place of a history, class probabilities from models that did not train on the instance,
            (N, C), or (M, N, C) of M models; each model counts as a visit.
    """
    if pred_probs is not None:
        if not (history is believed is rival is prior is None):
            raise ValueError("`pred_probs` replaces `history`, `believed`, `rival` and `prior`: give one.")
        history, believed = _from_pred_probs(pred_probs, labels)
    elif history is None:
        raise ValueError("Expected a `history` or `pred_probs` to audit, but got neither.")
    number, parts = _parts(history, prior)
    label = None if labels is None else _classes("labels", _array("labels", labels), number)
    believed_class, known_rival = _beliefs(believed, label, number)
    if rival is not None:
        known_rival = _rival(rival, number)
    weights = visit_weights(parts())
    pieces = [summarise(*part, weights) for part in parts()]
    summary = Summary(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    score = 1 - summary.plausibility
    if known_rival is not None:
        score = known_rival / (known_rival + summary.plausibility)
    return Audit(
        score=score,
        order=_worst_first(score),
        **summary._asdict(),
        label=label,
        believed=believed_class,
        rival=known_rival,
    )


def joined(parts: Sequence[Audit]) -> Audit:
    """Return one audit of all instances of several audits, with one order."""
    columns: dict[str, Any] = {}
    for each in fields(Audit):
        values = [getattr(part, each.name) for part in parts]
        columns[each.name] = None if values[0] is None else np.concatenate(values)
    return Audit(**columns | {"order": _worst_first(columns["score"])})


def _worst_first(score: Floats) -> Integers:
    """Return the order of the scores: NaN comes last, equal scores keep the order of the data set."""
    return np.argsort(-score, kind="stable")


def visit_weights(parts: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> Floats:
    """Return the variance over the instances of each column of (values, valid), given in parts.

    >>> visit_weights([([[0.1, 0.0], [0.1, 1.0]], [[True, True], [True, True]])])
    array([0.  , 0.25])
    """
    count, total, squares = 0, 0.0, 0.0
    for values, valid in parts:
        values = np.where(valid, np.asarray(values, dtype=np.float64), 0.0)
        count, total, squares = (
            count + np.sum(valid, 0),
            total + values.sum(0),
            squares + (values * values).sum(0),
        )
    mean = total / np.maximum(count, 1)
    variance = squares / np.maximum(count, 1) - mean * mean
    # Equal probabilities leave a rounding error, which must not become a weight.
    return np.where(variance > VARIANCE_TOLERANCE, variance, 0.0)


def summarise(values: npt.ArrayLike, valid: npt.ArrayLike, weights: npt.ArrayLike) -> Summary:
    """Summarise the entries along the last dimension that are `valid`; `weights` are those of `plausibility`.

    >>> found = summarise([[0.2, 0.6, 0.0]], [[True, True, False]], [1.0, 1.0, 1.0])
    >>> found.visits, found.confidence, found.variability, found.correctness
    (array([2]), array([0.4]), array([0.2]), array([0.5]))
    >>> found.plausibility.round(3)
    array([0.346])
    """
    valid = np.asarray(valid)
    values = np.where(valid, np.asarray(values, dtype=np.float64), 0.0)
    visits = valid.sum(-1)
    weights = np.where(valid, weights, 0.0)
    # Where no visit tells instances apart, all count the same.
    weights = np.where(weights.sum(-1, keepdims=True) > 0, weights, valid)
    with np.errstate(invalid="ignore"):  # 0 / 0 where nothing was visited
        confidence = values.sum(-1) / visits
        deviation = np.where(valid, values - confidence[..., None], 0.0)
        variability = np.sqrt((deviation * deviation).sum(-1) / visits)
        correctness = (values > 0.5).sum(-1) / visits
        logarithms = np.log(np.clip(values, LEAST_PROBABILITY, 1.0))
        plausibility = np.exp((weights * logarithms).sum(-1) / weights.sum(-1))
    return Summary(visits, confidence, variability, correctness, plausibility)


def without_prior(values: npt.ArrayLike, valid: npt.ArrayLike, prior: float) -> Flags:
    """Return `valid` without the oldest entry of each row where that is the prior, in either storage form.

    >>> without_prior([[0.1, 0.3], [0.2, 0.3]], [[True, True], [True, True]], prior=0.1)
    array([[False,  True],
           [ True,  True]])
    """
    visited = np.array(valid, dtype=np.bool_)
    if visited.shape[-1]:
        oldest = np.asarray(values)[..., 0].astype(np.float32)
        # A float16 history holds 1/2 and below as they are, and 1/C is never above.
        visited[..., 0] &= (oldest != np.float32(prior)) & (oldest != np.float32(np.float16(prior)))
    return visited


Parts: TypeAlias = Iterator[tuple[npt.ArrayLike, Flags]]


def _parts(history: Any, prior: float | None) -> tuple[int, Callable[[], Parts]]:
    """Return the number of instances, and a function that yields (values, valid) part by part."""
    if isinstance(history, ActiveBias):
        history = history.history
    if isinstance(history, PredictionHistory):
        if prior is not None:
            raise ValueError("`prior` is for arrays: a history knows its own. Leave it out.")
        return history.num_instances, partial(_parts_of_history, history)
    values, valid = _checked_arrays(history, prior)
    return len(values), partial(_parts_of_arrays, values, valid, prior)


def _parts_of_history(history: PredictionHistory) -> Parts:
    for index in history.chunks():
        values, valid = (tensor.cpu().numpy() for tensor in history.values(index))
        yield values, without_prior(values, valid, history.initial)


def _parts_of_arrays(values: Any, valid: Any, prior: float | None) -> Parts:
    for first in range(0, len(values), CHUNK):
        part = values[first : first + CHUNK], valid[first : first + CHUNK]
        yield part if prior is None else (part[0], without_prior(*part, prior))


def _checked_arrays(history: Any, prior: float | None) -> tuple[npt.NDArray[Any], Flags]:
    """Return (values, valid) as arrays, or raise and name the problem."""
    if isinstance(history, tuple) and len(history) != 2:
        raise ValueError(f"Expected `history` to be a pair (values, valid), but got {len(history)} items.")
    values, valid = history if isinstance(history, tuple) else (history, None)
    values = _array("history", values)
    if values.ndim != 2 or not len(values) or values.dtype.kind not in "fiu":
        raise ValueError(
            "Expected `history` to hold one row of probabilities per instance, shape (N, T), N at least 1, "
            f"but got {values.dtype} of shape {values.shape}."
        )
    if valid is None:
        valid = np.ones(values.shape, dtype=np.bool_)
    valid = _array("valid", valid)
    if valid.shape != values.shape or valid.dtype != np.bool_:
        raise ValueError(
            f"Expected `valid` to hold one boolean per value, shape {values.shape}, but got {valid.dtype} of "
            f"shape {valid.shape}."
        )
    wrong = values[valid & ~is_probability(values)]
    if wrong.size:
        raise ValueError(
            f"Expected `history` to hold probabilities p(y|x) in [0, 1], but got {wrong[0]:g}: logits need a "
            "softmax first, and entries that do not count are to be False in `valid`."
        )
    if prior is not None and not 0 < prior <= 0.5:
        raise ValueError(
            f"Expected `prior` to be 1 / (number of classes), above 0 and at most 1/2, but got {prior}."
        )
    return values, valid


def _from_pred_probs(pred_probs: Any, labels: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the probability of every label by every model, (N, M), and the mean class probabilities."""
    if labels is None:
        raise ValueError("Expected `labels` beside `pred_probs`, but got None: pass the labels, from 0 on.")
    array = _array("pred_probs", pred_probs)
    models = array[None] if array.ndim == 2 else array
    if models.ndim != 3 or not models.size or models.dtype.kind != "f":
        raise ValueError(
            "Expected `pred_probs` to hold floats of shape (N, C), or (M, N, C) of M models, but got "
            f"{array.dtype} of shape {array.shape}."
        )
    totals = models.sum(-1)
    if not is_probability(models).all() or not (abs(totals - 1) < SUM_TOLERANCE).all():
        raise ValueError(
            "Expected `pred_probs` to hold probabilities that sum to 1 for every instance, but got sums from "
            f"{totals.min():g} to {totals.max():g}: logits need a softmax first."
        )
    _, number, num_classes = models.shape
    label = _classes("labels", _array("labels", labels), number)
    if label.min() < 0 or label.max() >= num_classes:
        raise ValueError(
            f"Expected `labels` to be from 0 to {num_classes - 1}, the classes of `pred_probs`, but got "
            f"{label.min()} to {label.max()}."
        )
    return np.clip(models[:, np.arange(number), label].T, 0, 1), models.mean(0)


def _array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return an argument as an array; text is refused here, since torch's error would not say whose it is."""
    if not isinstance(values, torch.Tensor):
        found = np.asarray(values)
        example = found.flat[0] if found.size else None
        if isinstance(example, (str, bytes)):
            fix = "number the classes, from 0 on" if name in ("labels", "believed") else "convert it"
            raise TypeError(
                f"Expected `{name}` to hold numbers, but got text such as {str(example)!r}: "
                f"{fix if found.ndim else 'if that is a file, load it and pass what it holds'}."
            )
    return tensor_of(name, values).detach().cpu().numpy()


def _beliefs(believed: Any, label: Integers | None, number: int) -> tuple[Integers | None, Floats | None]:
    """Return the believed classes and, where class probabilities are known, the rival's."""
    if believed is None:
        return None, None
    if label is None:
        raise ValueError(
            "Expected `labels` beside `believed`, since the audit compares them, but got None: pass "
            "`labels`, or leave `believed` out."
        )
    array = _array("believed", believed)
    if array.ndim != 2:
        return _classes("believed", array, number), None
    _check_class_probabilities(array, number)
    if label.min() < 0 or label.max() >= array.shape[1]:
        raise ValueError(
            f"Expected `labels` to be from 0 to {array.shape[1] - 1}, the classes of `believed`, but got "
            f"{label.min()} to {label.max()}."
        )
    totals = array.sum(1, dtype=np.float64)
    others = array.astype(np.float64)
    others[np.arange(number), label] = 0
    # An instance without visits has no probabilities yet; its score is NaN anyway.
    return array.argmax(1), others.max(1) / np.where(totals > 0, totals, 1)


def _check_class_probabilities(array: npt.NDArray[Any], number: int) -> None:
    if len(array) != number or not array.shape[1] or array.dtype.kind != "f":
        raise ValueError(
            f"Expected `believed` to hold one row of class probabilities per instance, {number} rows of "
            f"floats, but got {array.dtype} of shape {array.shape}."
        )
    wrong = ~((array >= 0) & (array < np.inf))  # NaN too
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            "Expected `believed` to hold class probabilities, or their sum over the epochs, finite and at "
            f"least 0, but got {array[row, column]:g} for instance {row}: logits need a softmax first."
        )


def _rival(rival: Any, number: int) -> Floats:
    array = _array("rival", rival).astype(np.float64)
    if (
        array.shape != (number,)
        or not (np.nan_to_num(array) >= 0).all()
        or not (np.nan_to_num(array) <= 1).all()
    ):
        raise ValueError(
            f"Expected `rival` to hold one probability in [0, 1] per instance, shape ({number},), but got "
            f"shape {array.shape}, from {array.min(initial=np.inf):g} to {array.max(initial=-np.inf):g}."
        )
    return array


def _classes(name: str, array: npt.NDArray[Any], number: int) -> Integers:
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"Expected `{name}` to hold classes as integers, but got {array.dtype}: number the classes."
        )
    if array.shape != (number,):
        raise ValueError(
            f"Expected `{name}` to hold one class per instance, shape ({number},), but got {array.shape}."
        )
    return array.astype(np.int64)
