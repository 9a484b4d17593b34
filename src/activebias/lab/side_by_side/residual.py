"""The residual nets of K models as one, on a GPU: the whole forward and backward pass, kernel by kernel.

Layer by layer under `vmap`, half of the time goes into passes over the activations that only add, sum or
mask. Here every convolution also adds the shortcut and computes the sums for the next batch norm, while its
result is in registers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from activebias.lab.models.residual import NormThenLeakyReLU, ResidualNet, ResidualUnit
from activebias.lab.side_by_side.images import STORED_CHANNELS, standardised
from activebias.lab.side_by_side.norm import Norm, moments_of, norm_gradient, normalise, pool, pool_gradient
from activebias.lab.side_by_side.patches import (
    Layer,
    Use,
    activate,
    arrange,
    convolve,
    halve,
    input_gradient,
    weight_gradient,
)

State = Mapping[str, Tensor]
_SIZE = 32


@final
class _Unit(NamedTuple):
    """The layers of a residual unit; `shared`: its shortcut starts after the first norm."""

    shared: bool
    first: Layer
    second: Layer

    def shortcut(self, values: Tensor, activated: Tensor) -> Tensor:
        """Return the shortcut: the unit's input, before or after the first norm."""
        begin = activated if self.shared else values
        return begin if self.first.stride == 1 else halve(begin)


