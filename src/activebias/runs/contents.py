"""The parts of a run folder as dataclasses: settings and results, instances, inputs, predictions."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame

KINDS = ("images", "table", "text", "tagging")
Kind = Literal["images", "table", "text", "tagging"]
THINGS = {"images": "images", "table": "rows", "text": "rows", "tagging": "words"}
# The options of the command line that name data of each kind.
OPTIONS = {"images": "--images", "table": "--csv", "text": "--csv", "tagging": "--conll"}


@final
@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The content of `run.json`. `burn_in` is the first epoch in which instances were emphasised.

    `curves` holds lists with one number per epoch, errors in per cent: `train_error`, `validation_error`.
    `skipped` lists the skipped inputs, as {"what": …, "why": …}. `model` holds the name and the arguments
    that build the model again. `num_instances` counts the training instances, and `num_validation` the
    validation instances that are audited. `judges` is empty if one model was trained. Else it holds the
    `number` of models whose beliefs are averaged, and the `epochs` that count, from 1. `settings` holds the
    options of the user that the other fields do not tell: `target`, `validation` and `burn_in`.
    `explanation` is the method's sentence about the curve that it has learnt, empty for methods that learn
    nothing.
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
    num_validation: int = 0
    judges: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    explanation: str = ""

    @property
    def num_judges(self) -> int:
        """The number of models whose beliefs are averaged."""
        return int(self.judges.get("number", 1))

    @property
    def num_audited(self) -> int:
        """The number of instances of both parts."""
        return self.num_instances + self.num_validation

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
    """One entry per instance (in tagging: per word): training instances in the order of the history.

    Validation instances follow the training instances, and `validates` tells them apart.

    The class probabilities are those after every epoch, averaged over the epochs. `believed` is the class
    with the highest mean, and `believed_prob` its mean. `label_prob` is the mean of the label, `rival_prob`
    the highest mean of the other classes, which improves the ranking of the audit. The mean shows the belief
    of the early epochs, even if the model has memorised the labels at the end. `weight` is the final v.
    `position` is the row in the source; in tagging `sentence` and `word` count from 0. `conflict` is the
    number of the group in `conflicts.csv`, or 0. `identity` is a digest of the input, without its label: with
    it, another run finds the same input again.
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
    validates: NDArray[np.bool_] | None = None
    identity: NDArray[np.uint64] | None = None

    def __post_init__(self) -> None:
        """Raise if the arrays have different lengths."""
        lengths = {name: len(array) for name, array in self.arrays().items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"Expected arrays of the same length, but got {lengths}.")

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.label)

    @property
    def in_validation(self) -> NDArray[np.bool_]:
        """Whether an instance is in the validation part."""
        return np.zeros(len(self), np.bool_) if self.validates is None else self.validates

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
    `identifiers` has the texts of the columns that identify the rows of a table; they are not trained on.
    """

    images: NDArray[np.uint8] | None = None
    names: tuple[str, ...] | None = None
    rows: "DataFrame | None" = None
    identifiers: "DataFrame | None" = None

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
class Emphasis:
    """The curve of a method that learns: `weights` (epochs, knots) over p̄, `means` (knots,).

    `epochs` counts from 1; the first epochs, before anything was learnt, have no row.
    """

    epochs: NDArray[np.int64]
    means: NDArray[np.float64]
    weights: NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The trained model's predictions on the validation part; `position` is the row in its source."""

    position: NDArray[np.int64]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    probability: NDArray[np.float32]


def places_of(kind: str, instances: Instances, inputs: Inputs) -> dict[str, Sequence[Any]]:
    """Return where the instances are in the user's data, by names that say so.

    The names are `row` in a table, `file` of images, `sentence` and `word` in tagged text, all counted from
    0. Images without file names (of a recipe) have their `position` in the data set.
    """
    position: list[int] = instances.position.tolist()
    if instances.sentence is not None and instances.word is not None:
        return {"sentence": instances.sentence.tolist(), "word": instances.word.tolist()}
    if kind != "images":
        return {"sentence" if kind == "tagging" else "row": position}
    # A run folder numbers the images that have no file names.
    if inputs.names is None or inputs.names == tuple(map(str, range(len(inputs)))):
        return {"position": position}
    return {"file": inputs.names}


def identifiers_beside(
    columns: Iterable[str], identifiers: "DataFrame | None"
) -> dict[str, list[str | None]]:
    """Return the columns that identify the rows, for a table that has other `columns` too.

    A name that the table has already gets a `_`. Missing cells are None.
    """
    named: dict[str, list[str | None]] = {}
    if identifiers is None:
        return named
    taken = set(columns)
    for name in identifiers:
        cells = identifiers[name].astype(object)
        while name in taken:
            name += "_"
        taken.add(name)
        named[name] = cells.where(cells.notna(), None).tolist()
    return named
