"""The errors of K models at once, in per cent."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from activebias.internal import IGNORED
from activebias.lab.experiment.splitting import Parts
from activebias.lab.side_by_side.batches import TrialData
from activebias.lab.side_by_side.stacking import Stack
from activebias.training.entities import EntityScorer
from activebias.training.examples import Examples

# Examples × models of one forward pass, to limit its RAM. The output of a convolution is many times as large
# as an image. A small net needs a large pass, or the GPU waits for the host.
_MOST_AT_ONCE = {"cpu": 1_000, "cuda": 400_000}
_MOST_CONVOLVED = 100_000


class _Part(NamedTuple):
    """Examples for evaluation; `targets` are the same for all trials, or (S, …) per trial."""

    inputs: tuple[Tensor, ...]
    targets: Tensor
    lengths: Tensor | None


_ErrorOf = Callable[[Stack, _Part, Tensor | None], Tensor]


class Errors(NamedTuple):
    """The errors of K models, (K,) each; `validation` is None without a validation part.

    Training errors that were not wanted are NaN.
    """

    test: Tensor
    train: Tensor
    validation: Tensor | None


def errors_of(stack: Stack, trials: TrialData, trial: Tensor, *, training: bool = True) -> Errors:
    """Return the errors of every model; `trial` (K,) says whose labels it has.

    Without `training` the training set is not evaluated.
    """
    if trials.whole is not None and trials.parts is not None:
        return _errors_in_splits(stack, trials, trials.whole, trials.parts, trial)
    error: _ErrorOf = _wrong
    if trials.recipe.metric != "error":
        error = partial(_entity_errors, scorer=EntityScorer(trials.dataset.class_names))
    test, held = trials.test, trials.validation
    of_test = error(stack, _Part(test.inputs, test.targets, test.lengths), None)
    of_train = torch.full_like(of_test, torch.nan)
    if training:
        of_train = error(stack, _Part(trials.inputs, trials.targets, trials.lengths), trial)
    if held is None:
        return Errors(of_test, of_train, None)
    part = _Part(held.inputs, trials.validation_targets, held.lengths)
    return Errors(of_test, of_train, error(stack, part, trial))


@torch.no_grad()
def _errors_in_splits(
    stack: Stack, trials: TrialData, whole: Examples, parts: Parts, trial: Tensor
) -> Errors:
    """Return the errors of models that are trained on different splits of one data set.

    Every model predicts all examples, because then all models share their inputs.
    """
    chunks = _chunks(stack, len(whole))
    predicted = torch.cat(
        [
            stack.predict([tensor[start : start + chunks.step] for tensor in whole.inputs]).argmax(-1)
            for start in chunks
        ],
        dim=1,
    )

    def error(rows: Tensor, targets: Tensor) -> Tensor:
        wrong = predicted.gather(1, rows[trial]) != targets[trial]
        return (100 * wrong.sum(1).double() / wrong.shape[1]).cpu()

    return Errors(
        error(parts.test, whole.targets[parts.test]),
        error(parts.train, trials.targets),
        error(parts.validation, whole.targets[parts.validation]),
    )


def _chunks(stack: Stack, number: int) -> range:
    most = _MOST_AT_ONCE[stack.device.type]
    if stack.convolves:
        most = min(most, _MOST_CONVOLVED)
    return range(0, number, max(1, most // stack.size))


@torch.no_grad()
def _wrong(stack: Stack, part: _Part, trial: Tensor | None) -> Tensor:
    number = len(part.inputs[0])
    chunks = _chunks(stack, number)
    wrong = torch.zeros(stack.size, dtype=torch.int64, device=stack.device)
    counted = (part.targets != IGNORED).flatten(0 if trial is None else 1).sum(-1)
    for start in chunks:
        chunk = slice(start, start + chunks.step)
        predicted = stack.predict([tensor[chunk] for tensor in part.inputs]).argmax(-1)
        targets = part.targets[chunk] if trial is None else part.targets[:, chunk][trial]
        wrong += ((predicted != targets) & (targets != IGNORED)).flatten(1).sum(1)
    counted = counted if trial is None else counted[trial]
    return (100 * wrong.double() / counted.clamp(min=1)).cpu()


@torch.no_grad()
def _entity_errors(stack: Stack, part: _Part, trial: Tensor | None, scorer: EntityScorer) -> Tensor:
    if part.lengths is None:
        raise ValueError("Tagging needs `lengths`, the number of words of each sentence.")
    lengths = part.lengths.cpu()
    shape = (stack.size, *part.targets.shape[-2:])
    tags = torch.zeros(shape, dtype=torch.int16, device=stack.device)
    # Sentences of similar length together, because padding costs as much as words.
    for index in torch.split(lengths.argsort(), _chunks(stack, len(lengths)).step):
        longest = int(lengths[index].max())
        place = index.to(stack.device)
        inputs = [tensor[place, :longest] for tensor in part.inputs]
        tags[:, place, :longest] = stack.predict(inputs).argmax(-1).short()
    true = part.targets if trial is None else part.targets[trial]
    scores = scorer.score_many(true, tags)
    return torch.tensor([100 * (1 - score.f1) for score in scores], dtype=torch.float64)
