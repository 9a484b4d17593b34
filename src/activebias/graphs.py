"""A step's bookkeeping as CUDA graphs: some ninety small kernels, launched by one call.

An eager training step on a GPU is often bound by the host that launches its kernels, and ninety more would
show. This module records and replays the functions that a CPU runs, and computes nothing itself.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch

Tensors = tuple[torch.Tensor, ...]
Shape = tuple[int, ...]

# Graphs are made between epochs, for the shapes that came often. Sentences come in too many.
MOST_GRAPHS, OFTEN = 2, 16


class _Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage before a capture: freeing an older graph during a capture would break the capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Graphed:
    """Calls `function`, from a graph where there is one for the inputs' shape.

    All inputs have one shape. Recording a graph calls `function`, so `idle(shape)` makes inputs for it that
    leave no trace in the state.
    """

    def __init__(self, function: Callable[..., Tensors], idle: Callable[[Shape], Tensors]) -> None:
        """Begin without graphs."""
        self._function = function
        self._idle = idle
        self._graphs: dict[Shape, _Recorded] = {}
        self._seen: Counter[Shape] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the graphs out of a pickle or deep copy: they hold addresses of this object's storage."""
        return {**vars(self), "_graphs": {}}

    def __call__(self, *inputs: torch.Tensor) -> Tensors:
        """Return the result of the function; the next call may overwrite it."""
        shape = tuple(inputs[0].shape)
        recorded = self._graphs.get(shape)
        # A graph of the user's must capture the kernels themselves.
        if recorded is None or torch.cuda.is_current_stream_capturing():
            self._seen[shape] += 1
            return self._function(*inputs)
        for static, new in zip(recorded.inputs, inputs, strict=True):
            static.copy_(new, non_blocking=True)
        recorded.graph.replay()
        return recorded.outputs

    def forget(self) -> None:
        """Drop all graphs, because the storage whose addresses they hold has moved."""
        self._seen.update(dict.fromkeys(self._graphs, OFTEN))
        self._graphs.clear()

    def prepare(self, *expected: Shape) -> None:
        """Record graphs for the expected shapes and for frequent shapes; waits for the device."""
        often = [shape for shape, number in self._seen.most_common(MOST_GRAPHS) if number >= OFTEN]
        for shape in [*expected, *often]:
            if shape not in self._graphs and len(self._graphs) < MOST_GRAPHS:
                with torch.inference_mode(False):  # it must serve outside of inference too
                    self._graphs[shape] = self._record(shape)
        self._seen.clear()

    def _record(self, shape: Shape) -> _Recorded:
        inputs = self._idle(shape)
        side = cast(Callable[[], torch.cuda.Stream], torch.cuda.Stream)()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._function(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other threads (a DataLoader that pins memory) may go on calling CUDA meanwhile.
        with no_garbage_collection(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = self._function(*inputs)
        return _Recorded(graph, inputs, outputs)
