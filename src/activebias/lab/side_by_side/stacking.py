"""Stacks K models of one architecture: every parameter gets a leading dimension of length K."""

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from activebias.lab.models import ResidualNet
from activebias.lab.side_by_side.layers import with_stackable_layers
from activebias.lab.side_by_side.residual import StackedResidualNet
from activebias.training.dropout import Dropout

State = dict[str, Tensor]


@final
class Stack:
    """The parameters and buffers of K models, and one forward pass for all of them.

    Constants (word vectors, a mean image) are held once for all models. With `half_precision`, products run
    in bf16 on copies of the weights, and the copies receive the gradients (`copies`). Weights and the
    parameters of batch norms stay float32.
    """

    def __init__(
        self, template: nn.Module, parameters: State, buffers: State, shared: State, *, half_precision: bool
    ) -> None:
        """Use stacked parameters and buffers; `template` provides only the layers."""
        self._template = template
        self.half_precision = half_precision
        self.convolves = any(isinstance(module, nn.Conv1d | nn.Conv2d) for module in template.modules())
        self.parameters = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        self.buffers = buffers
        self._shared = shared
        norms = {
            f"{prefix}.{name}"
            for prefix, module in template.named_modules()
            if isinstance(module, _BatchNorm)
            for name, _ in module.named_parameters()
        }
        self._half = {
            name: value.detach().bfloat16().requires_grad_()
            for name, value in self.parameters.items()
            if half_precision and name not in norms
        }
        first = next(iter(self.parameters.values()))
        self.size, self.device = first.shape[0], first.device
        on_gpu = self.device.type == "cuda"
        # A net with its own form for K models needs neither `vmap` nor other layers.
        self._whole = StackedResidualNet(template) if on_gpu and isinstance(template, ResidualNet) else None
        # The model with layers for a GPU; the original is still used to run one model alone.
        replace = on_gpu and self._whole is None
        layers = with_stackable_layers(copy.deepcopy(template)) if replace else template
        self._training = _Logits(layers).train()
        self._evaluation = _Logits(copy.deepcopy(layers)).eval()

    @staticmethod
    def of(models: Sequence[nn.Module], device: torch.device, *, half_precision: bool = False) -> "Stack":
        """Stack single models, in their order."""
        template = models[0]
        changing = changing_buffers(template)

        def stacked(states: Sequence[dict[str, Tensor]]) -> State:
            return {
                name: torch.stack([state[name].detach() for state in states]).to(device) for name in states[0]
            }

        buffers = [dict(model.named_buffers()) for model in models]
        return Stack(
            copy.deepcopy(template).to("meta"),
            stacked([dict(model.named_parameters()) for model in models]),
            stacked([{name: each[name] for name in changing} for each in buffers]),
            {name: value.to(device) for name, value in buffers[0].items() if name not in changing},
            half_precision=half_precision,
        )

    def select(self, positions: Tensor) -> "Stack":
        """Return a stack of copies of the models at the given positions."""
        return Stack(
            self._template,
            {name: value.detach()[positions] for name, value in self.parameters.items()},
            {name: value[positions] for name, value in self.buffers.items()},
            self._shared,
            half_precision=self.half_precision,
        )

    def part(self, models: slice) -> "Stack":
        """Return a float32 stack of consecutive models that shares its tensors with this one."""
        return Stack(
            self._template,
            {name: value[models] for name, value in self.parameters.items()},
            {name: value[models] for name, value in self.buffers.items()},
            self._shared,
            half_precision=False,
        )

    @property
    def copies(self) -> dict[Tensor, Tensor]:
        """The half-precision copies, by their parameters."""
        return {self.parameters[name]: copy for name, copy in self._half.items()}

    def logits(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the training-mode logits (K, B, …, C) of inputs (K, B, …), one batch per model."""
        if self._whole is not None:
            return self._whole.logits({**self.parameters, **self._half}, self.buffers, *inputs).float()
        return self._run(self._training, inputs, 0)

    def predict(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the evaluation-mode logits (K, B, …, C) of inputs (B, …) that all models share."""
        if self._whole is not None:
            return self._whole.predict({**self.parameters, **self._half}, self.buffers, *inputs).float()
        return self._run(self._evaluation, inputs, None)

    def evaluate(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the evaluation-mode logits (K, B, …, C) of inputs (K, B, …), one batch per model.

        Unlike `predict`, it has a gradient for every model.
        """
        return self._run(self._evaluation, inputs, 0)

    def groups_by_decay(self) -> list[dict[str, Any]]:
        """Return the parameters in groups for an optimiser, by the strength of their regulariser."""
        weight_decay: Callable[[], dict[str, float]] = getattr(self._template, "weight_decay", dict)
        decay = weight_decay()
        return [
            {
                "params": [
                    value for name, value in self.parameters.items() if decay.get(name, 0.0) == strength
                ],
                "weight_decay": strength,
            }
            for strength in dict.fromkeys(decay.get(name, 0.0) for name in self.parameters)
        ]

    def _run(self, module: nn.Module, inputs: Sequence[Tensor], in_dim: int | None) -> Tensor:
        shared = self._prefixed(self._shared)

        def one(parameters: State, buffers: State, *inputs: Tensor) -> Any:
            return functional_call(module, (parameters, {**buffers, **shared}), inputs)

        run: Callable[..., Tensor] = vmap(one, in_dims=(0, 0, *(in_dim for _ in inputs)))
        parameters = self._prefixed({**self.parameters, **self._half})
        return run(parameters, self._prefixed(self.buffers), *inputs).float()

    @staticmethod
    def _prefixed(state: State) -> State:
        return {f"model.{name}": value for name, value in state.items()}

    def state_dict(self) -> dict[str, State]:
        """Return the tensors that training changes, without a copy."""
        return {"parameters": {k: v.detach() for k, v in self.parameters.items()}, "buffers": self.buffers}

    def load_state_dict(self, state: dict[str, State]) -> None:
        """Load a `state_dict`."""
        with torch.no_grad():
            for own, new in ((self.parameters, state["parameters"]), (self.buffers, state["buffers"])):
                for name, value in own.items():
                    value.copy_(new[name])
        self.refresh_copies()

    @torch.no_grad()
    def refresh_copies(self) -> None:
        """Write the parameters into their half-precision copies."""
        for name, copy_ in self._half.items():
            copy_.copy_(self.parameters[name])


def changing_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers that training changes, in batch norms and our dropout."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, _BatchNorm | Dropout)
        for name, _ in module.named_buffers(recurse=False)
    ]


def stacks_equally(models: Sequence[nn.Module], inputs: Sequence[Tensor]) -> bool:
    """Return whether a stack of models from outside the lab gives their outputs, on a CPU.

    A model may fail to stack because it uses torch's random state, keeps tensors that are not buffers, or
    has operations that `vmap` does not support or only in a slow way. A regulariser needs `weight_decay()`.
    """
    if hasattr(models[0], "regulariser") and not hasattr(models[0], "weight_decay"):
        return False
    batches = [tensor.unsqueeze(0).expand(len(models), *tensor.shape) for tensor in inputs]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "There is a performance drop")
            stack = Stack.of(models, torch.device("cpu"))
            predicted, trained = stack.predict(inputs), stack.logits(batches)
            torch.autograd.grad(trained.sum(), list(stack.parameters.values()), allow_unused=True)
        with torch.no_grad():
            alone = [torch.stack([model.train(mode)(*inputs) for model in models]) for mode in (False, True)]
    except Exception:  # a user's model can raise anything; it is trained alone, where its errors are shown
        return False
    return all(
        one.shape == other.shape and torch.allclose(one.float(), other, rtol=1e-4, atol=1e-5)
        for one, other in zip(alone, (predicted, trained), strict=True)
    )


@final
class _Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Any:
        return self.model(*inputs)
