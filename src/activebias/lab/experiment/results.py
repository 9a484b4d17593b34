"""The result of one trial and method: its errors by epoch, its configuration, and its origin."""

import hashlib
import importlib.metadata
import json
import math
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple, final

from activebias import __version__

METRICS: Final = ("best_test_error", "last10_test_error", "best_train_error")

_RECIPE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Errors are fractions of counts: six decimals distinguish all of them and keep the files small.
_DECIMALS = 6


class ResultKey(NamedTuple):
    """The identity of a result: a key is computed only once."""

    recipe: str
    config_hash: str
    method: str
    seed: int
    rule: str | None = None


def best_error(curve: Sequence[float]) -> float:
    """Return the protocol's best error: the minimum over epochs.

    >>> best_error([5.0, 3.0, 4.0])
    3.0
    """
    return min(curve)


def last10_error(curve: Sequence[float]) -> float:
    """Return the protocol's final error: the mean over the last 10 epochs, or over all epochs if fewer.

    >>> last10_error([90.0] + [4.0] * 5 + [2.0] * 5)
    3.0
    >>> last10_error([5.0, 3.0])
    4.0
    """
    tail = curve[-10:]
    return math.fsum(tail) / len(tail)


def config_hash(config: Mapping[str, Any]) -> str:
    """Return a short hash of a configuration, independent of its notation.

    The order of keys, tuple or list, and 1 or 1.0 make no difference. A key that is None counts as absent:
    a new option (None: as before) keeps the results of earlier versions valid.

    >>> config_hash({"noise": 0, "size": (2, 3)}) == config_hash({"size": [2, 3], "noise": 0.0, "new": None})
    True
    >>> config_hash({"noise": 0.1}) == config_hash({"noise": 0.2})
    False
    """
    text = json.dumps(_canonical(config, "config"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def current_versions() -> dict[str, str]:
    """Return the versions of Python and packages, for a result."""
    return {
        "activebias": __version__,
        "torch": importlib.metadata.version("torch"),
        "numpy": importlib.metadata.version("numpy"),
        "python": platform.python_version(),
    }


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@final
@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """One method trained in one trial: its errors in per cent, one per epoch, and their origin.

    `config` holds the settings that affect the numbers, and no others: it is part of the key. Other facts
    (such as the number of models side by side) are in `details`. `rule` describes how a user's method
    emphasises, or the settings of a peer. It is part of the key too; the paper's methods have no rule.
    `validation_error` has the errors on a held-out part of the training data, if there is one.

    >>> result = TrialResult(recipe="digits", method="wpv", seed=0, config={"noise": 0.2}, device="cpu",
    ...                      seconds=1.5, test_error=[9.0, 4.0, 5.0], train_error=[8.0, 3.0, 2.0])
    >>> result.best_test_error, result.last10_test_error, result.best_train_error
    (4.0, 6.0, 2.0)
    """

    recipe: str
    method: str
    seed: int
    config: Mapping[str, Any] = field(hash=False)
    test_error: Sequence[float]
    train_error: Sequence[float]
    device: str
    seconds: float
    versions: Mapping[str, str] = field(default_factory=current_versions, hash=False)
    time: str = field(default_factory=_now)
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rule: str | None = None
    validation_error: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Raise now, while the run is known, if the result could not be stored or compared later."""
        check_recipe_name(self.recipe)
        if not isinstance(self.method, str) or not self.method:
            raise ValueError(
                f"Expected `method` to be a method's name such as 'wpv', but got {self.method!r}"
            )
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"Expected `seed` to be an int of at least 0, but got {self.seed!r}")
        object.__setattr__(self, "test_error", _curve(self.test_error, "test_error"))
        object.__setattr__(self, "train_error", _curve(self.train_error, "train_error"))
        if self.validation_error is not None:
            object.__setattr__(self, "validation_error", _curve(self.validation_error, "validation_error"))
        for name, value in (("device", self.device), ("time", self.time), ("rule", self.rule or "")):
            if not isinstance(value, str):
                raise ValueError(f"Expected `{name}` to be a string, but got {value!r}")
        for name, mapping in (
            ("config", self.config),
            ("versions", self.versions),
            ("details", self.details),
        ):
            if not isinstance(mapping, Mapping):
                raise ValueError(f"Expected `{name}` to be a dict, but got {mapping!r}")
            _canonical(mapping, name)
            # A copy as JSON: later changes by the caller and tuples make no difference.
            object.__setattr__(self, name, json.loads(json.dumps(mapping, default=dict)))
        if not isinstance(self.seconds, (int, float)) or not math.isfinite(self.seconds) or self.seconds < 0:
            raise ValueError(
                f"Expected `seconds` to be a finite number of at least 0, but got {self.seconds!r}"
            )
        object.__setattr__(self, "seconds", round(float(self.seconds), 3))

    @property
    def best_test_error(self) -> float:
        """The minimum over epochs of the test error, in per cent."""
        return best_error(self.test_error)

    @property
    def last10_test_error(self) -> float:
        """The mean test error over the last 10 epochs, in per cent."""
        return last10_error(self.test_error)

    @property
    def best_train_error(self) -> float:
        """The minimum over epochs of the error on the training labels (with noise), in per cent."""
        return best_error(self.train_error)

    @property
    def validation_curve(self) -> Sequence[float]:
        """The errors on the validation part by epoch; raise if there is no validation part."""
        if self.validation_error is None:
            raise ValueError(
                f"Expected results with a validation part, but {self.recipe} has none: train with a recipe "
                "whose `validation` is set."
            )
        return self.validation_error

    @property
    def best_validation_error(self) -> float:
        """The minimum over epochs of the error on the validation part, in per cent."""
        return best_error(self.validation_curve)

    @property
    def chosen_epoch(self) -> int:
        """The epoch with the lowest validation error, counted from 1; of equal epochs the last.

        Small validation parts have many equal epochs. In the first of them the methods may still be the same.

        >>> TrialResult(recipe="digits", method="wpv", seed=0, config={}, device="cpu", seconds=1.5,
        ...             test_error=[9.0, 4.0, 5.0], train_error=[8.0, 3.0, 2.0],
        ...             validation_error=[7.0, 6.0, 6.0]).chosen_epoch
        3
        """
        curve = self.validation_curve
        return max(epoch for epoch, error in enumerate(curve, 1) if error == best_error(curve))

    @property
    def chosen_test_error(self) -> float:
        """The test error at the epoch that the validation error chose, in per cent."""
        return self.test_error[self.chosen_epoch - 1]

    @property
    def key(self) -> ResultKey:
        """The identity of this result in the store."""
        return ResultKey(self.recipe, config_hash(self.config), self.method, self.seed, self.rule)

    def metric(self, name: str) -> float:
        """Return one of the protocol's three metrics by its name."""
        if name not in METRICS:
            raise ValueError(f"Expected `metric` to be one of {', '.join(METRICS)}, but got {name!r}")
        return float(getattr(self, name))

    def to_json(self) -> str:
        """Return the result as one line of JSON, without a newline."""
        line: dict[str, Any] = {"recipe": self.recipe, "method": self.method, "seed": self.seed}
        line |= {} if self.rule is None else {"rule": self.rule}
        line |= {name: round(self.metric(name), _DECIMALS) for name in METRICS}
        line |= {"config": self.config, "device": self.device, "seconds": self.seconds}
        line |= {"versions": self.versions, "time": self.time, "details": self.details}
        line["curves"] = {"test_error": self.test_error, "train_error": self.train_error}
        if self.validation_error is not None:
            line["curves"]["validation_error"] = self.validation_error
        return json.dumps(line, allow_nan=False, ensure_ascii=False)

    @staticmethod
    def from_json(text: str | bytes) -> "TrialResult":
        """Read a line of `to_json`; raise ValueError with the reason for any other line.

        >>> result = TrialResult(recipe="digits", method="wpv", seed=0, config={}, device="cpu", seconds=1.5,
        ...                      test_error=[9.0, 4.0], train_error=[8.0, 3.0])
        >>> TrialResult.from_json(result.to_json()) == result
        True
        """
        line = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(line, dict):
            raise ValueError("expected a JSON object")
        copied = ("recipe", "method", "seed", "config", "versions", "device", "seconds", "time")
        if missing := [name for name in (*copied, *METRICS, "curves") if name not in line]:
            raise ValueError(f"no field {', '.join(missing)}")
        curves = line["curves"]
        if not isinstance(curves, dict) or not {"test_error", "train_error"} <= curves.keys():
            raise ValueError("Expected `curves` to be an object with test_error and train_error")
        result = TrialResult(
            **{name: line[name] for name in copied},
            test_error=curves["test_error"],
            train_error=curves["train_error"],
            details=line.get("details", {}),
            rule=line.get("rule"),
            validation_error=curves.get("validation_error"),
        )
        for name in METRICS:
            # Metrics edited by hand, which contradict the curves, must not reach a table.
            if not isinstance(line[name], (int, float)) or abs(line[name] - result.metric(name)) > 1e-5:
                raise ValueError(
                    f"{name} is {line[name]!r}, but the curves give {result.metric(name):.{_DECIMALS}f}"
                )
        return result


def of_latest_rules(results: Iterable[TrialResult]) -> list[TrialResult]:
    """Return the results of each method under its latest rule, because a table has one line per name.

    Results of old versions have no rule, which counts as another rule.
    """
    results = list(results)
    latest = {result.method: result.rule for result in results}
    return [result for result in results if result.rule == latest[result.method]]


def check_recipe_name(recipe: object) -> str:
    """Return a recipe's name, which becomes a file name: it must not lead out of the folder."""
    if not isinstance(recipe, str) or not _RECIPE_NAME.fullmatch(recipe):
        raise ValueError(
            "Expected `recipe` to be letters, digits, '-', '_' and '.', such as 'mnist-fc', but got "
            f"{recipe!r}"
        )
    return recipe


def _curve(values: object, name: str) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"Expected `{name}` to be a sequence of numbers, but got {values!r}")
    curve = tuple(round(float(value), _DECIMALS) for value in values)
    if not curve:
        raise ValueError(f"Expected `{name}` to hold one error per epoch, but it is empty")
    for epoch, value in enumerate(curve):
        if not 0 <= value <= 100:  # nan too
            raise ValueError(
                f"Expected `{name}` to hold finite errors in per cent, 0 to 100, but got {value} at epoch "
                f"{epoch}; a model that diverged still has an error: count its wrong predictions"
            )
    return curve


def _canonical(value: object, name: str) -> Any:
    """Return JSON values in a canonical form for hashing; raise with the place of any other value."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(
                f"Expected `{name}` to be a finite number, but got {value}; use None for 'not set'"
            )
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        if bad := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"Expected `{name}` to have strings as keys, but got {bad[0]!r}")
        return {key: _canonical(item, f"{name}.{key}") for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_canonical(item, f"{name}[{position}]") for position, item in enumerate(value)]
    raise TypeError(
        f"Expected `{name}` to be None, bool, int, float, str, list or dict, but got {type(value).__name__}; "
        "convert it before storing"
    )


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number that can be compared")
