"""What a training decided by itself, as `run.json` says it."""

from collections.abc import Sequence
from typing import Any

from activebias import ActiveBias


def outcome_of(
    bias: ActiveBias,
    train_error: Sequence[float],
    validation_error: Sequence[float],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Return the fields of `RunInfo` that the training decided; the curves have one number per epoch."""
    epochs, end = len(validation_error), bias.burn_in_end
    return {
        "method": bias.method.name,
        "epochs": epochs,
        "burn_in": epochs if end is None else min(end, epochs),
        "window": bias.history.window,
        "curves": {"train_error": list(train_error), "validation_error": list(validation_error)},
        "warnings": (*warnings, *_without_emphasis(bias, validation_error)),
    }


def _without_emphasis(bias: ActiveBias, validation_error: Sequence[float]) -> list[str]:
    """Say why a method that emphasises has not: its burn-in took all the epochs."""
    method, end, epochs = bias.method, bias.burn_in_end, len(validation_error)
    if "emphasis" not in (method.order, method.weights) or (end is not None and end < epochs):
        return []
    if end is not None:
        return [
            f"A burn-in of {end} epochs leaves none of the training's {epochs}, so that nothing was "
            f"emphasised. Train for more than {end} epochs, or give a smaller `--burn-in`."
        ]
    reason = "had not yet gone three epochs without a new best"
    if min(validation_error) == 100:
        reason = "was 100 % after every epoch"
    return [
        f"The burn-in never ended, so that nothing was emphasised: the validation error {reason}. "
        f"Train for more than {epochs} epochs, or give `--burn-in`."
    ]
