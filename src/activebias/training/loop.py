"""The training loop: one model, epoch by epoch, for recipes and for the user's data."""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from activebias import ActiveBias, MemorisationWarning, NothingRightWarning, TokenIndex
from activebias.internal import IGNORED
from activebias.training.checkpoints import Checkpoint
from activebias.training.entities import EntityScorer
from activebias.training.evaluation import error_of
from activebias.training.examples import Examples
from activebias.training.learning import learn_emphasis, learnt_weights
from activebias.training.observing import Observer
from activebias.training.randomness import derived_generator, derived_seed

# Part of a checkpoint's fingerprint: another version's checkpoint of an observed run is not resumed.
OBSERVED_STATE = 2


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """Data and settings of a training, the same for every method. The examples are on the device.

    `tokens` numbers the words in tagging. With a `scorer` the error is 100 - entity F1. `teacher` holds a
    teacher's probabilities (N, C) of the training examples. `augment` changes the first input of a batch.
    `validation` is a part of the training data that is not trained on.
    """

    train: Examples
    test: Examples
    batch_size: int
    seed: int
    drop_last: bool
    tokens: TokenIndex | None = None
    scorer: EntityScorer | None = None
    learning_rate_at: Callable[[int], float] | None = None
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    teacher: Tensor | None = None
    validation: Examples | None = None

    def instances(self, index: Tensor, width: int) -> Tensor:
        """Return the instances of a batch of examples: the examples themselves, or their words (B, width)."""
        return index if self.tokens is None else self.tokens(index, width)


@final
@dataclass(frozen=True)
class EpochSeen:
    """The state of a run after an epoch, for progress bars; errors in per cent."""

    epoch: int
    train_error: float
    test_error: float
    emphasises: bool


OnEpoch = Callable[[EpochSeen], object]


class Objective(Protocol):
    """Another loss than cross-entropy, another order, or other weights for evaluation: a peer of the lab."""

    @property
    def has_order(self) -> bool:
        """Whether it chooses the instances of an epoch, instead of the bias's sampler."""

    def begin(self, model: nn.Module) -> None:
        """Prepare for a new model."""

    def begin_epoch(self, epoch: int) -> list[Tensor]:
        """Prepare an epoch, and return its batches of instances (none if it has no order)."""

    def losses(self, losses: Tensor, logits: Tensor, instances: Tensor) -> Tensor:
        """Return the loss of every instance, given the cross-entropy."""

    def after_step(self, model: nn.Module) -> None:
        """Look at the model after a step of the optimiser."""

    def evaluating(self, model: nn.Module) -> AbstractContextManager[None]:
        """Give the model the weights to evaluate, until the context ends."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of its state."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load its state."""


