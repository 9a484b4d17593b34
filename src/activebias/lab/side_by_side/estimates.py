"""The core's estimate of histories, on a GPU in one launch instead of forty."""

from typing import Any

import torch
from torch import Tensor

from activebias import Estimate, statistics

_WIDEST = 1024
_LEAST_WIDTH, _VALUES = 64, 1024


def estimate(values: Any, count: Any) -> Estimate:
    """Return `statistics.estimate(values, count)` of rows (R, W), up to rounding; NumPy arrays or tensors."""
    on_gpu = isinstance(values, Tensor) and values.is_cuda
    if not on_gpu or values.dtype != torch.float32 or values.shape[-1] > _WIDEST:
        return statistics.estimate(values, count)
    return estimate_at_once(values, count)


def estimate_at_once(values: Tensor, count: Tensor) -> Estimate:
    """Return the estimate of float32 rows of at most 1,024 entries, by a kernel."""
    from activebias.lab.side_by_side import estimate_kernels as kernels

    rows, width = values.shape
    padded = max(_LEAST_WIDTH, 1 << (width - 1).bit_length())
    at_once = _VALUES // padded
    results = values.new_empty(3, rows)
    kernels.estimate[(-(-rows // at_once),)](
        values.contiguous(), count.contiguous(), results, rows, width, statistics.TIE_TOLERANCE,
        W=padded, BR=at_once,
    )  # fmt: skip
    return Estimate(*results)
