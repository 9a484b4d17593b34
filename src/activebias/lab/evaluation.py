"""The error of a model on a set of examples, in per cent."""

import torch
from torch import Tensor, nn

from activebias.lab.data import IGNORE
from activebias.lab.entities import EntityScorer
from activebias.lab.prepared import Part
from activebias.lab.recipe import Metric

_BATCH_SIZE = 1000


def predict(model: nn.Module, part: Part) -> Tensor:
    """Return the logits of all examples, in evaluation mode; the model's mode is put back afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return torch.cat(
                [model(*(tensor[chunk] for tensor in part.inputs)) for chunk in _chunks(len(part))]
            )
    finally:
        model.train(training)


def error_of(model: nn.Module, part: Part, metric: Metric, class_names: tuple[str, ...]) -> float:
    """Return the share of wrong predictions, or 100 - micro entity F1 for the metric "entity F1"."""
    if metric == "error":
        counted = part.targets != IGNORE
        wrong = (predict(model, part).argmax(-1) != part.targets) & counted
        return 100 * int(wrong.sum()) / max(int(counted.sum()), 1)
    score = EntityScorer(class_names).score(part.targets.cpu().numpy(), _tags(model, part).cpu().numpy())
    return 100 * (1 - score.f1)


def _tags(model: nn.Module, part: Part) -> Tensor:
    """Return the predicted tags (S, L), sentences of like length together: padding costs as much as words."""
    if part.lengths is None:
        return predict(model, part).argmax(-1)
    tags = torch.zeros_like(part.targets)
    for index in torch.split(part.lengths.argsort(), _BATCH_SIZE):
        longest = int(part.lengths[index].max())
        piece = Part(tuple(tensor[index, :longest] for tensor in part.inputs), part.targets[index], None)
        tags[index, :longest] = predict(model, piece).argmax(-1)
    return tags


def _chunks(number: int) -> list[slice]:
    return [slice(start, start + _BATCH_SIZE) for start in range(0, number, _BATCH_SIZE)]
