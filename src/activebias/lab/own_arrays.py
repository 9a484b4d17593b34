"""A user's inputs and labels, of many types, as examples for training."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from activebias.internal import IGNORED
from activebias.training.examples import Examples


def read_arrays(data: Any) -> tuple[Examples, tuple[str, ...]]:
    """Return the examples and the class names of a pair (inputs, labels), or of a data set of pairs.

    Inputs are an array, a tensor, a DataFrame of numbers or a list. Labels are integers, words or booleans.
    The classes are numbered in their order. In tagging, labels are integers from 0 on, (sentences, words),
    padded with -100.
    """
    inputs, labels = _pair(data)
    tensor = _inputs(inputs)
    targets, names = _labels(labels)
    if len(tensor) != len(targets):
        raise ValueError(
            f"Expected `data` to have one label per input, but got {len(tensor)} inputs and {len(targets)} "
            "labels."
        )
    lengths = (targets != IGNORED).sum(1) if targets.dim() == 2 else None
    return Examples((tensor,), targets, lengths), names


def _pair(data: Any) -> tuple[Any, Any]:
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return data[0], data[1]
    is_dataset = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "dtype")
    if is_dataset and not isinstance(data, (tuple, list, dict, str)) and not hasattr(data, "columns"):
        items = [data[number] for number in range(len(data))]
        if items and all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
            try:
                inputs = torch.stack([torch.as_tensor(item[0]) for item in items])
            except (RuntimeError, TypeError, ValueError) as error:
                raise TypeError(
                    f"Expected the inputs of `data` to be numbers of one shape, but got: {error}."
                ) from None
            return inputs, [item[1] for item in items]
    raise TypeError(
        "Expected `data` to be a pair (inputs, labels), or a data set of such pairs, but got "
        f"{type(data).__name__}."
    )


def _inputs(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
    else:
        array = _array(values)
        if array.dtype.kind == "O":  # a list or DataFrame of mixed numbers
            with suppress(TypeError, ValueError):
                array = array.astype(np.float64)
        if array.dtype.kind not in "biuf":
            raise TypeError(
                f"Expected the inputs of `data` to be numbers, but got {array.dtype}: encode words and "
                "categories as numbers, or use `activebias compare --csv`, which reads any table."
            )
        tensor = torch.from_numpy(np.ascontiguousarray(array))
    if tensor.dim() == 0 or len(tensor) == 0:
        raise ValueError("Expected `data` to hold at least one example, but its inputs are empty.")
    if bad := int((~tensor.isfinite()).reshape(len(tensor), -1).any(1).sum()):
        raise ValueError(
            f"Expected the inputs of `data` to be finite, but {bad} of {len(tensor)} examples have NaN or "
            "infinite values: fill or remove them."
        )
    return tensor


def _labels(values: Any) -> tuple[Tensor, tuple[str, ...]]:
    """Return class numbers and class names."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else _array(values)
    if array.dtype.kind == "f" and array.size and np.isfinite(array).all() and (array % 1 == 0).all():
        array = array.astype(np.int64)
    if array.dtype.kind == "f":
        raise TypeError(
            "Expected the labels of `data` to be classes, but got fractions or missing values: group a "
            "quantity into classes, and remove examples without a label."
        )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2:
        return _tags(array)
    if array.ndim != 1:
        raise ValueError(
            f"Expected the labels of `data` to be one per example, but got an array of shape {array.shape}."
        )
    if array.dtype.kind == "O" and (missing := sum(value is None or value != value for value in array)):
        raise ValueError(
            f"Expected the labels of `data` to be classes, but {missing} are missing: remove the examples "
            "without a label."
        )
    if array.dtype.kind not in "iubUSO":
        raise TypeError(f"Expected the labels of `data` to be integers or words, but got {array.dtype}.")
    texts = array.astype(str) if array.dtype.kind == "O" else array
    classes, numbers = np.unique(texts, return_inverse=True)
    return _checked(torch.from_numpy(numbers.astype(np.int64)), [str(value) for value in classes])


def _tags(array: NDArray[Any]) -> tuple[Tensor, tuple[str, ...]]:
    if array.dtype.kind not in "iu":
        raise TypeError(
            "Expected the labels of `data` to be integers in tagging, padded with -100, but got "
            f"{array.dtype}: number the tags from 0."
        )
    targets = torch.from_numpy(array.astype(np.int64))
    real = targets[targets != IGNORED]
    if len(real) == 0 or int(real.min()) < 0:
        raise ValueError(
            "Expected the labels of `data` to count from 0 (and -100 after a sentence's end, in tagging), "
            f"but got {int(real.min()) if len(real) else IGNORED}: number the tags from 0."
        )
    return _checked(targets, [str(number) for number in range(int(real.max()) + 1)])


def _checked(targets: Tensor, names: Sequence[str]) -> tuple[Tensor, tuple[str, ...]]:
    if len(set(targets[targets != IGNORED].tolist())) < 2:
        raise ValueError("Expected `data` to have labels of at least two classes, but got one.")
    return targets, tuple(names)


def _array(values: Any) -> NDArray[Any]:
    """Return an array; a DataFrame or Series gives its values."""
    try:
        array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected `data` to be arrays of one shape, but got: {error}.") from None
    return np.asarray(array)
