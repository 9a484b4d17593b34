"""The run folder: `activebias train` writes it, `audit` and `report` read it.

| file | content |
|---|---|
| `run.json` | `RunInfo`: settings, curves, warnings, skipped inputs |
| `bias.pt` | the state of `ActiveBias`: history and scores |
| `model.pt` | the model's state_dict at the end |
| `best.pt` | the state_dict of the epoch with the lowest validation error; not in runs of recipes |
| `instances.npz` | `Instances`: label, believed class, weight of every instance |
| `inputs.npz` or `inputs.parquet` | `Inputs`: images, or the rows of a table, or texts, or words |
| `identifiers.parquet` | columns that identify the rows, not trained on; only of tables that have some |
| `validation.csv` | the predictions on the validation part; its first columns are the audit's |
| `validation.pt` | p(y|x) of the validation instances after every epoch; not in runs of recipes |
| `judges.pt` | p(y|x) of all instances, averaged over several judges, after each epoch that counts |
| `emphasis.csv` | `Emphasis`: the learnt weights over p̄ after every epoch; only of `auto` and `sauto` |
| `conflicts.csv` | for a person: instances with the same input and different labels; only if there are any |

A folder is written under a temporary name and renamed at the end. A killed process therefore never leaves an
incomplete run folder.

The training instances come first, in the order of the history. The validation instances follow, if they are
audited: in runs on the user's data.
"""

import csv
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from activebias import ActiveBias, PredictionHistory
from activebias.internal import knot_means, read_checkpoint, replacing, until_written
from activebias.runs.cells import safe_cell
from activebias.runs.contents import Emphasis, Inputs, Instances, Predictions, RunInfo, places_of

if TYPE_CHECKING:
    from pandas import DataFrame

# Version 2 added the validation instances; version 1 has none.
FORMAT = 2
_READABLE = (1, FORMAT)
_FILES = ("bias.pt", "model.pt", "instances.npz", "validation.csv")
_INPUTS = ("inputs.npz", "inputs.parquet")


