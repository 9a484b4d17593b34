"""Records a function that depends only on the device's state as a CUDA graph, and replays it."""

from collections.abc import Callable
from typing import Any, final

import torch

from activebias.internal import no_garbage_collection

# The first calls set up handles, compiled kernels and an optimiser's state, which a capture needs.
_CALLS_BEFORE_CAPTURE = 3


@final
class Replayed:
    """Calls `function`, which reads and changes the device's state in place and returns nothing.

    On a GPU the first calls run normally. Then the function is recorded once and replayed: an iteration of
    hundreds of small kernels costs the host one launch. Without `records` it is always called.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, *, records: bool = True) -> None:
        """Start without a graph."""
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
