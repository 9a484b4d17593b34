"""One model, trained by one method into a run folder: data of one's own, or a recipe of the lab.

After every epoch the model looks at the training set once more, without training. The mean of these class
probabilities over the epochs is what it believed about each instance, before it learnt wrong labels by heart.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from activebias import ActiveBias, MemorisationWarning, NothingRightWarning, TokenIndex
from activebias.lab.checkpoints import Checkpoint
from activebias.lab.data import IGNORE, Examples
from activebias.lab.entities import EntityScorer
from activebias.lab.prepared import Part
from activebias.lab.randomness import derived_generator, derived_seed
from activebias.own.data import OwnData
from activebias.own.models import build_model
from activebias.report.folder import Instances, Predictions

BurnIn: TypeAlias = int | Literal["auto"]

_EVALUATED_AT_ONCE = 500


@final
@dataclass(frozen=True)
class EpochSeen:
    """What a progress bar shows after an epoch; errors in per cent."""

    epoch: int
    train_error: float
    validation_error: float
    emphasises: bool


class Learner(Protocol):
    """What `train` trains, epoch by epoch."""

    model: nn.Module
    bias: ActiveBias
    beliefs: "Beliefs"
    curves: dict[str, list[float]]
    warnings: list[str]

    def train_epoch(self) -> None:
        """Train an epoch, and add what comes out to `curves`, `beliefs` and `warnings`."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the following epochs depend on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` stood."""


@final
class Beliefs:
    """The class probabilities of every training instance, summed over the epochs."""

    def __init__(self, num_instances: int, num_classes: int, device: torch.device) -> None:
        """Begin at 0."""
        self.sum = torch.zeros(num_instances, num_classes, device=device)
        self.num_epochs = 0

    def add(self, model: nn.Module, part: Part, instances: Callable[[Tensor, int], Tensor]) -> float:
        """Add what the model says now, and return the share of labels that it gets wrong."""
        wrong = 0
        for index, prob, targets in evaluate(model, part):
            counted = targets != IGNORE
            self.sum[instances(index, targets.shape[-1])[counted]] += prob[counted]
            wrong += int(((prob.argmax(-1) != targets) & counted).sum())
        self.num_epochs += 1
        return wrong / len(self.sum)

    def mean(self) -> Tensor:
        """Return the mean over the epochs, on the CPU."""
        return (self.sum / max(self.num_epochs, 1)).cpu()


