"""Data in RAM as `find_issues` takes it: tables, arrays, data sets, texts and image paths."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from activebias.own.data import OwnData
from activebias.own.images import images_data, name_of, read_files
from activebias.own.items import as_bytes, items_data, read_items
from activebias.own.tables import labels_of, refuse_equal_names, table_data
from activebias.runs.folder import require_pandas
from activebias.runs.outcome import plural

if TYPE_CHECKING:
    from pandas import DataFrame, Series

IMAGE_ENDS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")


def data_in_ram(
    data: Any,
    labels: Any,
    target: str | None,
    model: Callable[[], nn.Module] | None,
    validation: float,
    seed: int,
) -> OwnData:
    """Prepare data in any of its forms, with labels in any of theirs."""
    pd = require_pandas("find_issues")
    target = None if target is None else str(target)
    if isinstance(data, Mapping):
        raise ValueError(
            f"Expected `data` to be one data set, but got {type(data).__name__} with {list(data)}: give one "
            "of its parts, or make a table of columns by `pandas.DataFrame(data)`."
        )
    if isinstance(data, torch.utils.data.Dataset):
        data, labels = read_items(data, labels)
    if (labels is None) == (target is None):
        raise ValueError("Expected exactly one of `labels` and `target`: give the labels, or their column.")
    if hasattr(data, "features") and hasattr(data, "to_pandas"):
        data, labels, target = _from_hugging_face(data, labels, target)
    elif hasattr(data, "to_pandas"):  # a table of pyarrow or polars
        data = data.to_pandas()
    if isinstance(data, (pd.Series, np.ndarray)) and data.ndim == 1 and data.dtype.kind not in "biuf":
        data = list(data)
    is_list = isinstance(data, Sequence) and len(data) > 0
    if is_list and all(isinstance(each, Mapping) for each in data):
        data = pd.DataFrame(list(data))
    if model is not None:
        if isinstance(data, pd.DataFrame) or (is_list and isinstance(data[0], (str, Path))):
            raise ValueError(
                f"Expected an array or a torch data set for `model`, but got {type(data).__name__}: give the "
                "inputs of your model as numbers, or leave `model` out."
            )
        inputs = _array(data)
        return items_data(inputs, _labelled(labels, len(inputs)), model, validation=validation, seed=seed)
    if isinstance(data, pd.DataFrame):
        return _table(data, labels, target, validation, seed)
    if target is not None:
        raise ValueError(
            f"Expected a table for `target`, such as a DataFrame, but got {type(data).__name__}: give "
            "`labels`, or read a file with pandas first."
        )
    if is_list and all(isinstance(each, (str, Path)) for each in data if not _is_missing(each)):
        texts = [None if _is_missing(each) else str(each) for each in data]
        if all((text or "").lower().endswith(IMAGE_ENDS) for text in texts):
            return _image_files([Path(each) for each in data], labels, validation, seed)
        return _table(pd.DataFrame({"text": texts}), labels, None, validation, seed)
    if is_list and all(hasattr(each, "getbands") for each in data):  # images of Pillow
        return _pillow(data, _labelled(labels, len(data)), validation, seed)
    array = _array(data)
    if array.ndim == 2:
        frame = pd.DataFrame(array, columns=[f"column {k}" for k in range(array.shape[1])])
        return _table(frame, labels, None, validation, seed)
    if array.ndim not in (3, 4):
        raise _unknown_form(data, array)
    return _images(array, labels, validation, seed)


def _from_hugging_face(data: Any, labels: Any, target: str | None) -> tuple[Any, Any, str | None]:
    """Return a table, or a list of images with their labels; class labels get their names."""
    pd = require_pandas("find_issues")
    pictures = [name for name, feature in data.features.items() if type(feature).__name__ == "Image"]
    frame = data.remove_columns(pictures).to_pandas()
    for name, feature in data.features.items():
        if hasattr(feature, "int2str"):  # a number below 0 is a missing label
            names = {code: feature.int2str(code) for code in range(feature.num_classes)}
            frame[name] = frame[name].map(names)
    if not pictures:
        return frame, labels, target
    if len(pictures) > 1:
        raise ValueError(f"Expected one column of images, but got {pictures}: leave the others out.")
    if target is not None and target not in frame:
        raise _no_column(target, frame)
    return data[pictures[0]][:], labels if target is None else pd.Series(frame[target]), None


def _no_column(target: str, frame: "DataFrame") -> ValueError:
    return ValueError(f"Expected `target` to be a column, one of {list(frame.columns)}, but got {target!r}.")


def _unknown_form(data: Any, array: Any) -> ValueError:
    return ValueError(
        "Expected `data` to be a DataFrame, a data set, an array of numbers (rows, columns), an array of "
        f"images (images, height, width), a list of texts or a list of image paths, but got "
        f"{type(data).__name__} of {array.dtype}, shape {array.shape}."
    )


def _array(data: Any) -> Any:
    try:
        array = np.asarray(data.detach().cpu() if hasattr(data, "detach") else data)
    except ValueError as error:
        raise ValueError(
            f"Expected `data` to be one array, but got {error}: give rows of one length."
        ) from None
    if array.ndim < 2 or array.dtype.kind not in "biuf":
        raise _unknown_form(data, array)
    return array


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _series_of(labels: Any, number: int) -> "Series":
    """Return the labels as a series; there must be one label per row."""
    pd = require_pandas("find_issues")
    values = labels.detach().cpu().numpy() if hasattr(labels, "detach") else labels
    shape = tuple(getattr(values, "shape", (number,)))
    if len(shape) > 1:
        if set(shape[1:]) != {1}:
            raise ValueError(
                f"Expected one label per row, {number} in all, but got `labels` of shape {shape}: of one-hot "
                "labels give `labels.argmax(1)`."
            )
        values = np.asarray(values).reshape(-1)
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ValueError(
            f"Expected `labels` to be a list, an array or a series, but got {type(values).__name__}: give "
            "one label per row, or the column of the labels as `target`."
        )
    series = pd.Series(list(values))
    if len(series) != number:
        raise ValueError(f"Expected one label per row, {number} in all, but got {len(series)}.")
    return series


def _table(frame: "DataFrame", labels: Any, target: str | None, validation: float, seed: int) -> OwnData:
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)
    refuse_equal_names(frame, Path("data"))
    if target is None:
        target = "label"
        while target in frame:
            target += "_"
        frame = frame.assign(**{target: _series_of(labels, len(frame))})
    elif target not in frame:
        raise _no_column(target, frame)
    return table_data(
        frame,
        len(frame),
        path=Path("data"),
        target=target,
        validation=validation,
        seed=seed,
        notes=[],
    )


def _labelled(labels: Any, number: int) -> list[str]:
    texts = labels_of(_series_of(labels, number))
    if missing := np.flatnonzero(texts.isna())[:5].tolist():
        raise ValueError(f"Inputs without a label, such as {missing}: leave them out.")
    return [str(text) for text in texts]


def _image_files(paths: list[Path], labels: Any, validation: float, seed: int) -> OwnData:
    texts = _labelled(labels, len(paths))
    images = read_files(paths, lambda: None)
    unreadable = [
        f"{path}: {image}" for path, image in zip(paths, images, strict=True) if isinstance(image, str)
    ]
    if unreadable:
        number = plural(len(unreadable), "image", "images")
        raise ValueError(f"{number} cannot be read, such as {unreadable[0]}: leave them out.")
    names = [name_of(path) for path in paths]
    found = [(*each, False) for each in zip(texts, names, images, strict=True)]
    return images_data(found, folder=Path("data"), validation=validation, seed=seed)


def _images(array: Any, labels: Any, validation: float, seed: int) -> OwnData:
    """Prepare an array of images; numbers that are no bytes are stretched to 0 … 255."""
    from PIL import Image

    texts = _labelled(labels, len(array))
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] not in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    if array.ndim == 4 and array.shape[3] != 3:
        raise ValueError(f"Expected images with 1 or 3 channels, but got shape {array.shape}.")
    array = as_bytes(array)
    return _pillow([Image.fromarray(np.ascontiguousarray(each)) for each in array], texts, validation, seed)


def _pillow(given: Sequence[Any], texts: list[str], validation: float, seed: int) -> OwnData:
    """Prepare images of Pillow."""
    images = [image.convert("L" if image.mode in ("1", "L", "LA") else "RGB") for image in given]
    for image in images:
        image.info = {"original": max(image.size)}
    names = [str(number) for number in range(len(images))]
    found = [(*each, False) for each in zip(texts, names, images, strict=True)]
    return images_data(found, folder=Path("data"), validation=validation, seed=seed)
