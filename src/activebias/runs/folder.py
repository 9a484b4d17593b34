"""The run folder: `activebias train` writes it, `audit` and `report` read it.

| file | content |
|---|---|
| `run.json` | `RunInfo`: settings, curves, warnings, skipped inputs |
| `bias.pt` | the state of `ActiveBias`: history and scores |
| `model.pt` | the model's state_dict |
| `instances.npz` | `Instances`: label, believed class, weight of every training instance |
| `inputs.npz` or `inputs.parquet` | `Inputs`: images, or the rows of a table, or texts, or words |
| `validation.csv` | the predictions on the validation part |
| `conflicts.csv` | for a person: instances with the same input and different labels; only if there are any |

A folder is written under a temporary name and renamed at the end. A killed process therefore never leaves an
incomplete run folder.
"""

import csv
import json
import os
import tempfile
from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray

from activebias import ActiveBias, PredictionHistory
from activebias.internal import read_checkpoint, replacing
from activebias.runs.cells import safe_cell

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = 1
KINDS = ("images", "table", "text", "tagging")
Kind = Literal["images", "table", "text", "tagging"]

_FILES = ("bias.pt", "model.pt", "instances.npz", "validation.csv")
_INPUTS = ("inputs.npz", "inputs.parquet")


@final
@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The content of `run.json`. `burn_in` is the first epoch in which instances were emphasised.

    `curves` holds lists with one number per epoch, errors in per cent: `train_error`, `validation_error`.
    `skipped` lists the skipped inputs, as {"what": …, "why": …}. `model` holds the name and the arguments
    that build the model again.
    """

    kind: Kind
    title: str
    method: str
    seed: int
    epochs: int
    burn_in: int
    window: int | None
    class_names: tuple[str, ...]
    num_instances: int
    source: str
    curves: Mapping[str, Sequence[float]]
    warnings: tuple[str, ...] = ()
    skipped: tuple[Mapping[str, str], ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise if a value cannot be read again."""
        if self.kind not in KINDS:
            raise ValueError(f"Expected `kind` to be one of {', '.join(KINDS)}, but got {self.kind!r}.")
        for name in ("class_names", "warnings", "skipped", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists, but no tuples
        if lengths := {k: len(v) for k, v in self.curves.items() if len(v) != self.epochs}:
            raise ValueError(
                f"Expected `curves` to have one number per epoch ({self.epochs}), but got {lengths}."
            )


@final
@dataclass(frozen=True, kw_only=True)
class Instances:
    """One entry per training instance (in tagging: per word), in the order of the history.

    The class probabilities are those after every epoch, averaged over the epochs. `believed` is the class
    with the highest mean, and `believed_prob` its mean. `label_prob` is the mean of the label, `rival_prob`
    the highest mean of the other classes, which improves the ranking of the audit. The mean shows the belief
    of the early epochs, even if the model has memorised the labels at the end. `weight` is the final v.
    `position` is the row in the source; in tagging `sentence` and `word` count from 0. `conflict` is the
    number of the group in `conflicts.csv`, or 0.
    """

    label: NDArray[np.int64]
    believed: NDArray[np.int64]
    believed_prob: NDArray[np.float32]
    label_prob: NDArray[np.float32]
    weight: NDArray[np.float32]
    position: NDArray[np.int64]
    rival_prob: NDArray[np.float32] | None = None
    sentence: NDArray[np.int64] | None = None
    word: NDArray[np.int64] | None = None
    conflict: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Raise if the arrays have different lengths."""
        lengths = {name: len(array) for name, array in self.arrays().items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"Expected arrays of the same length, but got {lengths}.")

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.label)

    @property
    def num_conflicts(self) -> int:
        """The number of instances that share their input with an instance of another label."""
        return 0 if self.conflict is None else int((self.conflict > 0).sum())

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that are not None, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: np.asarray(value) for name, value in values.items() if value is not None}


@final
@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs to show to a person: images with their file names, or rows.

    `images` are uint8, (N, H, W) or (N, H, W, 3), as in training. `rows` is a data frame with one row per
    instance. It has the columns of a table (text columns first), or the column `word` in tagging.
    """

    images: NDArray[np.uint8] | None = None
    names: tuple[str, ...] | None = None
    rows: "DataFrame | None" = None

    def __post_init__(self) -> None:
        """Raise unless either images or rows are given."""
        if (self.images is None) == (self.rows is None):
            raise ValueError("Expected exactly one of `images` and `rows`.")

    def __len__(self) -> int:
        """Return the number of instances."""
        shown: Sized | None = self.rows if self.images is None else self.images
        return 0 if shown is None else len(shown)


@final
@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The trained model's predictions on the validation part; `position` is the row in its source."""

    position: NDArray[np.int64]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    probability: NDArray[np.float32]


@final
@dataclass(frozen=True)
class RunFolder:
    """A complete run folder; every method reads its file when it is called."""

    path: Path
    info: RunInfo

    def history(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the recorded p(y|x), (N, T) oldest first, and the mask of valid entries.

        The first entry is 1/C, unless a window has dropped it.
        """
        state = self.bias_state()
        try:
            settings = state["settings"]
            history = PredictionHistory(
                settings["num_instances"],
                initial=1 / settings["num_classes"],
                window=settings["window"],
                storage=settings["storage"],
            )
            history.load_state_dict(state["history"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path / 'bias.pt'} is damaged: {error!r}; train again.") from error
        values, valid = history.values()
        return values.numpy(), valid.numpy()

    def bias_state(self) -> dict[str, Any]:
        """Return the state of the bias, for `ActiveBias.load_state_dict`."""
        return read_checkpoint(self.path / "bias.pt")

    def instances(self) -> Instances:
        """Return labels, believed classes and weights of the training instances."""
        arrays = _read_arrays(self.path / "instances.npz")
        try:
            instances = Instances(**arrays)
        except TypeError as error:
            raise ValueError(f"{self.path / 'instances.npz'} is damaged: {error}; train again.") from error
        self._check_length("instances.npz", len(instances))
        return instances

    def inputs(self) -> Inputs:
        """Return the images or rows of the training instances."""
        parquet = self.path / "inputs.parquet"
        if parquet.exists():
            rows = require_pandas("reading a table").read_parquet(parquet)
            self._check_length(parquet.name, len(rows))
            return Inputs(rows=rows)
        arrays = _read_arrays(self.path / "inputs.npz")
        self._check_length("inputs.npz", len(arrays["images"]))
        return Inputs(images=arrays["images"], names=tuple(str(name) for name in arrays["names"]))

    def model_state(self) -> dict[str, torch.Tensor]:
        """Return the model's state_dict, on the CPU."""
        return read_checkpoint(self.path / "model.pt")

    def validation(self) -> list[dict[str, str]]:
        """Return the predictions on the validation part, one dict per line of `validation.csv`."""
        with open(self.path / "validation.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @property
    def conflicts_file(self) -> Path | None:
        """The file of instances with the same input and different labels, or None if there are none."""
        path = self.path / "conflicts.csv"
        return path if path.is_file() else None

    def _check_length(self, name: str, length: int) -> None:
        if length != self.info.num_instances:
            raise ValueError(
                f"{self.path / name} has {length} instances, but run.json says {self.info.num_instances}: "
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
    if version != FORMAT:
        raise ValueError(
            f"{path} has format version {version}, but this release of activebias reads version {FORMAT}: "
            "train again, or use the release that wrote it."
        )
    missing = [name for name in _FILES if not (path / name).is_file()]
    if not any((path / name).is_file() for name in _INPUTS):
        missing.append(" or ".join(_INPUTS))
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
    conflicts: Sequence[Mapping[str, Any]] = (),
) -> RunFolder:
    """Write a run folder atomically, and replace an existing run folder.

    `bias` is the bias or its `state_dict()`. `conflicts` are the rows of `conflicts.csv`.
    """
    path = Path(path)
    check_target(path)
    for name, length in (("instances", len(instances)), ("inputs", len(inputs))):
        if length != info.num_instances:
            raise ValueError(f"`{name}` has {length} entries for {info.num_instances} instances.")
    with replacing(path, folder=True) as temporary:
        state = bias.state_dict() if isinstance(bias, ActiveBias) else dict(bias)
        torch.save(state, temporary / "bias.pt")
        torch.save(dict(model), temporary / "model.pt")
        np.savez_compressed(temporary / "instances.npz", **instances.arrays())
        _write_inputs(temporary, inputs)
        _write_validation(temporary / "validation.csv", validation, info.class_names)
        if conflicts:
            _write_conflicts(temporary / "conflicts.csv", conflicts)
        text = json.dumps({"format": FORMAT, **asdict(info)}, indent=2, ensure_ascii=False)
        (temporary / "run.json").write_text(text + "\n", encoding="utf-8")
    return read_run(path)


def _write_inputs(folder: Path, inputs: Inputs) -> None:
    if inputs.rows is not None:
        inputs.rows.to_parquet(folder / "inputs.parquet", index=False)
        return
    assert inputs.images is not None  # Inputs checks that either images or rows are given
    names = np.array(inputs.names or [str(number) for number in range(len(inputs))])
    np.savez_compressed(folder / "inputs.npz", images=inputs.images, names=names)


def _write_validation(path: Path, predictions: Predictions, class_names: Sequence[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["position", "label", "predicted", "probability"])
        columns = (predictions.position, predictions.label, predictions.predicted, predictions.probability)
        for position, label, predicted, probability in zip(*columns, strict=True):
            writer.writerow([position, class_names[label], class_names[predicted], f"{probability:.6f}"])


def _write_conflicts(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        writer.writerows([safe_cell(cell) for cell in row.values()] for row in rows)


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
