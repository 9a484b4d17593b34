"""The results of a training that `run.json` stores: burn-in, curves, warnings."""

from collections.abc import Sequence
from typing import Any

from activebias import ActiveBias
from activebias.runs.contents import RunInfo


def outcome_of(
    bias: ActiveBias,
    train_error: Sequence[float],
    validation_error: Sequence[float],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Return the fields of `RunInfo` that training decides; the curves have one number per epoch."""
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
    """Explain why no instance was emphasised: the burn-in lasted until the end of the training."""
    method, end, epochs = bias.method, bias.burn_in_end, len(validation_error)
    if "emphasis" not in (method.order, method.weights) or (end is not None and end < epochs):
        return []
    if end is not None:
        return [
            f"The burn-in ({plural(end, 'epoch', 'epochs')}) covers the whole training "
            f"({plural(epochs, 'epoch', 'epochs')}), so that no instance was emphasised. Train for more than "
            f"{plural(end, 'epoch', 'epochs')}, or give a smaller `--burn-in`."
        ]
    reason = "never went three epochs without a new best value"
    if min(validation_error) == 100:
        reason = "was 100 % after every epoch"
    return [
        f"The burn-in never ended, so that no instance was emphasised: the validation error {reason}. "
        f"Train for more than {plural(epochs, 'epoch', 'epochs')}, or give `--burn-in`."
    ]


def error_measure(info: RunInfo) -> str:
    """Return what the errors of a run on tagged text measure; an empty text for other data.

    A run on the user's data says it. The lab's recipes of tagging all have entities.
    """
    if info.kind != "tagging":
        return ""
    return str(info.model.get("error", "100 - entity F1"))


def plural(number: int, one: str, many: str) -> str:
    """Return the number with its noun.

    >>> plural(1, "label", "labels"), plural(1200, "label", "labels")
    ('1 label', '1,200 labels')
    """
    return f"{number:,} {one if number == 1 else many}"
