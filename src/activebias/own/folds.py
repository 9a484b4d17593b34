"""Class probabilities of every row from models that did not train on the row."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from activebias.own.data import VALIDATION_SHARE
from activebias.own.forms import data_in_ram
from activebias.own.judges import fold_masks
from activebias.own.settings import BurnIn
from activebias.own.train import build_run, suitable_threads
from activebias.training.examples import joined
from activebias.training.loop import OnEpoch


class OutOfSample(NamedTuple):
    """Probabilities (N, C) of N rows, their labels as numbers, the names of the C classes, and the rows.

    `rows` are the places in the data, in rising order: all rows that have a label.
    """

    pred_probs: NDArray[np.float32]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    rows: NDArray[np.int64]


def cross_fit(
    data: Any,
    labels: Any = None,
    *,
    target: str | None = None,
    model: Callable[[], nn.Module] | None = None,
    learning_rate: float | None = None,
    folds: int = 5,
    method: str = "wtc",
    epochs: int = 30,
    burn_in: BurnIn = "auto",
    seed: int = 0,
    device: str = "cpu",
    on_epoch: OnEpoch = lambda seen: None,
) -> OutOfSample:
    """Train one model per fold on the other folds, and return its class probabilities of the fold.

    The probabilities are those after every epoch, averaged over the epochs. Rows with the same input are in
    the same fold. Columns are standardised over all rows: that uses inputs of the fold, but no label.

    >>> from sklearn.datasets import load_wine
    >>> found = cross_fit(*load_wine(return_X_y=True), folds=2, epochs=3)
    >>> found.pred_probs.shape, found.class_names
    ((178, 3), ('0', '1', '2'))

    Args:
        data, labels, target, model, learning_rate: as in `find_issues`.
        folds: the number of models, from 2 on; each trains on all folds but one.
        method, epochs, burn_in, seed, device, on_epoch: as in `find_issues`.
    """
    own = data_in_ram(data, labels, target, model, VALIDATION_SHARE, seed)
    if learning_rate is not None:
        own = replace(own, learning_rate=learning_rate)
    examples = joined(own.train, own.validation)
    codes = examples.targets.numpy()
    _check_folds(folds, codes, own.class_names)
    found = np.zeros((len(codes), len(own.class_names)), dtype=np.float32)
    with suitable_threads(own, model):
        for held_out in fold_masks(examples, folds, seed):
            chosen = torch.from_numpy(held_out)
            part = replace(own, train=examples.select(~chosen), validation=examples.select(chosen))
            run = build_run(
                part,
                model=model,
                method=method,
                burn_in=burn_in,
                seed=seed,
                device=torch.device(device),
            )
            for _ in range(epochs):
                run.train_epoch()
                on_epoch(run.seen())
            found[held_out] = run.observers[1].mean_beliefs(run.epoch).cpu().numpy()
    position = np.concatenate([own.train_position, own.validation_position])
    order = np.argsort(position)
    return OutOfSample(found[order], codes[order], own.class_names, position[order])


def _check_folds(folds: int, codes: NDArray[np.int64], names: tuple[str, ...]) -> None:
    counts = np.bincount(codes, minlength=len(names))
    if not 2 <= folds <= counts.max():
        raise ValueError(
            f"Expected `folds` to be from 2 to {counts.max()}, the size of the largest class, but got "
            f"{folds}."
        )
    if small := [f"{name} ({count})" for name, count in zip(names, counts, strict=True) if count < folds]:
        warnings.warn(
            f"Classes with fewer rows than the {folds} folds: {', '.join(small)}. A model that has seen no "
            "row of a class gives it no probability: take fewer folds, or leave these classes out.",
            stacklevel=3,
        )
