"""The results of a training that `run.json` stores: burn-in, curves, warnings."""

from collections.abc import Sequence
from typing import Any

from activebias import ActiveBias
from activebias.internal import has_learnt
from activebias.runs.contents import RunInfo

# A model has memorised if its validation error was lowest in the first half of the training and rose by this
# many points, and its training error is below this share of the lowest validation error.
LEAST_RISE = 2.0
MOST_SHARE = 0.25


def outcome_of(
    bias: ActiveBias,
    train_error: Sequence[float],
    validation_error: Sequence[float],
    warnings: Sequence[str],
    *,
    judges: int = 0,
) -> dict[str, Any]:
    """Return the fields of `RunInfo` that training decides; the curves have one number per epoch.

    `judges` is 0 for a recipe, which has no options for judges and burn-in.
    """
    epochs, end = len(validation_error), bias.burn_in_end
    return {
        "method": bias.method.name,
        "epochs": epochs,
        "burn_in": epochs if end is None else min(end, epochs),
        "window": bias.history.window,
        "explanation": bias.explain() if has_learnt(bias) else "",
        "curves": {"train_error": list(train_error), "validation_error": list(validation_error)},
        "warnings": (
            *warnings,
            *_without_emphasis(bias, validation_error),
            *_without_learning(bias, epochs),
            *(() if warnings else memorised(train_error, validation_error, judges)),  # said already
        ),
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
    reason = "it ends after three epochs without a new best validation error"
    if min(validation_error) == 100:
        reason = "the validation error was 100 % after every epoch"
    return [
        f"The burn-in did not end before the last epoch, so that no instance was emphasised: {reason}. "
        f"Train for more than {plural(epochs, 'epoch', 'epochs')}, or give `--burn-in`."
    ]


def _without_learning(bias: ActiveBias, epochs: int) -> list[str]:
    """Explain that a method that learns had nothing to learn from."""
    end = bias.burn_in_end
    if not bias.method.learns or has_learnt(bias) or end is None or end >= epochs:
        return []
    like = "wtc" if bias.method.order == "scan" else "stc"
    return [
        f"The method {bias.method.name} learnt nothing, because this training has no validation part, and "
        f"emphasised as {like} does. Own data has one, and so has a recipe in `activebias compare --search`."
    ]


def memorised(train_error: Sequence[float], validation_error: Sequence[float], judges: int) -> list[str]:
    """Warn of a model that memorised the labels after its best epoch, and advise what the audit needs.

    >>> memorised([20.0, 9.0, 3.0, 1.0], [25.0, 24.0, 27.0, 28.0], 1)[0][:68]
    'The validation error was lowest after epoch 2 of 4 and has risen by '
    >>> memorised([20.0, 9.0, 3.0, 1.0], [25.0, 24.0, 23.0, 28.0], 1)
    []
    """
    epochs, lowest = len(validation_error), min(validation_error)
    best, rise = list(validation_error).index(lowest) + 1, validation_error[-1] - lowest
    if best > epochs / 2 or rise < LEAST_RISE or train_error[-1] > MOST_SHARE * lowest:
        return []
    advice = f"An audit finds more wrong labels after a shorter training: `--epochs {best}`."
    if judges == 1:
        advice = "An audit finds more wrong labels with `--judges 5`, or after a shorter training: "
        advice += f"`--epochs {best} --burn-in {best // 2}`."
    elif judges > 1:
        advice = "The audit counts only the epochs in which its judges knew the held-out labels best."
    return [
        f"The validation error was lowest after epoch {best} of {epochs} and has risen by {rise:.1f} points, "
        f"while the training error fell to {train_error[-1]:.1f} %: the model memorised labels, wrong labels "
        f"too. {advice}"
    ]


def warnings_of_memorising(info: RunInfo) -> list[str]:
    """Return the stored warnings of a model that memorised labels, early or after its best epoch."""
    return [text for text in info.warnings if "memoris" in text]


def resuming(epoch: int, who: str = "") -> str:
    """Say that a stopped training goes on.

    >>> resuming(5), resuming(2, "Judge 3 of 5")
    ('Resuming after epoch 5.', 'Judge 3 of 5: resuming after epoch 2.')
    """
    text = f"resuming after epoch {epoch}."
    return f"{who}: {text}" if who else text.capitalize()


def error_measure(info: RunInfo) -> str:
    """Return the measure of a run's errors on tagged text; an empty text for other data.

    A run on the user's data names its measure. The lab's recipes of tagging all have entities.
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
