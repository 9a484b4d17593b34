"""The history of a run for other tools: NumPy, parquet, and dataset cartography.

Only visits are exported: the entry 1/C that every history begins with is left out.
"""

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from activebias.internal import replacing
from activebias.runs.auditing import without_prior
from activebias.runs.contents import identifiers_beside, places_of
from activebias.runs.folder import RunFolder

FORMATS = ("npz", "parquet", "cartography")

# Keeps logits finite. Cartography computes in float32, in which larger probabilities below 1 round to 1.
LEAST_PROBABILITY = 1e-7


class Visits(NamedTuple):
    """The probabilities p(y|x) of every visit, (N, T), oldest first, and the mask of visits.

    Rows with fewer visits than T are padded with 0 at the end.
    """

    prob: NDArray[np.float32]
    visited: NDArray[np.bool_]


def visits(folder: RunFolder) -> Visits:
    """Return the visits of a run."""
    values, valid = folder.history()
    return left_aligned(values, without_prior(values, valid, 1 / len(folder.info.class_names)))


def left_aligned(values: NDArray[np.float32], visited: NDArray[np.bool_]) -> Visits:
    """Move the visits of every row to its left.

    >>> left_aligned(np.float32([[0.5, 0.25]]), np.array([[False, True]])).prob
    array([[0.25]], dtype=float32)
    """
    order = np.argsort(~visited, axis=1, kind="stable")
    width = int(visited.sum(1).max(initial=0))
    visited = np.take_along_axis(visited, order, 1)[:, :width]
    values = np.take_along_axis(values, order, 1)[:, :width]
    return Visits(np.where(visited, values, np.float32(0)), visited)


def export_history(folder: RunFolder, path: str | os.PathLike[str], format: str) -> int:
    """Write the history of a run atomically to `path`; return the number of instances in it.

    `npz`: arrays `prob` and `visited` (N, T), where the instances are in the user's data (`row`, `file`, or
    `sentence` and `word`), `part`, `label`, `believed`, `position`, `class_names`. A table with columns that
    identify its rows has `identifiers` (N, columns) too, texts, and their `identifier_names`.
    `parquet`: one row per instance, with the column `history`, a list of its probabilities. Columns that
    identify the rows come behind `row`.
    `cartography`: a folder with `training_dynamics/dynamics_epoch_X.jsonl`, see `write_cartography`. It has
    the training instances only.
    """
    if format not in FORMATS:
        raise ValueError(f"Expected `format` to be one of {', '.join(FORMATS)}, but got {format!r}.")
    path, seen = Path(path), visits(folder)
    if format == "cartography":
        number = folder.info.num_instances
        names = [list(each) for each in zip(*_places(folder).values(), strict=True)][:number]
        guids = [each[0] if len(each) == 1 else "-".join(map(str, each)) for each in names]
        return write_cartography(Visits(seen.prob[:number], seen.visited[:number]), path, guids)
    with replacing(path) as temporary:
        if format == "npz":
            _write_npz(folder, seen, temporary)
        else:
            _write_parquet(folder, seen, temporary)
    return len(seen.prob)


def write_cartography(seen: Visits, folder: Path, guids: Sequence[Any]) -> int:
    """Write `training_dynamics/dynamics_epoch_X.jsonl` for dataset cartography; count the instances.

    A line is {"guid": the row, file or sentence-word, "logits_epoch_X": [0, logit p], "gold": 1}: two
    classes, the label and all other classes. Their softmax is p, so that confidence and variability are
    exact. A history of p(y|x) has no logits of the single other classes. Correctness is therefore the
    fraction of visits with p > 1/2.

    X counts an instance's visits. Instances without a visit are not in the files.
    """
    if folder.exists():
        raise ValueError(f"{folder} exists already: choose another folder, or remove it.")
    with replacing(folder, folder=True) as temporary:
        target = temporary / "training_dynamics"
        target.mkdir()
        for epoch in range(seen.prob.shape[1]):
            index = seen.visited[:, epoch].nonzero()[0]
            prob = seen.prob[index, epoch].astype(np.float64).clip(LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
            logits = np.log(prob / (1 - prob))
            key = f"logits_epoch_{epoch}"
            with open(target / f"dynamics_epoch_{epoch}.jsonl", "w", encoding="utf-8") as file:
                for instance, logit in zip(index.tolist(), logits.tolist(), strict=True):
                    file.write(json.dumps({"guid": guids[instance], key: [0.0, logit], "gold": 1}) + "\n")
    return int(seen.visited[:, 0].sum()) if seen.prob.shape[1] else 0


def _places(folder: RunFolder) -> dict[str, Sequence[Any]]:
    return places_of(folder.info.kind, folder.instances(), folder.inputs())


def _parts(folder: RunFolder) -> NDArray[np.str_]:
    return np.where(folder.instances().in_validation, "validation", "training")


def _write_npz(folder: RunFolder, seen: Visits, path: Path) -> None:
    instances = folder.instances()
    arrays: dict[str, Any] = {
        **_places(folder),
        "part": _parts(folder),
        "prob": seen.prob,
        "visited": seen.visited,
        "label": instances.label,
        "believed": instances.believed,
        "position": instances.position,
        "class_names": folder.info.class_names,
    }
    if (frame := folder.inputs().identifiers) is not None:  # a pickled None would not be read
        arrays["identifiers"] = frame.fillna("").to_numpy(str)
        arrays["identifier_names"] = list(frame)
    # Not `np.savez_compressed`: it cannot write an array with the name "file".
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)


def _write_parquet(folder: RunFolder, seen: Visits, path: Path) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise RuntimeError("Writing parquet needs pyarrow: pip install 'activebias[report]'") from None
    instances, names = folder.instances(), np.array(folder.info.class_names, dtype=object)
    ends = np.concatenate([[0], seen.visited.sum(1).cumsum()])
    places = {name: pa.array(values) for name, values in _places(folder).items()}
    columns = {
        "part": pa.array(_parts(folder)),
        "label": pa.array(names[instances.label], pa.string()),
        "believed": pa.array(names[instances.believed], pa.string()),
        "index": pa.array(np.arange(len(seen.prob))),
        "position": pa.array(instances.position),
        "history": pa.LargeListArray.from_arrays(ends, pa.array(seen.prob[seen.visited])),
    }
    identifiers = identifiers_beside([*places, *columns], folder.inputs().identifiers)
    named = {name: pa.array(cells, pa.string()) for name, cells in identifiers.items()}
    parquet.write_table(pa.table(places | named | columns), path)
