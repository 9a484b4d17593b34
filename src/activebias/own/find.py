"""`activebias.find_issues`: wrong labels, conflicts and duplicates of data in RAM, in one call."""

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from activebias import MemorisationWarning
from activebias.own.data import VALIDATION_SHARE
from activebias.own.embeddings import usual_judges, with_embeddings
from activebias.own.forms import data_in_ram
from activebias.own.models import OWN_MODEL
from activebias.own.settings import BurnIn
from activebias.own.train import train_own
from activebias.runs.contents import identifiers_beside
from activebias.runs.folder import RunFolder, require_pandas
from activebias.runs.outcome import warnings_of_memorising
from activebias.runs.suspects import audit_run, rows
from activebias.training.loop import OnEpoch

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("row", "label", "believed", "score", "suspected", "conflict", "duplicate", "part", "instance")


class Issues(NamedTuple):
    """The findings, the most suspicious row first, and the run folder behind them."""

    table: "DataFrame"
    run: RunFolder


def find_issues(
    data: Any,
    labels: Any = None,
    *,
    target: str | None = None,
    model: Callable[[], nn.Module] | None = None,
    learning_rate: float | None = None,
    out: str | os.PathLike[str] | None = None,
    validation: float = VALIDATION_SHARE,
    method: str = "wtc",
    epochs: int = 30,
    burn_in: BurnIn = "auto",
    judges: int | None = None,
    embeddings: Any = None,
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
            (images, height, width), with channels first or last; a torch data set, which is read once into
            RAM; a list of texts; or a list of image paths.
        labels: one label per row: words or numbers, in a list, an array, a tensor or a series. A torch data
            set of pairs (input, label) needs none.
        target: the column with the labels, in place of `labels`.
        model: a function that builds a model of your own, for arrays and torch data sets. It gets batches of
            inputs as they are in `data` (float64 as float32), and returns a logit per class, the classes in
            the order of their sorted names. None is a small model that suits the data.
        learning_rate: that of Adam; None is 0.001 for your model.
        out: the run folder to write, for `activebias report` and `audit`; None is a temporary folder, which
            is removed when Python ends.
        validation: the share of the rows that validate; they are audited too.
        judges: the number of models to train, 1 or at least 3. Each holds out other rows, and their beliefs
            are averaged: 5 models find more wrong labels than one, in five times the time. None is 1, or 5
            with `embeddings`.
        embeddings: floats (rows, features), one row per row of `data`, from a larger model of yours. Linear
            models are trained on them, and `data` is only shown.
        method, epochs, burn_in, seed, device: as in `activebias train`.
        on_epoch: called after every epoch, with its number and errors.

    Returns:
        The pair of findings and run. The findings are a DataFrame with the columns `row` (the place in
        `data`, from 0), `label`, `believed`, `score`, `suspected`, `conflict` (a number for rows with the
        same input and different labels, else 0), `duplicate` (whether another row has the same input),
        `part` and `instance`. The columns of a table that identify its rows, at most two, come behind `row`.
        Rows without a label are left out. `run.info.notes` and `run.info.skipped` say how the data
        was read. A MemorisationWarning says that the model memorised labels, and what to do.
    """
    own = data_in_ram(data, labels, target, model, validation, seed)
    if embeddings is not None:
        if model is not None:
            raise ValueError("Expected one of `model` and `embeddings`, but got both: leave one out.")
        own = with_embeddings(own, embeddings, "`embeddings`")
    if learning_rate is not None:
        own = replace(own, learning_rate=learning_rate)
    path = Path(_temporary() if out is None else out)
    run = train_own(
        own,
        path,
        model=model,
        method=method,
        epochs=epochs,
        burn_in=burn_in,
        judges=usual_judges(own) if judges is None else judges,
        seed=seed,
        device=device,
        on_epoch=on_epoch,
    )
    for text in warnings_of_memorising(run.info):  # the findings are worse then
        text = text.replace("--epochs ", "epochs=").replace(" --burn-in ", ", burn_in=")
        text = text.replace("--judges ", "judges=")
        warnings.warn(text, MemorisationWarning, stacklevel=2)
    return Issues(_findings(run), run)


def _findings(run: RunFolder) -> "DataFrame":
    pd = require_pandas("find_issues")
    instances, inputs = run.instances(), run.inputs()
    found = pd.DataFrame(rows(run, audit_run(run)))
    if inputs.rows is None or run.info.model["name"] == OWN_MODEL:
        digests = pd.Series(instances.identity)
    else:
        digests = pd.util.hash_pandas_object(inputs.rows.astype(str), index=False)
    is_copy = digests.duplicated(keep=False).to_numpy()
    found["duplicate"] = is_copy[found["index"]]
    found["conflict"] = found["conflict"].fillna(0).astype("int64")
    found["row"] = found["position"]
    table = found[[*COLUMNS]].copy()
    for place, (name, cells) in enumerate(identifiers_beside(COLUMNS, inputs.identifiers).items(), 1):
        table.insert(place, name, [cells[index] for index in found["index"]])
    return table


def _temporary() -> str:
    folder = tempfile.mkdtemp(prefix="activebias-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return os.path.join(folder, "run")