@torch.no_grad()
def evaluate(model: nn.Module, part: Part) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (index, class probabilities, targets) of all examples, some at a time, in evaluation mode."""
    order = torch.arange(len(part), device=part.targets.device)
    if part.lengths is not None:
        order = part.lengths.argsort()  # padding costs as much as words
    training = model.training
    model.eval()
    for index in torch.split(order, _EVALUATED_AT_ONCE):
        inputs, targets = part.batch(index)
        yield index, model(*inputs).softmax(-1), targets
    model.train(training)


@final
class OwnLearner:
    """A small model in training on data of one's own, with Adam; "auto" ends the burn-in by itself."""

    def __init__(
        self, data: OwnData, *, method: str, burn_in: BurnIn, seed: int, device: torch.device
    ) -> None:
        """Build model, optimiser and bias from the seed."""
        self.data, self.seed, self.device = data, seed, device
        self.tokens: TokenIndex | None = data.tokens
        self.train_part, self.validation_part = _part(data.train, device), _part(data.validation, device)
        self.model = build_model(data.model, derived_generator(seed, "weights")).to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=data.learning_rate)
        num_instances = len(data.train) if self.tokens is None else self.tokens.num_instances
        self.bias = ActiveBias(
            method,
            num_instances=num_instances,
            num_classes=len(data.class_names),
            burn_in=burn_in,
            window=data.window,
            device=device,
            seed=derived_seed(seed, "order"),
        )
        self.batch_size = batch_size_for(len(data.train), most=128 if self.tokens is None else 16)
        self._sampler = self.bias.sampler(
            batch_size=self.batch_size, num_sequences=None if self.tokens is None else len(data.train)
        )
        self.beliefs = Beliefs(num_instances, len(data.class_names), device)
        self.curves: dict[str, list[float]] = {"train_error": [], "validation_error": []}
        self.warnings: list[str] = []
        self._scorer = _scorer(data)

    def train_epoch(self) -> None:
        """Train an epoch; report the validation error to the bias."""
        with warnings.catch_warnings():
            # The progress shows it, and the run says in the end whether it stayed so.
            warnings.simplefilter("ignore", NothingRightWarning)
            self.bias.set_epoch(len(self.curves["train_error"]))
        self.model.train()
        for batch in BatchSampler(self._sampler, self.batch_size, drop_last=False):
            index = torch.tensor(batch, device=self.device)
            inputs, targets = self.train_part.batch(index)
            instances = self._instances(index, targets.shape[-1])
            loss = self.bias.loss(self.model(*inputs), targets, instances, ignore_index=IGNORE)
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            self.optimiser.step()
        train_error = self.beliefs.add(self.model, self.train_part, self._instances)
        error = self._validation_error()
        self.curves["train_error"].append(100 * train_error)
        self.curves["validation_error"].append(100 * error)
        self.warnings += report_error(self.bias, error)

    def _instances(self, index: Tensor, width: int) -> Tensor:
        return index if self.tokens is None else self.tokens(index, width)

    def _validation_error(self) -> float:
        """Return the share of wrong examples; of entities, where the tags are entities, 1 - F1."""
        wrong = number = 0
        predicted = torch.zeros_like(self.validation_part.targets)
        for index, prob, targets in evaluate(self.model, self.validation_part):
            choice, counted = prob.argmax(-1), targets != IGNORE
            wrong += int(((choice != targets) & counted).sum())
            number += int(counted.sum())
            if self._scorer is not None:
                predicted[index, : targets.shape[-1]] = choice
        if self._scorer is None:
            return wrong / number
        true = self.validation_part.targets.cpu().numpy()
        return 1 - self._scorer.score(true, predicted.cpu().numpy()).f1

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the following epochs depend on."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "bias": self.bias.state_dict(),
            "beliefs": self.beliefs.sum,
            "curves": self.curves,
            "warnings": self.warnings,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` stood."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.bias.load_state_dict(state["bias"])
        self.beliefs.sum.copy_(state["beliefs"])
        self.curves, self.warnings = state["curves"], list(state["warnings"])
        self.beliefs.num_epochs = len(self.curves["train_error"])


OnEpoch = Callable[[EpochSeen], object]


def train(
    learner: Learner, epochs: int, checkpoint: Checkpoint, *, fingerprint: str, on_epoch: OnEpoch
) -> None:
    """Train up to `epochs`; a run that was stopped goes on where its checkpoint stood.

    A checkpoint with another `fingerprint` is of other data or settings, and is not used.
    """
    state = checkpoint.read()
    if state is not None and state.pop("fingerprint", None) == fingerprint:
        learner.load_state_dict(state)
    while len(learner.curves["train_error"]) < epochs:
        learner.train_epoch()
        done = len(learner.curves["train_error"])
        if done < epochs and checkpoint.due():
            checkpoint.write(learner.state_dict() | {"fingerprint": fingerprint})
        train_error, validation_error = (curve[-1] for curve in learner.curves.values())
        on_epoch(EpochSeen(done, train_error, validation_error, learner.bias.emphasises))


def report_error(bias: ActiveBias, error: float) -> list[str]:
    """Report the validation error, and return what the guard says to it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bias.report_validation_error(error)
    for warning in caught:
        if not issubclass(warning.category, MemorisationWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return [str(each.message) for each in caught if issubclass(each.category, MemorisationWarning)]


def instances_of(
    learner: Learner,
    part: Part,
    tokens: TokenIndex | None,
    position: np.ndarray[Any, np.dtype[np.int64]],
) -> Instances:
    """Return what the folder says about every training instance."""
    mean = learner.beliefs.mean()
    targets = part.targets.cpu()
    sentence = word = None
    if tokens is None:
        label = targets
    else:
        counted = targets != IGNORE
        label = targets[counted]
        rows, words = (each.numpy() for each in counted.nonzero(as_tuple=True))
        sentence, word, position = position[rows], words, position[rows]
    believed = mean.argmax(1)
    return Instances(
        label=label.numpy(),
        believed=believed.numpy(),
        believed_prob=mean.amax(1).numpy(),
        label_prob=mean.gather(1, label[:, None]).squeeze(1).numpy(),
        rival_prob=mean.scatter(1, label[:, None], 0.0).amax(1).numpy(),
        weight=learner.bias.weights().cpu().float().numpy(),
        position=position,
        sentence=sentence,
        word=word,
    )


def predictions_of(
    model: nn.Module, part: Part, position: np.ndarray[Any, np.dtype[np.int64]]
) -> Predictions:
    """Return what the model says about the validation part, in the order of its source."""
    found: list[Sequence[Tensor]] = []
    for index, prob, targets in evaluate(model, part):
        counted = (targets != IGNORE).cpu()
        rows = index.cpu().view(-1, *[1] * (targets.dim() - 1)).expand_as(counted)[counted]
        best, choice = (each.cpu()[counted] for each in prob.max(-1))
        found.append((rows, targets.cpu()[counted], choice, best))
    rows, label, predicted, probability = (torch.cat(each) for each in zip(*found, strict=True))
    order = rows.argsort(stable=True)
    return Predictions(
        position=position[rows[order].numpy()],
        label=label[order].numpy(),
        predicted=predicted[order].numpy(),
        probability=probability[order].numpy(),
    )


def batch_size_for(num_examples: int, *, most: int = 128) -> int:
    """Return a power of two from 8 to `most` that leaves at least 20 steps an epoch where it can.

    Sentences are many instances each: 16 of them make a batch.

    >>> [batch_size_for(number) for number in (100, 1000, 60000)]
    [8, 32, 128]
    """
    return min(max(1 << (num_examples // 20).bit_length() >> 1, 8), most)


def checkpoint_beside(path: Path) -> Checkpoint:
    """Return the checkpoint of the run that is to be written to `path`."""
    return Checkpoint(path.parent / f".{path.name}.checkpoint.pt", interval=5.0)


def _part(examples: Examples, device: torch.device) -> Part:
    lengths = None if examples.lengths is None else examples.lengths.to(device)
    return Part(tuple(each.to(device) for each in examples.inputs), examples.targets.to(device), lengths)


def _scorer(data: OwnData) -> EntityScorer | None:
    """Return what counts entities, or None where the tags are no entities (parts of speech)."""
    if data.kind != "tagging":
        return None
    try:
        return EntityScorer(data.class_names)
    except ValueError:
        return None
