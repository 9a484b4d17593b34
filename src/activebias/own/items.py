"""A torch data set, or arrays, for a model of one's own."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from activebias.own.data import Divided, OwnData, divide, encode_labels, note_small_classes
from activebias.own.duplicates import find_conflicts, note_duplicates
from activebias.own.models import OWN_MODEL
from activebias.own.splits import identity_of
from activebias.runs.contents import Inputs
from activebias.runs.folder import require_pandas
from activebias.runs.outcome import plural
from activebias.training.fingerprint import build_seeded

# The report shows this many columns of a vector.
MOST_COLUMNS = 50


def read_items(data: Any, labels: Any) -> tuple[Any, Any]:
    """Read a torch data set of pairs (input, label), or of inputs if `labels` are given."""
    if isinstance(data, torch.utils.data.IterableDataset) or not hasattr(data, "__len__"):
        raise ValueError(
            "Expected a data set with a length and items by number, but got a stream "
            f"({type(data).__name__}): read it into a list first."
        )
    items = [data[number] for number in range(len(data))]
    paired = bool(items) and all(isinstance(item, (tuple, list)) for item in items)
    if labels is None:
        if not paired or any(len(item) != 2 for item in items):
            raise ValueError(
                f"Expected the items of {type(data).__name__} to be pairs (input, label): give `labels`, or "
                "such items."
            )
        labels = [label.item() if hasattr(label, "item") else label for _, label in items]
    inputs = [item[0] for item in items] if paired else items
    if inputs and hasattr(inputs[0], "getbands"):  # images of Pillow
        return inputs, labels
    try:
        return np.stack([np.asarray(each) for each in inputs]), labels
    except ValueError as error:
        raise ValueError(
            f"Expected the inputs of {type(data).__name__} to have one shape, but got {error}: give the data "
            "set a transform that resizes or pads them."
        ) from None


def items_data(
    array: NDArray[Any],
    labels: Sequence[str],
    model: Callable[[], nn.Module],
    *,
    validation: float,
    seed: int,
) -> OwnData:
    """Prepare inputs, one per row of the array, for a model of one's own."""
    inputs = torch.from_numpy(np.ascontiguousarray(array))
    if inputs.is_floating_point():
        inputs = inputs.float()
        wrong = np.flatnonzero(~torch.isfinite(inputs).flatten(1).all(1).numpy())
        if len(wrong):
            raise ValueError(
                "Expected `data` to hold finite numbers, but got NaN or infinity in "
                f"{plural(len(wrong), 'row', 'rows')}, such as row {wrong[0]}: fill these values, or leave "
                "the rows out."
            )
    class_names, codes = encode_labels(labels, "`labels`")
    description = _check_model(model, inputs, len(class_names), seed)
    digests = [hashlib.sha256(row.tobytes()).hexdigest() for row in inputs.numpy()]
    divided = Divided(class_names, codes, *divide(codes, digests, share=validation, seed=seed))
    conflicts = find_conflicts(
        digests,
        labels,
        in_train=divided.in_train,
        position=np.arange(len(labels)),
        describe=lambda members: [f"item {k}" for k in members],
    )
    notes = (
        *note_small_classes(class_names, codes),
        *note_duplicates("inputs", digests, divided.in_train),
        *conflicts.note("inputs"),
    )
    train, held_out = divided.examples(inputs)
    shown = _shown(inputs.numpy(), divided.order)
    return OwnData(
        kind="table" if shown.images is None else "images",
        source="data",
        class_names=class_names,
        train=train,
        validation=held_out,
        train_position=divided.train,
        validation_position=divided.held_out,
        inputs=shown,
        model={"name": OWN_MODEL, "arguments": {}, "built": description},
        learning_rate=1e-3,
        conflicts=conflicts,
        identity=identity_of(digests)[divided.order],
        settings={"validation": validation},
        notes=notes,
    )


def _check_model(model: Callable[[], nn.Module], inputs: torch.Tensor, num_classes: int, seed: int) -> str:
    """Return the model as text; raise unless it returns a logit per class."""
    built = build_seeded(model, seed).eval()
    batch = inputs[:2]
    try:
        with torch.no_grad():
            logits = built(batch)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"Expected `model` to take a batch of inputs, {batch.dtype} of shape {tuple(batch.shape)}, but "
            f"it raised {type(error).__name__}: {error}"
        ) from error
    shape = getattr(logits, "shape", None)
    if shape != (len(batch), num_classes):
        got = type(logits).__name__ if shape is None else f"shape {tuple(shape)}"
        raise ValueError(
            f"Expected `model` to return a logit for each of the {num_classes} classes in the labels, shape "
            f"({len(batch)}, {num_classes}), but got {got}."
        )
    return str(built)


def _shown(array: NDArray[Any], order: NDArray[np.int64]) -> Inputs:
    """Return the inputs as a person sees them: images, columns of vectors, or numbers of items."""
    pd = require_pandas("find_issues")
    if array.ndim == 4 and array.shape[1] in (1, 3):
        array = array.transpose(0, 2, 3, 1)
        array = array[..., 0] if array.shape[-1] == 1 else array
    if array.ndim == 3 or (array.ndim == 4 and array.shape[-1] == 3):
        return Inputs(images=as_bytes(array)[order], names=tuple(str(k) for k in order))
    if array.ndim == 2:
        columns = [f"column {k}" for k in range(min(array.shape[1], MOST_COLUMNS))]
        return Inputs(rows=pd.DataFrame(array[order, : len(columns)], columns=columns))
    return Inputs(rows=pd.DataFrame({"item": [f"item {k}" for k in order]}))


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return numbers as bytes; numbers that are no bytes are stretched to 0 … 255."""
    if array.dtype == np.uint8:
        return array
    low, high = float(array.min()), float(array.max())
    if not np.isfinite([low, high]).all():
        wrong = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
        raise ValueError(
            "Expected images to hold finite numbers, but got NaN or infinity in "
            f"{plural(len(wrong), 'image', 'images')}, such as number {wrong[0]}: replace these values, or "
            "leave the images out."
        )
    stretched: NDArray[np.uint8] = ((array - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    return stretched
