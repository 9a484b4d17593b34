"""The few operations that NumPy and torch spell differently.

The functions of the method are written once, on what the two libraries share. On a CPU they run on NumPy
views of the state (a NumPy call costs a quarter of a torch call at the size of a batch, and its sort is
fifteen times faster); on a GPU they run on the tensors, where nothing waits for the device.
"""

from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch

# Rows beyond this many entries are not sorted on a GPU for their median: selecting it reads them a few times.
WIDE = 256

# A torch.Tensor or a numpy.ndarray. Functions return the kind they were given.
Array: TypeAlias = Any


def namespace(array: Array) -> ModuleType:
    """Return the library that `array` belongs to."""
    return torch if isinstance(array, torch.Tensor) else np


def native(array: Array) -> Array:
    """Return the form of a tensor that is fastest where it lives: a NumPy view (CPU) or itself (GPU).

    It shares its memory with the tensor. What is in that form already stays as it is.
    """
    return array.numpy() if isinstance(array, torch.Tensor) and array.is_cpu else array


def as_tensor(array: Array) -> torch.Tensor:
    """Undo `native`."""
    return array if isinstance(array, torch.Tensor) else torch.from_numpy(array)


def arange_like(array: Array, length: int) -> Array:
    """Return 0 … length-1 as int64, beside `array`."""
    if isinstance(array, torch.Tensor):
        return torch.arange(length, device=array.device)
    return np.arange(length)


def cast(array: Array, dtype: str) -> Array:
    """Return `array` with the dtype of that name."""
    if isinstance(array, torch.Tensor):
        return array.to(getattr(torch, dtype))
    return array.astype(dtype, copy=False)


def take_rows(array: Array, index: Array) -> Array:
    """Return `array[index]`; NumPy's `take` copies whole rows, in half the time of indexing."""
    return array[index] if isinstance(array, torch.Tensor) else array.take(index, axis=0)


def zero_unless(condition: Array, number: Array) -> Array:
    """Return a single number, or 0 if the condition, also a single one, does not hold."""
    if isinstance(number, torch.Tensor):
        return torch.where(condition, number, 0)
    return number if condition else 0


def sort_last(array: Array) -> Array:
    """Sort along the last dimension."""
    return array.sort(-1).values if isinstance(array, torch.Tensor) else np.sort(array, axis=-1)


def running_sum(array: Array) -> Array:
    """Return the sums up to every entry along the last dimension.

    A GPU's may vary by rounding from run to run, and torch refuses it where nothing may: there the CPU adds.
    """
    if isinstance(array, torch.Tensor) and array.is_cuda and torch.are_deterministic_algorithms_enabled():
        return array.cpu().cumsum(-1).to(array.device)
    return array.cumsum(-1)


def middle_two(array: Array, count: Array) -> tuple[Array, Array]:
    """Return the two middle ones of the `count` finite values of every row; the others must be inf.

    They are the same where the number is odd.
    """
    if isinstance(array, torch.Tensor) and array.is_cuda and array.shape[-1] > WIDE and may_select():
        return select_middle_two(array, count)
    return take_last(sort_last(array), at_least(count - 1, 0) // 2, count // 2)


def may_select() -> bool:
    """Return whether torch may select on a GPU: it counts that among the operations that vary between runs.

    What varies is the position among equal values, which nobody asks for here; but it would raise.
    """
    return not torch.are_deterministic_algorithms_enabled()


def select_middle_two(array: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `middle_two` does without sorting: torch's median is the lower of the two.

    The upper one is the same where more than half of the values are not above it, else the next larger.
    """
    lower = torch.where(array.isinf(), float("nan"), array).nanmedian(-1).values
    above = array > lower.unsqueeze(-1)
    next_larger = torch.where(above, array, float("inf")).amin(-1)
    not_above = array.shape[-1] - above.sum(-1)
    return lower, torch.where(not_above > count // 2, lower, next_larger)


def take_last(array: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Return `array[..., position[...]]`, one entry of every row, for both positions."""
    flat, width = array.reshape(-1), array.shape[-1]
    start = arange_like(array, flat.shape[0] // width) * width
    return (
        flat[start + first.reshape(-1)].reshape(first.shape),
        flat[start + second.reshape(-1)].reshape(second.shape),
    )


def cast_like(array: Array, other: Array) -> Array:
    """Return `array` with the dtype of `other`."""
    return array.to(other.dtype) if isinstance(array, torch.Tensor) else array.astype(other.dtype, copy=False)


def at_least(array: Array, minimum: int) -> Array:
    """Return the larger of each entry and `minimum`."""
    return array.clamp(min=minimum) if isinstance(array, torch.Tensor) else np.maximum(array, minimum)


def at_most(array: Array, maximum: int) -> Array:
    """Return the smaller of each entry and `maximum`."""
    return array.clamp(max=maximum) if isinstance(array, torch.Tensor) else np.minimum(array, maximum)
