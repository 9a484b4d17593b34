"""Several models that judge the same labels: each holds out other examples, and their beliefs are averaged.

The model of the run is the first judge, and holds out the validation part. Every further judge holds out
another part of the training examples, and trains on all others, the validation part included. So every
example has one judge that did not train on it. In the average this judge counts as much as all others
together: it cannot have memorised the label, but it is only one model.

Not every epoch counts. A model that is still learning judges best at the end, a model that memorises judges
best earlier. Held-out labels tell the two apart: an epoch counts if the mean logarithm of their probabilities
is not clearly below that of the best epoch.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from activebias import PredictionHistory
from activebias.internal import IGNORED, sort_visits
from activebias.own.data import OwnData
from activebias.runs.auditing import LEAST_PROBABILITY
from activebias.training.examples import Examples, joined
from activebias.training.loop import Run

# With two judges the second would train on the validation part alone.
LEAST_JUDGES = 3
# An epoch is clearly worse if it is this many standard errors below the best epoch.
CLEARLY = 2.0


class Judged(NamedTuple):
    """The averages over the judges and over the epochs that count, the training instances first.

    `beliefs` are class probabilities (N, C), `history` holds p(y|x) after each of these `epochs`, which are
    counted from 1.
    """

    beliefs: Tensor
    history: PredictionHistory
    epochs: tuple[int, ...]


def check_judges(judges: int, data: OwnData) -> None:
    """Raise unless the judges can divide the training examples among them."""
    most = len(np.unique(copies_of(data.train))) + 1
    if judges != 1 and not LEAST_JUDGES <= judges <= most:
        raise ValueError(
            f"Expected `judges` to be 1, or from {LEAST_JUDGES} to {most}, but got {judges}: every judge "
            "needs examples to hold out and enough others to train on, and 5 is a good number."
        )


def average_judges(
    data: OwnData, first: Run, judges: int, train: Callable[[OwnData, int], Run], seed: int
) -> Judged:
    """Train the judges after the first, one after the other, and average all of them.

    `train` builds and trains a model on the parts of the data that it gets; the second argument is the
    judge's number. Every run has kept the class probabilities of both its parts after every epoch.
    """
    examples = joined(data.train, data.validation)
    average = _Average(examples, judges)
    average.add(first, np.arange(len(examples)) >= len(data.train))
    for number, fold in enumerate(fold_masks(data.train, judges - 1, seed), start=1):
        held_out = np.concatenate([fold, np.zeros(len(data.validation), dtype=np.bool_)])
        chosen = torch.from_numpy(held_out)
        part = replace(data, train=examples.select(~chosen), validation=examples.select(chosen))
        average.add(train(part, number), held_out)
    return average.result()


@final
class _Average:
    """The class probabilities of all instances after every epoch, averaged over the judges."""

    def __init__(self, examples: Examples, judges: int) -> None:
        sizes = torch.ones(len(examples), dtype=torch.int64) if examples.lengths is None else examples.lengths
        self._sizes = sizes.numpy()
        self._label = examples.targets[examples.targets != IGNORED]
        # Of the judges that trained on an instance, and of the judge that did not.
        self._shares = (0.5 / (judges - 1), 0.5)
        self._epochs: list[Tensor] = []
        self._held_out: list[Tensor] = []

    def add(self, run: Run, held_out: NDArray[np.bool_]) -> None:
        """Add a judge; `held_out` tells the examples that it did not train on."""
        is_outside = torch.from_numpy(np.repeat(held_out, self._sizes))
        seen = [observer.epochs or [] for observer in run.observers]
        if not self._epochs:
            self._epochs = [torch.zeros(len(self._label), run.bias.num_classes) for _ in seen[0]]
            self._held_out = [torch.zeros(len(self._label)) for _ in seen[0]]
        outside_label = self._label[is_outside][:, None]
        for epoch, (inside, outside) in enumerate(zip(*seen, strict=True)):
            self._epochs[epoch][~is_outside] += self._shares[0] * inside.float()
            self._epochs[epoch][is_outside] += self._shares[1] * outside.float()
            self._held_out[epoch][is_outside] = outside.float().gather(1, outside_label).squeeze(1)

    def result(self) -> Judged:
        """Return the averages over the epochs that count."""
        counts = epochs_that_count(torch.stack(self._held_out).numpy())
        chosen = [self._epochs[epoch] for epoch in counts]
        beliefs = sum(chosen[1:], chosen[0]) / len(chosen)
        history = PredictionHistory(len(beliefs), initial=1 / beliefs.shape[1])
        index = np.arange(len(beliefs))
        for each in chosen:
            prob = each.gather(1, self._label[:, None]).squeeze(1).clamp(max=1.0)
            history.append(sort_visits(index, prob.numpy()))
        return Judged(beliefs, history, tuple(epoch + 1 for epoch in counts))


def epochs_that_count(held_out: NDArray[np.floating]) -> list[int]:
    """Return the epochs, from 0, whose held-out labels are not clearly less probable than in the best epoch.

    `held_out` are probabilities of labels that were not trained on, (epochs, N).

    >>> epochs_that_count(np.array([[0.1, 0.2, 0.1], [0.6, 0.5, 0.7], [0.6, 0.6, 0.6]]))
    [1, 2]
    """
    logarithms = np.log(np.clip(held_out, LEAST_PROBABILITY, 1.0))
    below = logarithms[logarithms.mean(1).argmax()] - logarithms
    error = below.std(1) / below.shape[1] ** 0.5
    return np.flatnonzero(below.mean(1) <= CLEARLY * error).tolist()


def fold_masks(examples: Examples, folds: int, seed: int) -> list[NDArray[np.bool_]]:
    """Return a mask of the examples of every fold; copies of an input are in the same fold.

    Every class is spread over the folds. Sentences have no class: they are spread at random.
    """
    _, first, group = np.unique(copies_of(examples), return_index=True, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(first))
    if not examples.is_tagging:
        order = order[np.argsort(examples.targets.numpy()[first[order]], kind="stable")]
    fold = np.empty(len(first), dtype=np.int64)
    fold[order] = np.arange(len(first)) % folds
    return [fold[group] == number for number in range(folds)]


def copies_of(examples: Examples) -> NDArray[np.bytes_]:
    """Return a digest of every example's inputs, which copies share."""
    arrays = [np.ascontiguousarray(tensor.numpy()) for tensor in examples.inputs]
    rows = (b"".join(array[k].tobytes() for array in arrays) for k in range(len(examples)))
    return np.array([hashlib.sha256(row).digest() for row in rows])
