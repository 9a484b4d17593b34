"""The code of a GPU, run on a CPU: tensors in place of NumPy arrays, and graphs that replay by calling.

It shows what does not need a device: the arithmetic, the row that does not count, and buffers that the next
replay overwrites. Waiting, and what a CUDA graph cannot hold: pretend_device.py.
"""

import contextlib

import torch

import activebias.active_bias
import activebias.curve
import activebias.graphs
import activebias.history
import activebias.learning
import activebias.memory
import activebias.metrics
import activebias.rows

RUBBISH = {torch.float32: float("nan"), torch.int64: -(2**40), torch.bool: True}


class PretendGraph:
    """Replays by calling, into the buffers that the recording gave; before that, they hold rubbish."""

    def __init__(self, function, inputs, outputs):
        self.function, self.inputs, self.outputs = function, inputs, outputs
        self.num_replays = 0

    def replay(self):
        self.num_replays += 1
        for buffer, new in zip(self.outputs, self.function(*self.inputs), strict=True):
            buffer.copy_(new)

    def spoil(self):
        """Overwrite the outputs, as the next replay may do at any time after this one."""
        for buffer in self.outputs:
            buffer.fill_(RUBBISH[buffer.dtype])


def pretend_gpu(monkeypatch, *, held=lambda function: function):
    """From now on a bias on the CPU runs the code of a GPU; return the list of graphs that it records.

    A graph replays by calling `held(function)`.
    """
    graphs = []

    def record(graphed, shape):
        inputs = graphed._idle(shape)
        for _ in range(2):  # as the real recording does
            graphed._function(*inputs)
        function = held(graphed._function)
        outputs = tuple(output.clone() for output in function(*inputs))
        graphs.append(PretendGraph(function, inputs, outputs))
        return activebias.graphs._Recorded(graphs[-1], inputs, outputs)

    for module in (
        activebias.active_bias,
        activebias.curve,
        activebias.history,
        activebias.learning,
        activebias.memory,
        activebias.metrics,
        activebias.rows,
    ):
        monkeypatch.setattr(module, "native", lambda array: array)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(activebias.graphs.Graphed, "_record", record)
    monkeypatch.setattr(activebias.graphs, "OFTEN", 4)  # epochs of tests are short
    return graphs
