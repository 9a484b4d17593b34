"""Embeddings of the user's own as inputs of linear models, in place of the inputs themselves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from activebias.own.data import OwnData
from activebias.runs.outcome import plural
from activebias.training.examples import Examples

LEARNING_RATE = 5e-3


def read_embeddings(path: Path) -> NDArray[Any]:
    """Read a file of NumPy's; code in the file is never run."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}: write the embeddings with `np.save`.")
    try:
        with open(path, "rb") as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as one array ({error}): write the embeddings with `np.save`, as floats."
        ) from error
    return array


def with_embeddings(data: OwnData, embeddings: Any, name: str) -> OwnData:
    """Return the data with one embedding per row as input, for a linear model.

    The embeddings are in the order of the source. Every feature is standardised over the training part.
    """
    array = np.asarray(embeddings.detach().cpu() if hasattr(embeddings, "detach") else embeddings)
    _check(array, data, name)
    rows = torch.from_numpy(array.astype(np.float32))
    train, held_out = (rows[torch.from_numpy(p)] for p in (data.train_position, data.validation_position))
    mean, std = train.mean(0), train.std(0, correction=0)
    scale = torch.where(std > 0, std, 1.0)
    return replace(
        data,
        train=Examples(((train - mean) / scale,), data.train.targets),
        validation=Examples(((held_out - mean) / scale,), data.validation.targets),
        model={
            "name": "LinearHead",
            "arguments": {"num_features": rows.shape[1], "num_classes": len(data.class_names)},
        },
        learning_rate=LEARNING_RATE,
        settings={**data.settings, "embeddings": name},
    )


def usual_judges(data: OwnData) -> int:
    """Return the number of judges if the user gives none: linear models are small, so several judge."""
    return 5 if "embeddings" in data.settings else 1


def _check(array: NDArray[Any], data: OwnData, name: str) -> None:
    if data.kind == "tagging":
        raise ValueError(
            f"Expected an image folder or a table for {name}, but got tagged text: give a table with a row "
            "per word and its embedding in the same order."
        )
    if isinstance(data.settings["validation"], str):
        raise ValueError(
            f"Expected one file or folder for {name}, but got a separate validation part: put both into one, "
            "and give `--validation` as a share."
        )
    number, what = len(data.train) + len(data.validation), "readable image, in the order of the sorted paths"
    if data.kind != "images":
        number, what = number + len(data.skipped), "row, also of rows without a label, in their order"
    if array.ndim != 2 or array.shape[0] != number or not array.shape[1]:
        raise ValueError(
            f"Expected {name} to have one row per {what}: shape ({number}, features), but got shape "
            f"{array.shape}."
        )
    if array.dtype.kind != "f":
        raise TypeError(
            f"Expected {name} to hold floats, but got {array.dtype}: convert it with `.astype('float32')`."
        )
    wrong = np.flatnonzero(~np.isfinite(array).all(1))
    if len(wrong):
        raise ValueError(
            f"Expected {name} to hold finite numbers, but got NaN or infinity in "
            f"{plural(len(wrong), 'row', 'rows')}, such as row {wrong[0]}: compute these embeddings again, "
            "or leave the rows out of data and embeddings."
        )
