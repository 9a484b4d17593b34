"""A recipe: one frozen object with all settings that affect the numbers of an experiment."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import torch
from torch import nn

from activebias.lab.data import NOISE_KINDS, Dataset
from activebias.lab.experiment.splitting import Split

ModelFactory = Callable[[Dataset, torch.Generator], nn.Module]
"""Builds the model of a trial for a data set; the generator draws the initial weights."""

Metric = Literal["error", "entity F1"]
Augmentation = Literal["crop and flip"]


@final
@dataclass(frozen=True)
class Optimiser:
    """An optimiser and its learning rate, multiplied by `factor` at every milestone or every `every` epochs.

    >>> Optimiser("sgd", 1.0, factor=0.5, milestones=(80, 100)).learning_rate_at(100)
    0.25
    >>> Optimiser("sgd", 1.0, factor=0.5, every=5).learning_rate_at(10)
    0.25
    """

    kind: Literal["sgd", "adam", "rmsprop"]
    learning_rate: float
    momentum: float = 0.0
    factor: float = 1.0
    milestones: tuple[int, ...] = ()
    every: int | None = None

    def __post_init__(self) -> None:
        """Raise if a setting is impossible."""
        if self.kind not in ("sgd", "adam", "rmsprop"):
            raise ValueError(f"Expected `kind` to be sgd, adam or rmsprop, but got {self.kind!r}.")
        if not self.learning_rate > 0:
            raise ValueError(f"Expected `learning_rate` to be above 0, but got {self.learning_rate}.")

    def learning_rate_at(self, epoch: int) -> float:
        """Return the learning rate of a 0-based epoch."""
        drops = sum(milestone <= epoch for milestone in self.milestones)
        if self.every is not None:
            drops += epoch // self.every
        return self.learning_rate * float(self.factor**drops)

    def compressed(self, share: float) -> "Optimiser":
        """Return the optimiser whose learning rate falls in a share of the epochs as far as here in all.

        >>> Optimiser("sgd", 1.0, factor=0.9, every=1).compressed(0.5)
        Optimiser(kind='sgd', learning_rate=1.0, momentum=0.0, factor=0.81, milestones=(), every=1)
        """
        milestones = tuple(round(share * milestone) for milestone in self.milestones)
        if self.every is None:
            return replace(self, milestones=milestones)
        every = max(1, round(share * self.every))
        factor = round(float(self.factor ** (every / (share * self.every))), 12)
        return replace(self, milestones=milestones, every=every, factor=factor)

    def build(
        self, parameters: Iterable[torch.Tensor] | Iterable[dict[str, Any]], *, capturable: bool = False
    ) -> torch.optim.Optimizer:
        """Return the torch optimiser of parameters or groups; `capturable` is for CUDA graphs."""
        rate: Any = self.learning_rate
        if capturable:  # a CUDA graph would freeze a rate that is a Python number
            rate = torch.tensor(self.learning_rate, device="cuda")
        if self.kind == "sgd":
            # The other implementations of SGD read the rate on the host.
            return torch.optim.SGD(parameters, lr=rate, momentum=self.momentum, fused=capturable or None)
        if self.kind == "adam":
            return torch.optim.Adam(parameters, lr=rate, capturable=capturable)
        # 0.9 is the decay of the paper's base implementation; torch's default is slower.
        return torch.optim.RMSprop(
            parameters, lr=rate, alpha=0.9, momentum=self.momentum, capturable=capturable
        )


@final
@dataclass(frozen=True)
class Noise:
    """Label noise of a trial: a kind of `activebias.lab.data.with_noise`, and its share or annotation.

    >>> Noise.parse("0.1")
    Noise(kind='uniform', fraction=0.1, annotation=None)
    >>> Noise.parse("uniform_other:0.2").kind
    'uniform_other'
    >>> Noise.parse("human:worst").annotation
    'worst'
    """

    kind: str
    fraction: float | None = None
    annotation: str | None = None

    def __post_init__(self) -> None:
        """Raise if the kind or the share does not exist."""
        if self.kind not in NOISE_KINDS:
            raise ValueError(
                f"Expected `noise` to be of a kind among {', '.join(NOISE_KINDS)}, not {self.kind!r}."
            )
        if self.kind != "human" and not (self.fraction is not None and 0 <= self.fraction <= 1):
            raise ValueError(
                f"Expected `noise` to have a share of labels in [0, 1], but got {self.fraction}."
            )

    @staticmethod
    def parse(text: str) -> "Noise | None":
        """Read `0.1` (uniform, as in the paper), `KIND:SHARE`, or `human:ANNOTATION`; `0` is no noise."""
        kind, separator, rest = text.rpartition(":")
        if kind == "human" or text == "human":
            return Noise("human", annotation=rest if separator else None)
        try:
            fraction = float(rest)
        except ValueError:
            raise ValueError(
                f"Expected `noise` to be a share such as 0.1, KIND:SHARE such as uniform_other:0.2, or "
                f"human:ANNOTATION, but got {text!r}."
            ) from None
        return None if fraction == 0 else Noise(kind or "uniform", fraction)


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One experiment: data, model, optimiser, protocol. `config()` has everything that affects the numbers.

    `architecture` is the name of the model in the configuration. `row` is the row of the paper that the
    recipe reproduces. `half_precision` allows bf16 on a GPU, for models whose baseline error it does not
    change (`benchmarks/precision.py`). `limit` is the number of training and test examples to use: with it,
    the tests run every recipe within seconds. `validation` is the share of the training examples that is held
    out, in all trials the same, to choose settings and epochs. With `split`, every trial divides the training
    examples of the data set anew into a training, a validation and a test part.

    `last_train_errors` saves time on a large training set: only so many last epochs have a training error,
    and before them every tenth epoch. It is not part of the configuration, because the lowest training error
    is expected among the last epochs. The `details` of a result then name the epochs (`train_epochs`).
    """

    name: str
    title: str
    data: str
    architecture: str
    model: ModelFactory = field(repr=False, compare=False)
    optimiser: Optimiser
    batch_size: int
    epochs: int
    burn_in: int
    methods: tuple[str, ...]
    trials: int
    window: int | None = None
    noise: Noise | None = None
    augmentation: Augmentation | None = None
    metric: Metric = "error"
    teacher: "Recipe | None" = None
    row: str | None = None
    notes: tuple[str, ...] = ()
    data_options: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    half_precision: bool = False
    validation: float | None = None
    split: Split | None = None
    last_train_errors: int | None = None

    def __post_init__(self) -> None:
        """Raise if a number is too small."""
        if self.validation is not None and not 0 < self.validation < 1:
            raise ValueError(
                f"Expected `validation` to be a share between 0 and 1, but got {self.validation}."
            )
        for name, least in (("batch_size", 1), ("epochs", 1), ("burn_in", 0), ("trials", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"Expected `{name}` to be at least {least}, but got {getattr(self, name)}.")
        if self.last_train_errors is not None and self.last_train_errors < 1:
            raise ValueError(
                f"Expected `last_train_errors` to be at least 1, or None for all epochs, but got "
                f"{self.last_train_errors}."
            )

    @property
    def measure(self) -> str:
        """What the test part measures, in per cent."""
        return "test error" if self.metric == "error" else "100 - F1"

    def has_train_error(self, epoch: int) -> bool:
        """Return whether the training set is evaluated after a 0-based epoch."""
        last = self.epochs if self.last_train_errors is None else self.last_train_errors
        return epoch >= self.epochs - last or (epoch + 1) % 10 == 0

    def in_half_precision(self, device: torch.device) -> bool:
        """Return whether models side by side on `device` run in bf16: on a GPU, with SGD."""
        return self.half_precision and device.type == "cuda" and self.optimiser.kind == "sgd"

    def config(self) -> dict[str, Any]:
        """Return the settings that affect the numbers, and no others: the key of stored results."""
        noise, optimiser = self.noise, self.optimiser
        return {
            "data": self.data,
            "data_options": {name: value for name, value in self.data_options.items() if name != "verify"}
            or None,
            "model": self.architecture,
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "burn_in": self.burn_in,
            "window": self.window,
            "noise": None if noise is None else dict(vars(noise)),
            "augmentation": self.augmentation,
            "optimiser": dict(vars(optimiser)),
            "metric": self.metric,
            "teacher": None if self.teacher is None else self.teacher.config(),
            "limit": self.limit,
            "validation": self.validation,
            "split": None if self.split is None else dict(vars(self.split)),
        }

    def shortened(self, epochs: int) -> "Recipe":
        """Return the recipe with another number of epochs, and the burn-in in proportion.

        The schedule of the learning rate does not change.
        """
        if epochs < 1:
            raise ValueError(f"Expected `epochs` to be at least 1, but got {epochs}.")
        burn_in = min(round(self.burn_in * epochs / self.epochs), epochs - 1)
        return replace(self, epochs=epochs, burn_in=burn_in)

    def compressed(self, epochs: int) -> "Recipe":
        """Return the recipe with another number of epochs, and burn-in and schedule in proportion.

        >>> optimiser = Optimiser("sgd", 1.0, factor=0.5, milestones=(80, 100)).compressed(0.1)
        >>> [optimiser.learning_rate_at(epoch) for epoch in (7, 8, 10)]
        [1.0, 0.5, 0.25]
        """
        optimiser = self.optimiser.compressed(epochs / self.epochs)
        return replace(self.shortened(epochs), optimiser=optimiser)

    def limited(self, limit: int) -> "Recipe":
        """Return the recipe on the first `limit` training and test examples."""
        teacher = None if self.teacher is None else self.teacher.limited(limit)
        return replace(self, limit=limit, teacher=teacher)

    def holding_out(self, share: float | None) -> "Recipe":
        """Return the recipe with another validation part (None: without), which its teacher does not see."""
        teacher = None if self.teacher is None else self.teacher.holding_out(share)
        return replace(self, validation=share, teacher=teacher)