@final
class StackedResidualNet:
    """Runs K residual nets of one architecture, given their stacked parameters and buffers by name."""

    def __init__(self, template: ResidualNet) -> None:
        """Use the layers' shapes and settings; every call receives the weights."""
        self._first = Layer(3, 16, 1, _SIZE, STORED_CHANNELS)
        self._units: list[_Unit] = []
        size = _SIZE
        for unit in template.units:
            assert isinstance(unit, ResidualUnit)
            first, second = (
                Layer(each.in_channels, each.out_channels, each.stride[0], size // shrunk, each.in_channels)
                for each, shrunk in (
                    (unit.convolution_1, 1),
                    (unit.convolution_2, unit.convolution_1.stride[0]),
                )
            )
            self._units.append(_Unit(unit.shared, first, second))
            size = second.size
        self._settings = {
            name: (module.eps, 0.1 if module.momentum is None else module.momentum, module.slope)
            for name, module in template.named_modules()
            if isinstance(module, NormThenLeakyReLU)
        }
        norms = [(f"{name}.weight", f"{name}.bias") for name in self._settings]
        self._norm_parameters = [name for pair in norms for name in pair]
        self._convolutions = ["first.weight"] + [
            f"units.{number}.convolution_{place}.weight"
            for number in range(len(self._units))
            for place in (1, 2)
        ]
        layers = [self._first, *(layer for unit in self._units for layer in (unit.first, unit.second))]
        self._in_evaluation = tuple(Use("activate", layer, number) for number, layer in enumerate(layers))
        # The first layer's input is an image, which needs no gradient.
        self._in_training = (
            *(Use("moments", layer, number) for number, layer in enumerate(layers)),
            *(Use("gradient", layer, number) for number, layer in enumerate(layers) if number > 0),
        )

    def logits(self, parameters: State, buffers: State, images: Tensor) -> Tensor:
        """Return training-mode logits (K, B, C) of images (K, B, 3, 32, 32); updates running statistics."""
        names = self._convolutions + self._norm_parameters
        given = [parameters[name] for name in names]
        features: Tensor = _Features.apply(self, buffers, images, *given)  # type: ignore[no-untyped-call]
        return _linear(parameters, features)

    def predict(self, parameters: State, buffers: State, images: Tensor) -> Tensor:
        """Return the evaluation-mode logits (K, B, C) of images (B, 3, 32, 32) that all models share."""
        weights = arrange(self._in_evaluation, [parameters[name].detach() for name in self._convolutions])
        norms = [self.norm(name, parameters, buffers).fixed() for name in self._settings]
        inputs = standardised(images, weights[0].dtype).expand(len(weights[0]), -1, -1, -1, -1)
        raw, activated = activate(self._first, inputs, weights[0], norms[0], raw=not self._units[0].shared)
        for number, unit in enumerate(self._units):
            shortcut = unit.shortcut(raw, activated)
            first, second = weights[1 + 2 * number], weights[2 + 2 * number]
            _, between = activate(unit.first, activated, first, norms[1 + 2 * number])
            raw, activated = activate(
                unit.second,
                between,
                second,
                norms[2 + 2 * number],
                shortcut,
                raw=number + 1 < len(self._units),
            )
        return _linear(parameters, activated.flatten(2, 3).mean(2))

    def norm(self, name: str, parameters: State, buffers: State) -> Norm:
        """Return the norm with the given name."""
        eps, momentum, slope = self._settings[name]
        return Norm(
            parameters[f"{name}.weight"].detach(),
            parameters[f"{name}.bias"].detach(),
            buffers[f"{name}.running_mean"],
            buffers[f"{name}.running_var"],
            buffers[f"{name}.num_batches_tracked"],
            eps,
            momentum,
            slope,
        )

    def forward(self, buffers: State, images: Tensor, given: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the features (K, B, 64), and the tensors that the backward pass needs."""
        given_weights, norms = self._parted(buffers, given)
        arranged = arrange(self._in_training, given_weights)
        weights, behind = arranged[: len(given_weights)], arranged[len(given_weights) :]
        inputs = standardised(images, weights[0].dtype)
        kept = [*behind, inputs]

        def normed(values: Tensor, sums: Tensor, norm: Norm) -> Tensor:
            moments = moments_of(sums, norm, values[0].numel() // values.shape[-1])
            kept.extend([values, moments])
            return moments

        values, sums = convolve(self._first, inputs, weights[0])
        for number, unit in enumerate(self._units):
            norm_1, norm_2 = norms[2 * number : 2 * number + 2]
            moments = normed(values, sums, norm_1)
            activated = normalise(values, norm_1.by(moments))
            between, sums = convolve(unit.first, activated, weights[1 + 2 * number])
            moments = normed(between, sums, norm_2)
            second = normalise(between, norm_2.by(moments))
            kept.extend([activated, second])
            values, sums = convolve(
                unit.second, second, weights[2 + 2 * number], unit.shortcut(values, activated)
            )
        moments = normed(values, sums, norms[-1])
        return pool(values, norms[-1].by(moments)), kept

    def backward(
        self, buffers: State, kept: Sequence[Tensor], gradient: Tensor, given: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the gradients of the parameters in the order of `given`."""
        given_weights, norms = self._parted(buffers, given)
        number_behind = len(given_weights) - 1
        weights, inputs, rest = kept[:number_behind], kept[number_behind], kept[number_behind + 1 :]
        of_weights: list[Tensor] = []
        of_norms: list[list[Tensor]] = []
        values, moments = rest[-2:]
        behind, sums = pool_gradient(gradient, values, norms[-1].by(moments))
        total, *of_norm = norm_gradient(behind, sums, values, norms[-1], moments)
        of_norms.append(of_norm)
        for number in reversed(range(len(self._units))):
            unit = self._units[number]
            values, moments_1, between, moments_2, activated, second = rest[6 * number : 6 * number + 6]
            norm_1, norm_2 = norms[2 * number : 2 * number + 2]
            weight_1, weight_2 = weights[2 * number : 2 + 2 * number]
            of_weights.append(weight_gradient(unit.second, second, total))
            behind, sums = input_gradient(unit.second, total, weight_2, between, norm_2.by(moments_2))
            of_between, *of_norm = norm_gradient(behind, sums, between, norm_2, moments_2)
            of_norms.append(of_norm)
            of_weights.append(weight_gradient(unit.first, activated, of_between))
            behind, sums = input_gradient(
                unit.first, of_between, weight_1, values, norm_1.by(moments_1), total if unit.shared else None
            )
            total, *of_norm = norm_gradient(
                behind, sums, values, norm_1, moments_1, None if unit.shared else total
            )
            of_norms.append(of_norm)
        of_weights.append(weight_gradient(self._first, inputs, total))
        return of_weights[::-1] + [each for pair in of_norms[::-1] for each in pair]

    def _parted(self, buffers: State, given: Sequence[Tensor]) -> tuple[Sequence[Tensor], list[Norm]]:
        number = len(self._convolutions)
        parameters = dict(zip(self._norm_parameters, given[number:], strict=True))
        return given[:number], [self.norm(name, parameters, buffers) for name in self._settings]


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, net: StackedResidualNet, buffers: State, images: Tensor, *given: Tensor) -> Tensor:
        features, kept = net.forward(buffers, images, given)
        ctx.net, ctx.buffers, ctx.num_kept = net, buffers, len(kept)
        ctx.save_for_backward(*kept, *given)
        return features

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        kept, given = ctx.saved_tensors[: ctx.num_kept], ctx.saved_tensors[ctx.num_kept :]
        return None, None, None, *ctx.net.backward(ctx.buffers, kept, gradients[0], given)


def _linear(parameters: State, features: Tensor) -> Tensor:
    # The weights as the left factor: their gradient then has their layout.
    return (parameters["output.weight"] @ features.mT).mT + parameters["output.bias"][:, None]
