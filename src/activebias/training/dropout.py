"""Dropout whose masks are a pure function of a seed, a step and a position.

A layer has no `torch.Generator`, because K models trained side by side (`torch.func.vmap` over
`functional_call`) must draw the same masks as K single runs. A generator is host state: vmap cannot batch it,
every model needs its own kernel launch, and GPU and CPU give different numbers. Here the state of a layer is
two integer buffers: `seed`, drawn once from the trainer's generator, and `step`. They stack like any other
buffer (`torch.func.stack_module_state`) and are saved with the model. The mask is integer arithmetic on them:
the same on every device, compiled or not, alone or side by side.
"""

import torch
from torch import Tensor, nn

_MASK = 0xFFFFFFFF


class Dropout(nn.Module):
    """Keep each value with probability `keep` and divide it by `keep`; in evaluation mode, do nothing.

    The masks of a layer depend on its seed and on the number of its calls in training mode.

    >>> layer = Dropout(0.5, generator=torch.Generator().manual_seed(0))
    >>> sorted(set(layer(torch.ones(100)).tolist()))
    [0.0, 2.0]
    >>> layer.step
    tensor(1)
    """

    seed: Tensor
    step: Tensor

    def __init__(self, keep: float, *, generator: torch.Generator, row_length: int | None = None) -> None:
        """Draw the layer's seed from `generator`.

        `row_length` fixes the number of random values per row (first dimension). The masks of a sentence
        then do not depend on the padding of its batch.
        """
        super().__init__()
        if not 0 < keep <= 1:
            raise ValueError(f"Expected `keep` to be above 0 and at most 1, but got {keep}.")
        self.keep, self.row_length = keep, row_length
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.seed.copy_(torch.randint(2**62, (), generator=generator, device=generator.device))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs with a new mask applied."""
        if not self.training:
            return inputs
        noise = counter_noise(self.seed, self.step, self._positions(inputs)).view(inputs.shape)
        self.step.add_(1)
        return torch.where(noise < round(self.keep * (_MASK + 1)), inputs / self.keep, 0.0)

    def _positions(self, inputs: Tensor) -> Tensor:
        if self.row_length is None:
            return torch.arange(inputs.numel(), device=inputs.device)
        row = torch.arange(inputs.shape[0], device=inputs.device).unsqueeze(1)
        return row * self.row_length + torch.arange(inputs[0].numel(), device=inputs.device)

    def extra_repr(self) -> str:
        """Name the keep probability when printed."""
        return f"keep={self.keep}"


def counter_noise(seed: Tensor, step: Tensor, position: Tensor) -> Tensor:
    """Return an integer for every position (below 2³¹), uniform on 0 … 2³² - 1, from two int64 scalars.

    The seed is at least 0 and below 2⁶².

    >>> counter_noise(torch.tensor(1), torch.tensor(0), torch.arange(3))
    tensor([3405691463, 4158410101, 2638174952])
    """
    key = _mix((seed & _MASK) ^ _mix((seed >> 32) ^ _mix(step & _MASK)))
    # Every (seed, step) has its own stride: with a common stride, two similar keys would give the same noise,
    # shifted by a few positions.
    stride = (_mix(key ^ 0x5BD1E995) >> 1) | 1
    return _mix((position * stride).add_(key).bitwise_and_(_MASK))


def _mix(bits: Tensor) -> Tensor:
    # A 32-bit finaliser (two rounds of xor-shift and multiply). Both factors are below 2³¹, so that
    # no product leaves int64 and the result does not depend on how a device overflows. In-place operations
    # on new tensors save a third of the time on a CPU.
    bits = (bits >> 16).bitwise_xor_(bits).mul_(0x21F0AAAD).bitwise_and_(_MASK)
    bits = (bits >> 15).bitwise_xor_(bits).mul_(0x735A2D97).bitwise_and_(_MASK)
    return (bits >> 15).bitwise_xor_(bits)
