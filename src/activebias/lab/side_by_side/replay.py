"""Calls that become one launch: a function of the device's state alone, recorded as a CUDA graph."""

from collections.abc import Callable
from typing import Any, final

import torch

from activebias.internal import no_garbage_collection

# What a first call sets up (handles, compiled kernels, an optimiser's state) must be there before a capture.
_CALLS_BEFORE_CAPTURE = 3


@final
class Replayed:
    """Calls `function`, which reads and changes the device's state in place and returns nothing.

    On a GPU the first few calls run as they are; then the function is recorded once and replayed: an
    iteration of hundreds of small kernels costs the host one launch. Without `records` it is always called.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, *, records: bool = True) -> None:
        """Begin without a graph."""
        self._records = records and device.type == "cuda"
        self._function = function
        self._num_calls = 0
        self._graph: Any = None

    def __call__(self) -> None:
        """Call the function, or replay it."""
        if not self._records:
            self._function()
        elif self._graph is not None:
            self._graph.replay()
        elif self._num_calls < _CALLS_BEFORE_CAPTURE:
            self._num_calls += 1
            self._function()
        else:
            self._graph = self._record()
            self._graph.replay()

    def _record(self) -> Any:
        graph = torch.cuda.CUDAGraph()
        with no_garbage_collection(), torch.cuda.graph(graph):
            self._function()
        return graph