@final
class Run:
    """A model in training, with the history of one method, or of several methods that share their burn-in.

    Methods with the same order train identically during the burn-in: all weights are 1, and the order is
    either a scan or uniform draws. Therefore one model is trained for all of them, and every method's own
    `ActiveBias` records the predictions. After the burn-in, every method gets its own `Run`, which loads the
    shared state (`load_state_dict`). Its results equal those of a run that trained the burn-in alone.

    An `observed` run (for a run folder) also sums the class probabilities of every instance after each epoch,
    and keeps p(y|x) of the test examples (`observers`, of the training and the test part). It reports the
    test error to its bias, which ends an automatic burn-in and warns of a model that memorises (`warnings`).
    It keeps the weights of the epoch with the lowest test error (`best_model`), and the curve that a method
    has learnt after every epoch (`emphasis`, empty before).

    An `objective` replaces the loss or the order. If it has an order, the bias records nothing.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        biases: Mapping[str, ActiveBias],
        *,
        observed: bool = False,
        objective: Objective | None = None,
    ) -> None:
        """Train `model` on the device of the task's examples; `biases` has one bias per method name."""
        methods = [bias.method for bias in biases.values()]
        if len({method.order == "scan" for method in methods}) != 1:
            raise ValueError(
                "Expected `methods` to be at least one, all scanning or all drawing, but got "
                f"{[method.name for method in methods]}."
            )
        self.task, self.model, self.optimiser, self.biases = task, model, optimiser, dict(biases)
        self.objective = objective
        if objective is not None:
            objective.begin(model)
        self.device = task.train.targets.device
        self.test_error: list[float] = []
        self.train_error: list[float] = []
        self.validation_error: list[float] = []
        self.seconds = 0.0
        self.warnings: list[str] = []
        self.emphasis: list[list[float]] = []
        self.best_model: dict[str, Any] = {}
        self.observers: tuple[Observer, ...] = ()
        if observed:
            self.observers = tuple(Observer(part, self.bias.num_classes) for part in (task.train, task.test))
            self.observers[1].keep_history(self.bias.history.window)
        num_sequences = None if task.tokens is None else task.tokens.num_sequences
        self._samplers = [
            bias.sampler(batch_size=task.batch_size, num_sequences=num_sequences)
            for bias in self.biases.values()
        ]
        self._augmentation = derived_generator(task.seed, "augmentation")

    @property
    def bias(self) -> ActiveBias:
        """The first method's bias, which weighs the losses."""
        return next(iter(self.biases.values()))

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return len(self.test_error)

    def seen(self) -> EpochSeen:
        """Return the state after the last epoch, for a progress bar."""
        return EpochSeen(self.epoch, self.train_error[-1], self.test_error[-1], self.bias.emphasises)

    def train(
        self, epochs: int, checkpoint: Checkpoint, on_epoch: OnEpoch, on_resume: Callable[[int], object]
    ) -> None:
        """Train up to `epochs`; resume from the checkpoint if it exists, and tell `on_resume` its epoch.

        A checkpoint of a later epoch than `epochs`, from a longer training, is not read.
        """
        if (state := checkpoint.read_run()) is not None and len(state["test_error"]) <= epochs:
            self.load_state_dict(state)
            on_resume(self.epoch)
        train_until(self, epochs, checkpoint, lambda: on_epoch(self.seen()))

    def train_epoch(self) -> None:
        """Train one epoch, and append its errors to the curves."""
        burn_in = self.bias.burn_in
        if len(self.biases) > 1 and isinstance(burn_in, int) and self.epoch >= burn_in:
            raise RuntimeError(f"The burn-in ended after epoch {burn_in}: branch into single methods.")
        started = time.perf_counter()
        with _own_random_state(derived_seed(self.task.seed, f"epoch {self.epoch}"), self.device):
            self._train_epoch()
        see_train, see_test = [each.see for each in self.observers] or (None, None)
        with nullcontext() if self.objective is None else self.objective.evaluating(self.model):
            test_error = error_of(self.model, self.task.test, self.task.scorer, see=see_test)
            self.train_error.append(error_of(self.model, self.task.train, self.task.scorer, see=see_train))
            if self.task.validation is not None:
                self.validation_error.append(error_of(self.model, self.task.validation, self.task.scorer))
        learn_emphasis(
            self.biases.values(), self.model, self.task.train, self.task.validation, self.task.tokens
        )
        if self.observers and test_error < min(self.test_error, default=math.inf):
            self.best_model = copy.deepcopy(self.model.state_dict())
        self.test_error.append(test_error)
        if self.observers:
            self.warnings += _report_error(self.bias, test_error / 100)
            self.emphasis.append(learnt_weights(self.bias))
        self.seconds += time.perf_counter() - started

    def _train_epoch(self) -> None:
        self.model.train()
        if self.task.learning_rate_at is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = self.task.learning_rate_at(self.epoch)
        learns = any(bias.method.learns for bias in self.biases.values())
        with warnings.catch_warnings() if self.observers or learns else nullcontext():
            # Progress shows the error of 100 %, and `run.json` explains a burn-in that did not end.
            if self.observers:
                warnings.simplefilter("ignore", NothingRightWarning)
            if learns:  # our callers tell that there is nothing to learn from
                warnings.filterwarnings("ignore", "Method '.*' has learnt nothing")
            for bias in self.biases.values():
                bias.set_epoch(self.epoch)
        for index in self._batches():
            self._train_batch(index)

    def _batches(self) -> Iterator[Tensor]:
        """Yield the batches of the epoch: the objective's, if it has an order, or the bias's."""
        given = [] if self.objective is None else self.objective.begin_epoch(self.epoch)
        if given:
            yield from given
            return
        for batch in BatchSampler(self._samplers[0], self.task.batch_size, drop_last=self.task.drop_last):
            yield torch.tensor(batch, device=self.device)

    def _train_batch(self, index: Tensor) -> None:
        inputs, targets = self.task.train.batch(index)
        instances = self.task.instances(index, targets.shape[-1])
        losses, prob, mask = self._losses(inputs, targets, index)
        loss = self._weigh(losses, prob, instances, mask) + _regulariser(self.model)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        if self.objective is not None:
            self.objective.after_step(self.model)

    def _weigh(self, losses: Tensor, prob: Tensor, instances: Tensor, mask: Tensor | None) -> Tensor:
        """Return the batch's loss by the first method, and let every method record the probabilities."""
        if self.objective is not None and self.objective.has_order:
            return losses.mean()
        leader, *followers = self.biases.values()
        loss = leader.weigh(losses, prob, instances, mask=mask)
        for bias in followers:
            bias.record(instances, prob, mask=mask)
        return loss

    def _losses(
        self, inputs: tuple[Tensor, ...], targets: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the loss of every instance, its p(y|x), and the mask of real instances (None: all)."""
        if self.task.augment is not None:
            inputs = (self.task.augment(inputs[0], self._augmentation), *inputs[1:])
        logits = self.model(*inputs)
        losses = F.cross_entropy(
            logits.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORED
        ).view(targets.shape)
        prob = losses.detach().neg().exp()
        if self.objective is not None:
            losses = self.objective.losses(losses, logits, index)
        if self.task.teacher is not None:
            # v multiplies both losses. The history holds only the student's probability of the label.
            losses = losses + F.cross_entropy(logits, self.task.teacher[index], reduction="none")
        return losses, prob, targets != IGNORED if targets.dim() == 2 else None

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the curves and of all state that the next epochs depend on."""
        return {
            "model": copy.deepcopy(self.model.state_dict()),
            "optimiser": copy.deepcopy(self.optimiser.state_dict()),
            "biases": {name: bias.state_dict() for name, bias in self.biases.items()},
            "augmentation": self._augmentation.get_state(),
            "test_error": list(self.test_error),
            "train_error": list(self.train_error),
            "validation_error": list(self.validation_error),
            "objective": None if self.objective is None else self.objective.state_dict(),
            "seconds": self.seconds,
            "warnings": list(self.warnings),
            "emphasis": [list(row) for row in self.emphasis],
            "best_model": self.best_model,
            "observers": [observer.state_dict() for observer in self.observers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a `state_dict`, which may come from a run with more methods than this run."""
        if missing := [name for name in self.biases if name not in state["biases"]]:
            raise ValueError(f"The state holds no history of {', '.join(missing)}: train from the beginning.")
        self.model.load_state_dict(state["model"])
        # torch's optimisers keep the given tensors. Without a copy, the methods that branch from a burn-in
        # would share their momentum.
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        for name, bias in self.biases.items():
            bias.load_state_dict(state["biases"][name])
        self._augmentation.set_state(state["augmentation"].cpu())
        self.test_error, self.train_error = list(state["test_error"]), list(state["train_error"])
        self.validation_error = list(state.get("validation_error", ()))
        if self.objective is not None:
            self.objective.load_state_dict(state["objective"])
        self.seconds, self.warnings = state["seconds"], list(state["warnings"])
        self.emphasis = [list(row) for row in state.get("emphasis", ())]
        if self.observers:
            self.best_model = state["best_model"]
        for number, observer in enumerate(self.observers):
            observer.load_state_dict(state["observers"][number])


class Trainable(Protocol):
    """An object that `train_until` trains: a `Run`, or many models side by side."""

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""

    def train_epoch(self) -> None:
        """Train one epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next epochs depend on."""


class Keeper(Protocol):
    """Stores states for `train_until`: a `Checkpoint`, or an object that writes a checkpoint."""

    def due(self) -> bool:
        """Return whether the last write is old enough for another write."""

    def write(self, state: dict[str, Any]) -> None:
        """Write the state."""


def train_until(
    run: Trainable, epochs: int, keeper: Keeper, on_epoch: Callable[[], object], *, last: int | None = None
) -> None:
    """Train up to `epochs`, and write the state after every epoch at which `keeper` is due.

    No state is written after the `last` epoch (default: `epochs`), because nothing is left to resume.
    """
    while run.epoch < epochs:
        run.train_epoch()
        if run.epoch < (last or epochs) and keeper.due():
            keeper.write(run.state_dict())
        on_epoch()


def _regulariser(model: nn.Module) -> Tensor | float:
    """Return the model's regulariser, or 0 if it has none (as most users' models)."""
    regulariser = getattr(model, "regulariser", None)
    return 0.0 if regulariser is None else regulariser()


def _report_error(bias: ActiveBias, error: float) -> list[str]:
    """Report the test error, and return the warnings that the model memorises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bias.report_validation_error(error)
    for warning in caught:
        if not issubclass(warning.category, MemorisationWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return [str(each.message) for each in caught if issubclass(each.category, MemorisationWarning)]


@contextmanager
def _own_random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global random state for one epoch, then restore the caller's state.

    Layers such as `nn.Dropout` in a user's model draw from it. With a seed per epoch, a resumed run draws
    the same numbers.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
