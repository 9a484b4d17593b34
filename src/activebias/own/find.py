"""`activebias.find_issues`: wrong labels, conflicts and duplicates of data in RAM, in one call."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from activebias.own.data import VALIDATION_SHARE, OwnData
from activebias.own.images import images_data, name_of, read_files
from activebias.own.settings import BurnIn
from activebias.own.tables import labels_of, table_data
from activebias.own.train import train_own
from activebias.runs.folder import RunFolder, require_pandas
from activebias.runs.suspects import audit_run, rows
from activebias.training.loop import OnEpoch

if TYPE_CHECKING:
    from pandas import DataFrame

IMAGE_ENDS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")
COLUMNS = ("row", "label", "believed", "score", "suspected", "conflict", "duplicate", "part")


class Issues(NamedTuple):
    """The findings, the most suspicious row first, and the run folder behind them."""

    table: "DataFrame"
    run: RunFolder


def find_issues(
    data: Any,
    labels: Any = None,
    *,
    target: str | None = None,
    out: str | os.PathLike[str] | None = None,
    validation: float = VALIDATION_SHARE,
    method: str = "wtc",
    epochs: int = 30,
    burn_in: BurnIn = "auto",
    seed: int = 0,
    device: str = "cpu",
    on_epoch: OnEpoch = lambda seen: None,
) -> Issues:
    """Train a small model on labelled data, and rank the rows by how likely their label is wrong.

    >>> from sklearn.datasets import load_wine
    >>> wines, kinds = load_wine(return_X_y=True)
    >>> kinds[100] = 2  # a wrong label
    >>> table, run = find_issues(wines, kinds, epochs=20)
    >>> print(*table[["row", "label", "believed"]].iloc[0])
    100 2 1

    Args:
        data: a DataFrame or a Hugging Face data set; an array of numbers (rows, columns); an array of images
            (images, height, width), with channels first or last; a list of texts; or a list of image paths.
        labels: one label per row: words or numbers, in a list, an array, a tensor or a series.
        target: the column with the labels, in place of `labels`.
        out: the run folder to write, for `activebias report` and `audit`; None is a temporary folder, which
            is removed when Python ends.
        validation: the share of the rows that validate; they are audited too.
        method, epochs, burn_in, seed, device: as in `activebias train`.
        on_epoch: called after every epoch, with its number and errors.

    Returns:
        The pair of findings and run. The findings are a DataFrame with the columns `row` (the place in
        `data`, from 0), `label`, `believed`, `score`, `suspected`, `conflict` (a number for rows with the
        same input and different labels, else 0), `duplicate` (whether another row has the same input) and
        `part`. Rows without a label are left out.
    """
    own = _own_data(data, labels, target, validation, seed)
    path = Path(_temporary() if out is None else out)
    run = train_own(
        own,
        path,
        method=method,
        epochs=epochs,
        burn_in=burn_in,
        seed=seed,
        device=device,
        on_epoch=on_epoch,
    )
    return Issues(_findings(run), run)


def _findings(run: RunFolder) -> "DataFrame":
    pd = require_pandas("find_issues")
    instances, inputs = run.instances(), run.inputs()
    found = pd.DataFrame(rows(run, audit_run(run))).rename(columns={"position": "place"})
    if inputs.rows is None:
        digests = pd.Series(instances.identity)
    else:
        digests = pd.util.hash_pandas_object(inputs.rows.astype(str), index=False)
    is_copy = digests.duplicated(keep=False).to_numpy()
    found["duplicate"] = is_copy[found["index"]]
    found["conflict"] = found["conflict"].fillna(0).astype("int64")
    found["row"] = found["place"]
    return found[[*COLUMNS, "instance"]]


def _temporary() -> str:
    folder = tempfile.mkdtemp(prefix="activebias-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return os.path.join(folder, "run")


def _own_data(data: Any, labels: Any, target: str | None, validation: float, seed: int) -> OwnData:
    pd = require_pandas("find_issues")
    if (labels is None) == (target is None):
        raise ValueError("Expected exactly one of `labels` and `target`: give the labels, or their column.")
    if hasattr(data, "to_pandas"):  # a Hugging Face data set, or a table of pyarrow or polars
        data = data.to_pandas()
    if isinstance(data, pd.DataFrame):
        return _table(data, labels, target, validation, seed)
    if target is not None:
        raise ValueError(f"Expected a table for `target`, but got {type(data).__name__}: give `labels`.")
    if isinstance(data, Sequence) and data and all(isinstance(each, (str, Path)) for each in data):
        if all(str(each).lower().endswith(IMAGE_ENDS) for each in data):
            return _image_files([Path(each) for each in data], labels, validation, seed)
        return _table(pd.DataFrame({"text": [str(each) for each in data]}), labels, None, validation, seed)
    array = _array(data)
    if array.ndim == 2:
        frame = pd.DataFrame(array, columns=[f"column {k}" for k in range(array.shape[1])])
        return _table(frame, labels, None, validation, seed)
    return _images(array, labels, validation, seed)


def _array(data: Any) -> Any:
    try:
        array = np.asarray(data.detach().cpu() if hasattr(data, "detach") else data)
    except ValueError as error:
        raise ValueError(
            f"Expected `data` to be one array, but got {error}: give rows of one length."
        ) from None
    if array.ndim not in (2, 3, 4) or array.dtype.kind not in "biuf":
        raise ValueError(
            "Expected `data` to be a DataFrame, a data set, an array of numbers (rows, columns), an array of "
            f"images (images, height, width), a list of texts or a list of image paths, but got "
            f"{type(data).__name__} of {array.dtype}, shape {array.shape}."
        )
    return array


def _texts_of(labels: Any, number: int) -> Any:
    """Return the labels as a series of texts; the labels must be as many as the rows."""
    pd = require_pandas("find_issues")
    values = labels.detach().cpu().numpy() if hasattr(labels, "detach") else labels
    series = pd.Series(list(values))
    if len(series) != number:
        raise ValueError(f"Expected one label per row, {number} in all, but got {len(series)}.")
    return labels_of(series)


def _table(frame: "DataFrame", labels: Any, target: str | None, validation: float, seed: int) -> OwnData:
    frame = frame.rename(columns=str).reset_index(drop=True)
    if target is None:
        target = "label"
        while target in frame:
            target += "_"
        frame = frame.assign(**{target: _texts_of(labels, len(frame))})
    elif target not in frame:
        raise ValueError(
            f"Expected `target` to be a column, one of {list(frame.columns)}, but got {target!r}."
        )
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
    texts = _texts_of(labels, number)
    if missing := np.flatnonzero(texts.isna())[:5].tolist():
        raise ValueError(f"Images without a label, such as {missing}: leave them out.")
    return [str(text) for text in texts]


def _image_files(paths: list[Path], labels: Any, validation: float, seed: int) -> OwnData:
    texts = _labelled(labels, len(paths))
    images = read_files(paths, lambda: None)
    unreadable = [
        f"{path}: {image}" for path, image in zip(paths, images, strict=True) if isinstance(image, str)
    ]
    if unreadable:
        raise ValueError(f"{len(unreadable)} images cannot be read, such as {unreadable[0]}: leave them out.")
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
    if array.dtype != np.uint8:
        low, high = float(array.min()), float(array.max())
        array = ((array - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    images = [Image.fromarray(np.ascontiguousarray(each)) for each in array]
    for image in images:
        image.info = {"original": max(image.size)}
    names = [str(number) for number in range(len(images))]
    found = [(*each, False) for each in zip(texts, names, images, strict=True)]
    return images_data(found, folder=Path("data"), validation=validation, seed=seed)
