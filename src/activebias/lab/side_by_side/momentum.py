"""SGD with momentum for models whose matrix products run in half precision (GPU only)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import torch
from torch import Tensor

_BLOCK = 2048


@final
class HalfPrecisionSGD(torch.optim.Optimizer):
    """`torch.optim.SGD` for weights with half-precision copies, which the forward pass reads.

    The copies receive the gradients. Weights and momentum stay float32, and a step updates the copies. With
    torch's optimiser, the weights are cast before every forward pass and the gradients after it, which is
    slow for a large fully connected layer.
    """

    def __init__(
        self,
        parameters: Iterable[dict[str, Any]],
        copies: Mapping[Tensor, Tensor],
        *,
        rate: Tensor,
        momentum: float,
    ) -> None:
        """Train groups of float32 parameters; `copies` holds their half-precision copies, if they have one.

        `rate` is a number on the device, or one per model (K,), which a CUDA graph reads in every replay.
        """
        super().__init__(parameters, {"lr": rate, "momentum": momentum, "weight_decay": 0.0})
        self._copies = copies
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Delete the gradients of the weights and of their copies."""
        super().zero_grad(set_to_none)
        for copy in self._copies.values():
            copy.grad = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update every weight that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            # Parameters of batch norms have no copy. They are many and small: torch steps them all at once.
            at_once = [] if group["lr"].dim() else [each for each in group["params"] if self._is_whole(each)]
            if at_once:
                torch._fused_sgd_(
                    at_once, [each.grad for each in at_once],
                    [self.state[each]["momentum_buffer"] for each in at_once],
                    weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
                    dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
                )  # fmt: skip
            stepped = set(at_once)
            for parameter in group["params"]:
                if parameter not in stepped:
                    self._step(parameter, group)

    def _is_whole(self, parameter: Tensor) -> bool:
        """Return whether a parameter has a gradient and no copy."""
        return parameter not in self._copies and parameter.grad is not None

    def _step(self, parameter: Tensor, group: Mapping[str, Any]) -> None:
        """Update a weight and its copy, if it has a gradient."""
        copy = self._copies.get(parameter)
        gradient = parameter.grad if copy is None else copy.grad
        if gradient is None:
            return
        from activebias.lab.side_by_side import momentum_kernels as kernels

        size = parameter.numel() // len(parameter)
        kernels.step[(-(-parameter.numel() // _BLOCK),)](
            parameter, gradient.contiguous(), self.state[parameter]["momentum_buffer"],
            parameter if copy is None else copy,
            group["lr"], group["momentum"], group["weight_decay"], parameter.numel(),
            size, RATE_BY_MODEL=group["lr"].dim() > 0, LARGE_MODELS=size >= _BLOCK,
            HAS_HALF=copy is not None, BLOCK=_BLOCK,
        )  # fmt: skip
