"""The training loop: one model, epoch by epoch, for every recipe and method."""

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from activebias import ActiveBias, Method
from activebias.lab.data import IGNORE
from activebias.lab.evaluation import error_of
from activebias.lab.models import augment
from activebias.lab.prepared import Prepared
from activebias.lab.randomness import derived_generator, derived_seed
from activebias.lab.recipe import Recipe
from activebias.lab.rules import run_name


@final
class Run:
    """A model in training, with the memory of one method, or of several that share their burn-in.

    Methods with the same order do the same thing during the burn-in: all weights are 1, and the order is
    either a scan or uniform draws. So one model is trained for all of them, and every method's own
    `ActiveBias` records what it predicts. A branch of one method is a new `Run` that takes over the state
    (`load_state_dict`) and goes on alone, exactly as if it had trained the burn-in by itself.
    """

    def __init__(self, recipe: Recipe, data: Prepared, methods: Sequence[Method], *, seed: int) -> None:
        """Build model, optimiser and memories from the trial's seed."""
        scans = {method.order == "scan" for method in methods}
        if len(scans) != 1:
            raise ValueError(
                "Expected `methods` to be at least one, all scanning or all drawing, but got "
                f"{[method.name for method in methods]}."
            )
        self.recipe, self.data, self.seed = recipe, data, seed
        self.model = recipe.model(data.dataset, derived_generator(seed, "weights")).to(data.device)
        self.optimiser = recipe.optimiser.build(self.model.parameters())
        # By name and rule: a burn-in that was stopped may be of other methods under the same names.
        self.biases = {run_name(method): self._bias(method) for method in methods}
        tokens = data.tokens
        self._samplers = [
            bias.sampler(
                batch_size=recipe.batch_size, num_sequences=None if tokens is None else tokens.num_sequences
            )
            for bias in self.biases.values()
        ]
        self.test_error: list[float] = []
        self.train_error: list[float] = []
        self.seconds = 0.0
        self._augmentation = derived_generator(seed, "augmentation")

    def _bias(self, method: Method) -> ActiveBias:
        return ActiveBias(
            method,
            num_instances=self.data.num_instances,
            num_classes=self.data.dataset.num_classes,
            burn_in=self.recipe.burn_in,
            window=self.recipe.window,
            device=self.data.device,
            seed=derived_seed(self.seed, "order"),
        )

    @property
    def epoch(self) -> int:
        """The number of epochs that are done."""
        return len(self.test_error)

    def train_epoch(self) -> None:
        """Train one epoch of floor(|D| / batch) iterations, and note the errors after it."""
        if self.epoch >= self.recipe.burn_in and len(self.biases) > 1:
            raise RuntimeError(
                f"The burn-in is over after {self.recipe.burn_in} epochs: branch into single methods."
            )
        started = time.perf_counter()
        with _own_random_state(derived_seed(self.seed, f"epoch {self.epoch}"), self.data.device):
            self._train_epoch()
        for part, curve in ((self.data.test, self.test_error), (self.data.train, self.train_error)):
            curve.append(error_of(self.model, part, self.recipe.metric, self.data.dataset.class_names))
        self.seconds += time.perf_counter() - started

    def _train_epoch(self) -> None:
        self.model.train()
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.optimiser.learning_rate_at(self.epoch)
        for bias in self.biases.values():
            bias.set_epoch(self.epoch)
        leader, *followers = self.biases.values()
        for batch in BatchSampler(self._samplers[0], self.recipe.batch_size, drop_last=True):
            index = torch.tensor(batch, device=self.data.device)
            inputs, targets = self.data.train.batch(index)
            instances = self.data.instances(index, targets.shape[-1])
            losses, prob, mask = self._losses(inputs, targets, index)
            loss = leader.weigh(losses, prob, instances, mask=mask) + _regulariser(self.model)
            for bias in followers:
                bias.record(instances, prob, mask=mask)
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            self.optimiser.step()

    def _losses(
        self, inputs: tuple[Tensor, ...], targets: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the loss of every instance, its p(y|x), and which ones count (None: all)."""
        if self.recipe.augmentation == "crop and flip":
            inputs = (augment(inputs[0], self._augmentation), *inputs[1:])
        logits = self.model(*inputs)
        losses = F.cross_entropy(
            logits.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORE
        ).view(targets.shape)
        prob = losses.detach().neg().exp()
        if self.data.teacher is not None:
            # v multiplies both parts; the history is the student's probability of the label alone.
            losses = losses + F.cross_entropy(logits, self.data.teacher[index], reduction="none")
        return losses, prob, targets != IGNORE if targets.dim() == 2 else None

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything that the following epochs depend on, and the curves so far."""
        return {
            "model": copy.deepcopy(self.model.state_dict()),
            "optimiser": copy.deepcopy(self.optimiser.state_dict()),
            "biases": {name: bias.state_dict() for name, bias in self.biases.items()},
            "augmentation": self._augmentation.get_state(),
            "test_error": list(self.test_error),
            "train_error": list(self.train_error),
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` stood; the state may be of a run with more methods than this one."""
        if missing := [name for name in self.biases if name not in state["biases"]]:
            raise ValueError(f"The state holds no memory of {', '.join(missing)}: train from the beginning.")
        self.model.load_state_dict(state["model"])
        # torch's optimisers keep the tensors they are given: without a copy the first branch of a burn-in
        # would train on the momentum of the others.
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        for name, bias in self.biases.items():
            bias.load_state_dict(state["biases"][name])
        self._augmentation.set_state(state["augmentation"].cpu())
        self.test_error, self.train_error = list(state["test_error"]), list(state["train_error"])
        self.seconds = state["seconds"]


def _regulariser(model: nn.Module) -> Tensor | float:
    """Return the model's own regulariser; a model without one (a user's own) has none."""
    regulariser = getattr(model, "regulariser", None)
    return 0.0 if regulariser is None else regulariser()


@contextmanager
def _own_random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Give layers that use torch's global random state (`nn.Dropout` in a user's model) one of their own.

    The caller's state is put back. A seed for every epoch lets a run that was stopped go on the same.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
