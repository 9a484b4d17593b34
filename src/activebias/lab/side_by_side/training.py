"""Trains trials × methods side by side: K models in one loop, each as if it were trained alone."""

import time
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from activebias.internal import IGNORED, rows_of_state
from activebias.lab.experiment.recipe import Optimiser
from activebias.lab.side_by_side.batches import EpochNumbers, TrialData
from activebias.lab.side_by_side.evaluation import errors_of
from activebias.lab.side_by_side.images import cropped
from activebias.lab.side_by_side.lanes import Lane
from activebias.lab.side_by_side.learning import StackedCurves
from activebias.lab.side_by_side.memory import StackedMemory
from activebias.lab.side_by_side.momentum import HalfPrecisionSGD
from activebias.lab.side_by_side.peers import StackedPeers
from activebias.lab.side_by_side.rates import LaneRates
from activebias.lab.side_by_side.replay import Replayed
from activebias.lab.side_by_side.stacking import Stack
from activebias.training.randomness import derived_generator

# On a GPU, the sentences of an iteration are padded to a multiple of this: every width needs a graph.
_WIDTH_STEP = 16


@final
class SideBySide:
    """K models in training: one lane for every (trial, method, setting), all scanning or all drawing.

    A burn-in is a run of the lanes (trial, scan, setting) or (trial, uni, setting), because all methods are
    equal in it. `branch` then copies these lanes for the methods.
    """

    def __init__(
        self,
        trials: TrialData,
        lanes: Sequence[Lane],
        stack: Stack,
        memory: StackedMemory,
        *,
        emphasises: bool,
    ) -> None:
        """Use the given parts; `begin` and `branch` make them."""
        self.trials, self.lanes = trials, tuple(lanes)
        self.stack, self.memory = stack, memory
        self.emphasises = emphasises
        self.device, recipe = trials.device, trials.recipe
        self.rates = LaneRates.of([lane.setting.rate for lane in lanes], stack)
        self.optimiser = _optimiser(recipe.optimiser, stack, self.rates)
        self.peers = StackedPeers.of(lanes, trials, stack)
        self.test_error: list[Tensor] = []
        self.train_error: list[Tensor] = []
        self.validation_error: list[Tensor] = []
        self.seconds = 0.0
        self.scans = lanes[0].method.order == "scan"
        self._trial = torch.tensor([trials.seeds.index(lane.seed) for lane in lanes], device=self.device)
        self.curves = StackedCurves.of(lanes, trials, stack, memory, self._trial)
        # An iteration reads its number and the epoch's random numbers, always at the same addresses.
        self._iteration = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._numbers: EpochNumbers | None = None
        self._replayed: dict[int | None, Replayed] = {}

    @staticmethod
    def begin(trials: TrialData, lanes: Sequence[Lane], *, emphasises: bool) -> "SideBySide":
        """Begin at epoch 0, with the initial weights of trials that are trained alone."""
        recipe, dataset = trials.recipe, trials.dataset
        models = {seed: recipe.model(dataset, derived_generator(seed, "weights")) for seed in trials.seeds}
        stack = Stack.of(
            [models[lane.seed] for lane in lanes],
            trials.device,
            half_precision=recipe.in_half_precision(trials.device),
        )
        memory = StackedMemory(
            [lane.method for lane in lanes],
            trials.num_instances,
            num_classes=dataset.num_classes,
            window=recipe.window,
            device=trials.device,
        )
        return SideBySide(trials, lanes, stack, memory, emphasises=emphasises)

    def branch(self, lanes: Sequence[Lane]) -> "SideBySide":
        """Return a run of lanes after the burn-in; each continues from its trial and setting in this run."""
        if self.lanes == tuple(lanes):
            parent = torch.arange(len(lanes), device=self.device)
        else:
            parents = {lane.in_burn_in: position for position, lane in enumerate(self.lanes)}
            parent = torch.tensor([parents[lane.in_burn_in] for lane in lanes], device=self.device)
        new = SideBySide(
            self.trials,
            lanes,
            self.stack.select(parent),
            self.memory.select(parent, [lane.method for lane in lanes]),
            emphasises=True,
        )
        for own, other in zip(self.stack.parameters.values(), new.stack.parameters.values(), strict=True):
            new.optimiser.state[other] = {
                name: value[parent] if value.shape == own.shape else value.clone()
                for name, value in self.optimiser.state[own].items()
            }
        on_host = parent.cpu()
        new.test_error = [errors[on_host] for errors in self.test_error]
        new.train_error = [errors[on_host] for errors in self.train_error]
        new.validation_error = [errors[on_host] for errors in self.validation_error]
        if self.peers is not None and new.peers is not None:
            states = self.peers.state_dict()
            new.peers.load_state_dict([states[position] for position in on_host.tolist()])
        new.seconds = self.seconds
        if new.curves is not None and self.epoch > 0:
            new.curves.learn(self.epoch - 1)
        return new

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return len(self.test_error)

    def train_epoch(self) -> None:
        """Train all lanes for an epoch, and append their errors to the curves."""
        started = time.perf_counter()
        self._prepare_epoch()
        self._train_epoch()
        with nullcontext() if self.peers is None else self.peers.evaluating():
            training = self.trials.recipe.has_train_error(self.epoch)
            errors = errors_of(self.stack, self.trials, self._trial, training=training)
        self.test_error.append(errors.test)
        self.train_error.append(errors.train)
        if errors.validation is not None:
            self.validation_error.append(errors.validation)
        if self.curves is not None and self.emphasises:
            self.curves.learn(self.epoch - 1)
        self.seconds += (time.perf_counter() - started) / len(self.lanes)

    def _train_epoch(self) -> None:
        widths = self._numbers.widths if self._numbers else None
        for iteration in range(self.trials.num_iterations):
            width = None if widths is None else self._padded(widths[iteration])
            if width not in self._replayed:
                # A weak reference, so that a finished run frees its RAM at once for the next run.
                iterate = partial(SideBySide._iterate, weakref.proxy(self), width)
                # A user's statistic may use operations that a graph cannot record.
                records = not self.memory.has_own_statistic
                self._replayed[width] = Replayed(iterate, self.device, records=records)
            self._replayed[width]()

    def _prepare_epoch(self) -> None:
        before = self.memory.history.layout
        self.memory.make_room(emphasises=self.emphasises)
        if self.memory.history.layout != before:
            self._replayed.clear()  # the graphs hold the address of the old storage
        draws = self.peers is not None and self.peers.need_chance
        numbers = self.trials.numbers(self.epoch, scans=self.scans, chance=draws)
        if self._numbers is None:
            self._numbers = numbers
        else:
            self._numbers = self._numbers.overwritten_by(numbers)
        self._iteration.zero_()
        if self.peers is not None:
            self.peers.begin_epoch(self.epoch)
        rate = self.trials.recipe.optimiser.learning_rate_at(self.epoch)
        for group in self.optimiser.param_groups:
            if not isinstance(group["lr"], Tensor):
                group["lr"] = rate
            elif self.rates is not None and group["lr"].dim():
                group["lr"].copy_(rate * self.rates.factors)
            else:
                group["lr"].fill_(rate)

    def _padded(self, width: int) -> int:
        if self.device.type != "cuda":
            return width
        longest = self.trials.targets.shape[-1]
        return min(-(-width // _WIDTH_STEP) * _WIDTH_STEP, longest)

    def _iterate(self, width: int | None) -> None:
        """Train one iteration of all lanes (Algorithm 1), without waiting for the device."""
        index = self._draw()
        inputs, targets, instances = self._gather(index, width)
        mask = None if self.trials.tokens is None else targets != IGNORED
        losses, prob = self._losses(inputs, targets, index)
        weighted = losses
        if self.emphasises:
            known = instances if mask is None else torch.where(mask, instances, 0)
            weighted = losses * self.memory.weights(known)
        if mask is None:
            means = weighted.mean(-1)
        else:
            means = (weighted * mask).sum((1, 2)) / mask.sum((1, 2)).clamp(min=1)
        self._step(means.sum())
        if self.peers is not None and self.peers.unrecorded is not None:
            mask = ~self.peers.unrecorded
        self.memory.record(instances, prob, mask)
        self._iteration.add_(1)

    def _step(self, loss: Tensor) -> None:
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        if self.rates is None:
            self.optimiser.step()
        else:
            self.rates.step(self.optimiser)
        if self.peers is not None:
            self.peers.after_step()

    def _draw(self) -> Tensor:
        """Return the examples of the iteration, (K, B)."""
        numbers = self._numbers
        assert numbers is not None
        order = self._now(numbers.order)
        if self.peers is not None:
            order = self.peers.ordered(order, self._iteration)
        if self.scans or numbers.uniform is None or not self.emphasises:
            return order
        return self.memory.draw(self._now(numbers.uniform), order)

    def _now(self, numbers: Tensor) -> Tensor:
        """Return the iteration's numbers (S, T, …), for every lane the numbers of its trial."""
        return numbers.index_select(1, self._iteration).squeeze(1).index_select(0, self._trial)

    def _gather(self, index: Tensor, width: int | None) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        trials = self.trials
        targets = trials.targets[self._trial[:, None], index]
        if self._numbers is not None and self._numbers.shifts is not None:
            inputs: tuple[Tensor, ...] = (cropped(trials.inputs[0], index, self._now(self._numbers.shifts)),)
        else:
            inputs = trials.batch_inputs(index, self._trial)
        if width is None or trials.tokens is None:
            return inputs, targets, index
        inputs = tuple(tensor[:, :, :width] for tensor in inputs)
        return inputs, targets[:, :, :width], trials.tokens(index, width)

    def _losses(self, inputs: tuple[Tensor, ...], targets: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of every instance and its p(y|x), (K, …)."""
        logits = self.stack.logits(inputs)
        flat = logits.flatten(0, -2)
        losses = F.cross_entropy(flat, targets.flatten(), reduction="none", ignore_index=IGNORED)
        prob = losses.detach().neg().exp()
        if self.trials.teacher is not None:
            losses = losses + F.cross_entropy(flat, self.trials.teacher[index.flatten()], reduction="none")
        losses = losses.view(targets.shape)
        if self.peers is not None:
            chance = self._numbers.chance if self._numbers else None
            losses = self.peers.losses(losses, logits, index, None if chance is None else self._now(chance))
        return losses, prob.view(targets.shape)

    def state_dict(self) -> dict[str, Any]:
        """Return the curves and all state that the next epochs depend on."""
        return {
            "stack": self.stack.state_dict(),
            "optimiser": [dict(self.optimiser.state[value]) for value in self.stack.parameters.values()],
            "memory": self.memory.state_dict(),
            "trials": self.trials.state_dict(),
            "test_error": list(self.test_error),
            "train_error": list(self.train_error),
            "validation_error": list(self.validation_error),
            "peers": [] if self.peers is None else self.peers.state_dict(),
            "curves": None if self.curves is None else self.curves.state_dict(),
            "seconds": self.seconds,
            "emphasises": self.emphasises,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a `state_dict` of the same lanes; raise before any change if it is of other lanes."""
        self._check_fit(state)
        self.stack.load_state_dict(state["stack"])
        for value, known in zip(self.stack.parameters.values(), state["optimiser"], strict=True):
            self.optimiser.state[value] = {
                name: tensor.to(self.device, copy=True) for name, tensor in known.items()
            }
        self.memory.load_state_dict(state["memory"])
        self.test_error, self.train_error = list(state["test_error"]), list(state["train_error"])
        self.validation_error = list(state.get("validation_error", ()))
        if self.peers is not None:
            self.peers.load_state_dict(state["peers"])
        if self.curves is not None:
            self.curves.load_state_dict(state["curves"])
        self.seconds = state["seconds"]
        self.trials.load_state_dict(state["trials"])
        self._replayed.clear()  # graphs hold the addresses of the optimiser's old state

    def _check_fit(self, state: dict[str, Any]) -> None:
        """Raise unless the tensors have the shapes of this run's tensors; missing entries raise KeyError."""
        pairs: list[tuple[Sequence[int], Sequence[int]]] = []
        for kind, values in self.stack.state_dict().items():
            pairs += [(value.shape, state["stack"][kind][name].shape) for name, value in values.items()]
        for value, known in zip(self.stack.parameters.values(), state["optimiser"], strict=True):
            # Shared state (Adam's count of steps) has no dimensions.
            pairs += [(value.shape, tensor.shape) for tensor in known.values() if tensor.dim()]
        num_rows = self.memory.num_models * self.memory.num_instances
        pairs += [
            (self.memory.scores.shape, state["memory"]["scores"].shape),
            ((num_rows,), state["memory"]["history"]["count"].shape),
            ((len(self.trials.seeds),), (len(state["trials"]),)),
            *(((len(self.lanes),), errors.shape) for errors in (*state["test_error"], *state["train_error"])),
        ]
        if self.memory.factors is not None:
            pairs.append((self.memory.factors.shape, state["memory"]["factors"].shape))
        for expected, found in pairs:
            if tuple(expected) != tuple(found):
                raise ValueError(f"expected shape {tuple(expected)}, but got {tuple(found)}")


def _optimiser(settings: Optimiser, stack: Stack, rates: LaneRates | None) -> torch.optim.Optimizer:
    """Return the optimiser of all models; on a GPU its rate is a tensor, which every replay reads."""
    groups = stack.groups_by_decay()
    if not stack.half_precision:
        return settings.build(groups, capturable=stack.device.type == "cuda")
    rate = torch.tensor(settings.learning_rate, device=stack.device)
    if rates is not None:
        rate = rate * rates.factors
    return HalfPrecisionSGD(groups, stack.copies, rate=rate, momentum=settings.momentum)


def part_of_state(state: dict[str, Any], lanes: Sequence[int], trials: Sequence[int]) -> dict[str, Any]:
    """Return the state of some lanes of a run, and of their trials, by position."""
    num_models, num_instances = state["memory"]["scores"].shape

    def of_lanes(value: Tensor) -> Tensor:
        # Shared state (Adam's count of steps) has no dimensions.
        return value[list(lanes)] if value.dim() else value

    rows = of_lanes(torch.arange(num_models * num_instances).view(num_models, num_instances)).flatten()
    return {
        **state,
        "stack": {
            kind: {name: of_lanes(value) for name, value in values.items()}
            for kind, values in state["stack"].items()
        },
        "optimiser": [
            {name: of_lanes(value) for name, value in known.items()} for known in state["optimiser"]
        ],
        "memory": {
            "history": rows_of_state(state["memory"]["history"], rows),
            **{
                name: of_lanes(value)
                for name, value in state["memory"].items()
                if name in ("scores", "curves", "factors")
            },
        },
        "curves": state.get("curves") and {name: of_lanes(value) for name, value in state["curves"].items()},
        "trials": [state["trials"][position] for position in trials],
        "test_error": [of_lanes(errors) for errors in state["test_error"]],
        "train_error": [of_lanes(errors) for errors in state["train_error"]],
        "validation_error": [of_lanes(errors) for errors in state.get("validation_error", ())],
        "peers": [state["peers"][position] for position in lanes] if state.get("peers") else [],
    }
