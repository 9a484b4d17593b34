"""Follow the validation error: end an automatic burn-in, and warn of a model that memorises."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

from activebias import checks
from activebias.distributed import Ranks
from activebias.history import PredictionHistory

# The paper trains "until validation performance starts to saturate". One epoch without a new best error is
# often chance: the error of 500 examples at 5 % has a standard error of 1 %, more than a late epoch gains.
# Three in a row seldom are, and cost no more than two epochs of emphasis. It is no result of any method.
PATIENCE = 3
# An error of 100 % does not count: a model that gets nothing right has not begun to learn. An entity F1 is 0
# for two or three epochs on all of WNUT-17, and for some twenty on a hundred of its sentences. A model that
# never learns must not prolong the burn-in in silence, so after this many such epochs there is a warning.
NOTHING_RIGHT_EPOCHS = 10

# The paper's failure case is "100 % training accuracy within a few epochs". The bound is above 0 because real
# training sets have some wrong labels, and a right answer among many classes may have p ≤ ½.
MEMORISED = 0.01
FEW_EPOCHS = 10
# A validation error within this much of the training error is that of an easy task, not of memorising.
GAP = 0.05


class MemorisationWarning(UserWarning):
    """The model knows its training set by heart: emphasis on uncertainty would go to outliers."""


class NothingRightWarning(UserWarning):
    """The model got nothing right in ten epochs: an automatic burn-in goes on, and nothing is emphasised."""


def has_saturated(errors: Sequence[float]) -> bool:
    """Return whether the last three errors (PATIENCE), one an epoch, brought no new best one.

    An error of 1 does not count: where nothing is right, learning has not begun.

    >>> has_saturated([0.5, 0.3, 0.31, 0.3]), has_saturated([0.5, 0.3, 0.31, 0.3, 0.32])
    (False, True)
    >>> has_saturated([1.0, 1.0, 1.0, 1.0, 0.9])
    False
    """
    counted = [error for error in errors if error < 1]
    return len(counted) > PATIENCE and min(counted[-PATIENCE:]) >= min(counted[:-PATIENCE])


def memorises(training_error: float, validation_error: float) -> bool:
    """Return whether a model has the training set by heart, but not the task.

    >>> memorises(0.004, 0.3), memorises(0.004, 0.02), memorises(0.1, 0.3)
    (True, False, False)
    """
    return training_error <= MEMORISED and validation_error - training_error >= GAP


def training_error(history: PredictionHistory) -> float:
    """Return the share of instances whose latest p(y|x) is at most ½; waits for the device.

    With two classes that is the error of the model as it trained. With more, a right answer may have less
    than ½, so the error is a little lower.
    """
    wrong = sum(int((history.latest(index) <= 0.5).sum()) for index in history.chunks())
    return wrong / history.num_instances


class Validation:
    """Follows the validation error of the epochs; holds when the burn-in ends and whether it has warned."""

    def __init__(self, burn_in: int | Literal["auto"]) -> None:
        """Take a number of epochs, or find it out."""
        if isinstance(burn_in, str) and burn_in != "auto":
            raise ValueError(f"Expected `burn_in` to be a number of epochs or 'auto', but got {burn_in!r}.")
        self.burn_in: int | Literal["auto"] = (
            "auto" if isinstance(burn_in, str) else checks.integer("burn_in", burn_in, at_least=0)
        )
        self.burn_in_end: int | None = None if self.burn_in == "auto" else self.burn_in
        self._errors: list[float] = []  # of the epochs that are over, the same on all ranks
        self._latest: float | None = None  # of the epoch under way, this rank's own
        self._num_unreported = 0  # epochs that ended without an error
        self._has_warned = False

    def burn_in_is_over(self, epoch: int) -> bool:
        """Return whether instances are emphasised in `epoch`."""
        return self.burn_in_end is not None and epoch >= self.burn_in_end

    def warn_if_late(self, first_epoch: int) -> None:
        """Warn of a first epoch after the burn-in: emphasis would follow histories that are empty."""
        if self.burn_in_end and first_epoch >= self.burn_in_end:
            warnings.warn(
                f"The first epoch is {first_epoch}, and the burn-in ends before epoch {self.burn_in_end}: "
                "instances are emphasised, but nothing is known of them. Epochs count from 0; after a "
                "resume, call `load` before `set_epoch`.",
                stacklevel=3,
            )

    def report(self, error: Any, *, epoch: int, history: PredictionHistory) -> None:
        """Note the error of the epoch under way, and warn once of a model that memorises early."""
        value = float(error)
        if not 0 <= value <= 1:
            raise ValueError(
                "Expected `error` to be the share of wrong predictions, from 0 to 1, but got "
                f"{value:g}{': divide per cent by 100' if math.isfinite(value) else ''}."
            )
        self._latest = value
        early = epoch < FEW_EPOCHS or not self.burn_in_is_over(epoch)
        if early and not self._has_warned and value >= GAP and memorises(training_error(history), value):
            self._has_warned = True
            warnings.warn(
                f"The model knows its training set by heart after epoch {epoch}, but its validation error is "
                f"{100 * value:.1f} %. What is still uncertain is then mostly outliers, and emphasising them "
                "overfits: use a simpler or more regularised model, or emphasise easy instances (method 'we' "
                "or 'se').",
                MemorisationWarning,
                stacklevel=3,
            )

    def end_epoch(self, next_epoch: int, ranks: Ranks) -> None:
        """Decide whether an automatic burn-in is over; the ranks take the mean of their errors."""
        latest, self._latest = self._latest, None
        if self.burn_in_end is not None:
            return
        error = ranks.mean(latest)
        if error is not None:
            self._errors.append(error)
            if has_saturated(self._errors):
                self.burn_in_end = next_epoch
            elif len(self._errors) == NOTHING_RIGHT_EPOCHS and min(self._errors) == 1:
                warnings.warn(
                    f"The validation error has been 100 % for {NOTHING_RIGHT_EPOCHS} epochs. Until the model "
                    "gets something right, `burn_in='auto'` goes on and nothing is emphasised: check that it "
                    "learns, or give `burn_in` as a number.",
                    NothingRightWarning,
                    stacklevel=3,
                )
            return
        self._num_unreported += 1
        if not self._errors and self._num_unreported >= PATIENCE:
            raise RuntimeError(
                f"`burn_in='auto'` follows the validation error, but none came in {self._num_unreported} "
                "epochs: call `bias.report_validation_error(error)` at the end of every epoch, or give "
                "`burn_in` as a number."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later decisions depend on."""
        return {
            "burn_in_end": self.burn_in_end,
            "errors": list(self._errors),
            "latest": self._latest,
            "num_unreported": self._num_unreported,
            "has_warned": self._has_warned,
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if `state` does not fit."""
        if state["burn_in_end"] is not None:
            checks.integer("burn_in_end", state["burn_in_end"], at_least=0)
        checks.integer("num_unreported", state["num_unreported"], at_least=0)
        errors = [*state["errors"], *([] if state["latest"] is None else [state["latest"]])]
        if not all(isinstance(error, float) and 0 <= error <= 1 for error in errors):
            raise ValueError("The stored validation errors are no shares from 0 to 1.")
        if not isinstance(state["has_warned"], bool):
            raise TypeError(f"Expected `has_warned` to be a bool, but got {state['has_warned']!r}.")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        self.burn_in_end, self._errors = state["burn_in_end"], list(state["errors"])
        self._latest, self._num_unreported = state["latest"], state["num_unreported"]
        self._has_warned = bool(state["has_warned"])
