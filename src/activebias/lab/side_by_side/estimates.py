"""The estimates of histories of different lengths: a kernel on a GPU, the core's function on a CPU."""

import torch
from torch import Tensor

from activebias import Estimate, PredictionHistory, statistics
from activebias.internal import as_tensor, native

# The entries that a program reads at a time, and its warps.
_BLOCK, _WARPS = 512, 4


def estimate_rows(history: PredictionHistory, rows: Tensor) -> Estimate:
    """Estimate n, p̄ and var of the given rows (R,) of a history in float32; on a GPU nothing waits."""
    if not rows.is_cuda:
        values, count = history.entries(native(rows))
        return Estimate(*map(as_tensor, statistics.estimate(values, count)))
    return launch(*history.stored(rows))


def launch(values: Tensor, first: Tensor, number: Tensor) -> Estimate:
    """Estimate from `number` values from `first` on, row by row."""
    from activebias.lab.side_by_side import estimate_kernels as kernels

    found = Estimate(*torch.empty(3, len(first), dtype=torch.float32, device=first.device))
    tolerance = statistics.TIE_TOLERANCE
    kernels.estimate[(len(first),)](
        values, first, number, *found, TOLERANCE=tolerance, BLOCK=_BLOCK, num_warps=_WARPS
    )
    return found
