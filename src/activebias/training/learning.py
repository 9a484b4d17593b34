"""The method `auto` in our training loop: from the examples of a task to the losses that it learns from."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activebias import ActiveBias, TokenIndex
from activebias.internal import IGNORED, Sources, evaluating, has_learnt, learn_from, whole_parameters
from activebias.training.examples import Examples


def learnt_weights(bias: ActiveBias) -> list[float]:
    """Return the weights of the learnt curve at its knots; empty if nothing is learnt yet."""
    return [round(weight, 4) for weight in bias.curve()[1].tolist()] if has_learnt(bias) else []


def learn_emphasis(
    biases: Iterable[ActiveBias],
    model: nn.Module,
    train: Examples,
    validation: Examples | None,
    tokens: TokenIndex | None,
) -> None:
    """After an epoch, let the methods that learn do so from the validation part, if there is one."""
    learning = [bias for bias in biases if bias.method.learns]
    if validation is None or not learning:
        return

    def losses_of(examples: Examples, index: Tensor) -> Tensor:
        inputs, targets = examples.batch(index)
        logits, flat = model(*inputs).flatten(0, -2), targets.flatten()
        return F.cross_entropy(logits, flat, reduction="none", ignore_index=IGNORED).view(targets.shape)

    def of_training(index: Tensor) -> tuple[Tensor, Tensor]:
        index = index.to(train.targets.device)
        losses = losses_of(train, index)
        return losses, index if tokens is None else tokens(index, losses.shape[-1])

    def of_validation(index: Tensor) -> tuple[Tensor, Tensor]:
        index = index.to(validation.targets.device)
        losses = losses_of(validation, index)
        targets = validation.targets[index]
        targets = targets if targets.dim() == 1 else targets[:, : losses.shape[1]]
        return losses, torch.where(targets == IGNORED, -1, targets)

    sources = Sources(
        whole_parameters(model),
        of_training,
        len(train),
        of_validation,
        len(validation),
        tokens=tokens,
    )
    with evaluating(model):
        for bias in learning:
            learn_from(bias, sources)