@final
@dataclass(frozen=True)
class RunFolder:
    """A complete run folder; every method reads its file when it is called."""

    path: Path
    info: RunInfo

    def history(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the recorded p(y|x) of all instances, (N, T) oldest first, and the mask of valid entries.

        The first entry is 1/C, unless a window has dropped it. The probabilities of a training instance are
        those of its visits, those of a validation instance come after every epoch. With several judges, all
        probabilities are averages over the judges, after each epoch that counts.
        """
        state = self.bias_state()
        if self.info.num_judges > 1:
            judges = read_checkpoint(self.path / "judges.pt")
            return self._history("judges.pt", state, self.info.num_audited, judges)
        parts = [self._history("bias.pt", state, self.info.num_instances, state.get("history"))]
        if self.info.num_validation:
            held_out = read_checkpoint(self.path / "validation.pt")
            parts.append(self._history("validation.pt", state, self.info.num_validation, held_out))
        width = max(values.shape[1] for values, _ in parts)
        values, valid = (
            np.concatenate([np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in arrays])
            for arrays in zip(*parts, strict=True)
        )
        return values, valid

    def _history(
        self, name: str, bias: dict[str, Any], number: int, state: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        try:
            settings = bias["settings"]
            history = PredictionHistory(
                number,
                initial=1 / settings["num_classes"],
                window=None if name == "judges.pt" else settings["window"],
                storage=settings["storage"] if name == "bias.pt" else "float32",
            )
            history.load_state_dict(state)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path / name} is damaged: {error!r}; train again.") from error
        values, valid = history.values()
        return values.numpy(), valid.numpy()

    def bias_state(self) -> dict[str, Any]:
        """Return the state of the bias, for `ActiveBias.load_state_dict`."""
        return read_checkpoint(self.path / "bias.pt")

    def instances(self) -> Instances:
        """Return labels, believed classes and weights of all instances."""
        arrays = _read_arrays(self.path / "instances.npz")
        try:
            instances = Instances(**arrays)
        except TypeError as error:
            raise ValueError(f"{self.path / 'instances.npz'} is damaged: {error}; train again.") from error
        self._check_length("instances.npz", len(instances))
        return instances

    def inputs(self) -> Inputs:
        """Return the images or rows of all instances."""
        parquet = self.path / "inputs.parquet"
        if parquet.exists():
            rows = require_pandas("reading a table").read_parquet(parquet)
            self._check_length(parquet.name, len(rows))
            return Inputs(rows=rows, identifiers=self._identifiers())
        arrays = _read_arrays(self.path / "inputs.npz")
        self._check_length("inputs.npz", len(arrays["images"]))
        return Inputs(images=arrays["images"], names=tuple(str(name) for name in arrays["names"]))

    def _identifiers(self) -> "DataFrame | None":
        path = self.path / "identifiers.parquet"
        if not path.exists():
            return None
        identifiers = require_pandas("reading a table").read_parquet(path)
        self._check_length(path.name, len(identifiers))
        return identifiers

    def model_state(self, *, best: bool = False) -> dict[str, torch.Tensor]:
        """Return the model's state_dict, on the CPU: at the end, or of the `best` epoch."""
        path = self.path / ("best.pt" if best else "model.pt")
        if not path.is_file():
            raise ValueError(f"{self.path} has no best.pt: only runs on the user's data keep the best epoch.")
        return read_checkpoint(path)

    def validation(self) -> list[dict[str, str]]:
        """Return the predictions on the validation part, one dict per line of `validation.csv`."""
        with open(self.path / "validation.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def emphasis(self) -> Emphasis | None:
        """Return the curves that the method has learnt, or None if it has learnt none."""
        path = self.path / "emphasis.csv"
        if not path.is_file():
            return None
        try:
            with open(path, encoding="utf-8", newline="") as file:
                header, *rows = csv.reader(file)
            weights = np.array([row[1:] for row in rows], dtype=np.float64)
            means = np.array(header[1:], dtype=np.float64)
            epochs = np.array([row[0] for row in rows], dtype=np.int64)
            if weights.shape != (len(epochs), len(means)) or not np.isfinite(weights).all():
                raise ValueError(f"{weights.shape} weights")
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): train again.") from error
        return Emphasis(epochs=epochs, means=means, weights=weights)

    @property
    def conflicts_file(self) -> Path | None:
        """The file of instances with the same input and different labels, or None if there are none."""
        path = self.path / "conflicts.csv"
        return path if path.is_file() else None

    @property
    def best_model_file(self) -> Path | None:
        """The weights of the epoch with the lowest validation error, or None for a recipe."""
        path = self.path / "best.pt"
        return path if path.is_file() else None

    def _check_length(self, name: str, length: int) -> None:
        if length != self.info.num_audited:
            raise ValueError(
                f"{self.path / name} has {length} instances, but run.json says {self.info.num_audited}: "
                "train again."
            )


def read_run(path: str | os.PathLike[str]) -> RunFolder:
    """Open a run folder; raise if it is missing, incomplete or of another format version."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"There is no run folder {path}: make one with `activebias train … --out {path}`.")
    if not (path / "run.json").is_file():
        raise ValueError(f"{path} is not a run folder (no run.json): give a folder from `activebias train`.")
    try:
        values = json.loads((path / "run.json").read_text(encoding="utf-8"))
        version = values.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path / 'run.json'} is damaged ({error}): train again.") from error
    if version not in _READABLE:
        raise ValueError(
            f"{path} has format version {version}, but this release of activebias reads version {FORMAT}: "
            "train again, or use the release that wrote it."
        )
    missing = [name for name in _FILES if not (path / name).is_file()]
    if not any((path / name).is_file() for name in _INPUTS):
        missing.append(" or ".join(_INPUTS))
    if values.get("num_validation") and not (path / "validation.pt").is_file():
        missing.append("validation.pt")
    if values.get("judges") and not (path / "judges.pt").is_file():
        missing.append("judges.pt")
    if missing:
        raise ValueError(f"{path} is incomplete, it lacks {', '.join(missing)}: train again.")
    try:
        return RunFolder(path, RunInfo(**values))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path / 'run.json'} is damaged ({error}): train again.") from error


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise unless a run can be written to `path`: a new name, an empty folder, or an older run.

    Call this before training, to fail early. The parent folder is created if necessary.
    """
    path = Path(path)
    is_empty = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not is_empty and not (path / "run.json").is_file():
        raise ValueError(
            f"{path} exists and is not a run folder, so it is not overwritten: choose another `--out`."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.rmdir(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise ValueError(
            f"{path} cannot be written ({error.strerror or error}): choose another `--out`."
        ) from error


def write_run(
    path: str | os.PathLike[str],
    info: RunInfo,
    *,
    bias: ActiveBias | Mapping[str, Any],
    model: Mapping[str, torch.Tensor],
    instances: Instances,
    inputs: Inputs,
    validation: Predictions,
    best_model: Mapping[str, torch.Tensor] | None = None,
    validation_history: PredictionHistory | None = None,
    judges_history: PredictionHistory | None = None,
    conflicts: Sequence[Mapping[str, Any]] = (),
    emphasis: Sequence[Sequence[float]] = (),
) -> RunFolder:
    """Write a run folder atomically, and replace an existing run folder.

    `bias` is the bias or its `state_dict()`. `best_model` has the weights of the epoch with the lowest
    validation error. `validation_history` belongs to the validation instances among `instances`,
    `judges_history` to all of them. `conflicts` are the rows of `conflicts.csv`. `emphasis` has the
    learnt weights at the curve's knots after every epoch, and empty rows before.
    """
    path = Path(path)
    check_target(path)
    for name, length in (("instances", len(instances)), ("inputs", len(inputs))):
        if length != info.num_audited:
            raise ValueError(f"`{name}` has {length} entries for {info.num_audited} instances.")
    num_histories = 0 if validation_history is None else validation_history.num_instances
    if num_histories != info.num_validation:
        raise ValueError(
            f"`validation_history` has {num_histories} entries for {info.num_validation} instances."
        )
    if (judges_history is None) != (info.num_judges == 1):
        raise ValueError(f"Expected `judges_history` if there are several judges, not {info.num_judges}.")
    with replacing(path, folder=True) as temporary:
        state = bias.state_dict() if isinstance(bias, ActiveBias) else dict(bias)
        with until_written():
            torch.save(state, temporary / "bias.pt")
            torch.save(dict(model), temporary / "model.pt")
            if best_model is not None:
                torch.save(dict(best_model), temporary / "best.pt")
            if validation_history is not None:
                torch.save(validation_history.state_dict(), temporary / "validation.pt")
            if judges_history is not None:
                torch.save(judges_history.state_dict(), temporary / "judges.pt")
        np.savez_compressed(temporary / "instances.npz", **instances.arrays())
        _write_inputs(temporary, inputs)
        places: Mapping[str, Sequence[Any]] = {"position": validation.position.tolist()}
        if info.num_validation:
            found = places_of(info.kind, instances, inputs)
            places = {name: values[info.num_instances :] for name, values in found.items()}
        _write_validation(temporary / "validation.csv", validation, info.class_names, places)
        if conflicts:
            _write_conflicts(temporary / "conflicts.csv", conflicts)
        if any(emphasis):
            _write_emphasis(temporary / "emphasis.csv", emphasis)
        text = json.dumps({"format": FORMAT, **asdict(info)}, indent=2, ensure_ascii=False)
        (temporary / "run.json").write_text(text + "\n", encoding="utf-8")
    return read_run(path)


def _write_inputs(folder: Path, inputs: Inputs) -> None:
    if inputs.rows is not None:
        inputs.rows.to_parquet(folder / "inputs.parquet", index=False)
        if inputs.identifiers is not None:
            inputs.identifiers.to_parquet(folder / "identifiers.parquet", index=False)
        return
    assert inputs.images is not None  # Inputs checks that either images or rows are given
    names = np.array(inputs.names or [str(number) for number in range(len(inputs))])
    np.savez_compressed(folder / "inputs.npz", images=inputs.images, names=names)


def _write_validation(
    path: Path, predictions: Predictions, class_names: Sequence[str], places: Mapping[str, Sequence[Any]]
) -> None:
    columns = {
        **places,
        "label": [class_names[label] for label in predictions.label],
        "predicted": [class_names[label] for label in predictions.predicted],
        "probability": [f"{probability:.6f}" for probability in predictions.probability],
    }
    columns.setdefault("position", predictions.position.tolist())  # last, as in the audit
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_conflicts(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([safe_cell(name) for name in rows[0]])
        writer.writerows([safe_cell(cell) for cell in row.values()] for row in rows)


def _write_emphasis(path: Path, rows: Sequence[Sequence[float]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", *(f"{mean:.4g}" for mean in knot_means().tolist())])
        writer.writerows([epoch, *row] for epoch, row in enumerate(rows, 1) if row)


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:  # code in the file is never run
            return {name: file[name] for name in file.files}
    except Exception as error:  # zip, zlib and NumPy raise many exception types for a damaged file
        raise ValueError(f"{path} is damaged ({error}): train again.") from error


def require_pandas(purpose: str) -> Any:
    """Return pandas, or raise an error that says how to install it."""
    try:
        import pandas as pd
        import pyarrow as pa  # noqa: F401  (pandas reads and writes parquet with it)
    except ModuleNotFoundError as error:
        raise RuntimeError(f"{purpose} needs {error.name}: pip install 'activebias[report]'") from None
    return pd
