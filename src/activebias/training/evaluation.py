"""The error of a model on a set of examples."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from activebias.internal import IGNORED
from activebias.training.entities import EntityScorer
from activebias.training.examples import Examples

_AT_ONCE = 1000


class Outputs(NamedTuple):
    """A model's outputs for some examples: their positions (B,), logits (B, …, C) and targets (B, …)."""

    positions: Tensor
    logits: Tensor
    targets: Tensor


@torch.no_grad()
def evaluate(model: nn.Module, examples: Examples) -> Iterator[Outputs]:
    """Yield the outputs for all examples in evaluation mode, then restore the model's mode."""
    order = torch.arange(len(examples), device=examples.targets.device)
    if examples.is_tagging and examples.lengths is not None:
        order = examples.lengths.argsort()  # similar lengths need little padding, which costs time
    training = model.training
    model.eval()
    try:
        for index in torch.split(order, _AT_ONCE):
            inputs, targets = examples.batch(index)
            yield Outputs(index, model(*inputs), targets)
    finally:
        model.train(training)


def predict(model: nn.Module, examples: Examples) -> Tensor:
    """Return the logits of all examples in the order of the examples (not for tagging)."""
    return torch.cat([outputs.logits for outputs in evaluate(model, examples)])


def error_of(
    model: nn.Module,
    examples: Examples,
    scorer: EntityScorer | None = None,
    *,
    see: Callable[[Outputs], None] | None = None,
) -> float:
    """Return the percentage of wrong predictions; with a scorer, 100 - micro entity F1.

    `see` is called with every batch of outputs.
    """
    predicted = torch.zeros_like(examples.targets)
    for outputs in evaluate(model, examples):
        choice = outputs.logits.argmax(-1)
        if examples.is_tagging:
            predicted[outputs.positions, : choice.shape[1]] = choice
        else:
            predicted[outputs.positions] = choice
        if see is not None:
            see(outputs)
    if scorer is not None:
        return 100 * (1 - scorer.score(examples.targets.cpu().numpy(), predicted.cpu().numpy()).f1)
    counted = examples.targets != IGNORED
    return 100 * int(((predicted != examples.targets) & counted).sum()) / max(int(counted.sum()), 1)
