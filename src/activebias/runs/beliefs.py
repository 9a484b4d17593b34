"""Instances and predictions of a trained model, as a run folder stores them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from activebias import ActiveBias
from activebias.internal import IGNORED
from activebias.runs.contents import Instances, Predictions

Positions = np.ndarray[Any, np.dtype[np.int64]]


def instances_of(
    mean: Tensor, targets: Tensor, position: Positions, *, bias: ActiveBias | None = None
) -> Instances:
    """Return one entry per instance of a part: of the training part with its `bias`, else of the validation.

    `mean` (N, C) holds the class probabilities, averaged over the epochs. `targets` are labels (N,), or tags
    (sentences, words). `position` is each example's row in the source. Validation instances have the weight
    0, because no loss has counted them.
    """
    mean, targets = mean.cpu(), targets.cpu()
    weight = torch.zeros(len(mean)) if bias is None else bias.weights().cpu().float()
    label, sentence, word = targets, None, None
    if targets.dim() == 2:
        counted = targets != IGNORED
        label = targets[counted]
        rows, word = (each.numpy() for each in counted.nonzero(as_tuple=True))
        sentence = position = position[rows]
    return Instances(
        label=label.numpy(),
        believed=mean.argmax(1).numpy(),
        believed_prob=mean.amax(1).numpy(),
        label_prob=mean.gather(1, label[:, None]).squeeze(1).numpy(),
        rival_prob=mean.scatter(1, label[:, None], 0.0).amax(1).numpy(),
        weight=weight.numpy(),
        position=position,
        sentence=sentence,
        word=word,
        validates=np.full(len(mean), bias is None),
    )


def joined(parts: Sequence[Instances]) -> Instances:
    """Return the instances of all parts, one part after the other."""
    arrays = [part.arrays() for part in parts]
    return Instances(**{name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]})


def predictions_of(outputs: Iterable[tuple[Tensor, Tensor, Tensor]], position: Positions) -> Predictions:
    """Return the model's predictions on the validation part, in the order of the source.

    `outputs` yields batches of (index, logits, targets).
    """
    found = []
    for index, logits, targets in outputs:
        counted = (targets != IGNORED).cpu()
        rows = index.cpu().view(-1, *[1] * (targets.dim() - 1)).expand_as(counted)[counted]
        best, choice = (each.cpu()[counted] for each in logits.softmax(-1).max(-1))
        found.append((rows, targets.cpu()[counted], choice, best))
    rows, label, predicted, probability = (torch.cat(each) for each in zip(*found, strict=True))
    order = rows.argsort(stable=True)
    return Predictions(
        position=position[rows[order].numpy()],
        label=label[order].numpy(),
        predicted=predicted[order].numpy(),
        probability=probability[order].numpy(),
    )
