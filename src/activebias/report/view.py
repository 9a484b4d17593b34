"""The data of one run for the report: numbers per instance, the audit, and the inputs as text and images."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from activebias.runs.auditing import Audit, without_prior
from activebias.runs.contents import Emphasis, Inputs, Instances, RunInfo
from activebias.runs.folder import RunFolder
from activebias.runs.suspects import audit_run, is_sure

if TYPE_CHECKING:
    from pandas import DataFrame


class Field(NamedTuple):
    """One column of the inputs: its different texts, and the number of every instance's text.

    A column that `identifies` the rows was not trained on.
    """

    name: str
    texts: list[str]
    codes: NDArray[np.int64]
    identifies: bool = False


@final
@dataclass(frozen=True, eq=False)
class RunView:
    """A run, prepared for the report; arrays have one entry per training instance.

    `values` are the recorded probabilities of the label, (N, T) oldest first. `visited` is the mask of
    visits among them. `validation_label` and `validation_predicted` are those of the trained model on the
    validation part. `emphasis` is the curve that the method has learnt, None for most methods.
    """

    info: RunInfo
    name: str
    instances: Instances
    audit: Audit
    values: NDArray[np.float32]
    visited: NDArray[np.bool_]
    images: NDArray[np.uint8] | None
    fields: tuple[Field, ...]
    validation_label: NDArray[np.int64]
    validation_predicted: NDArray[np.int64]
    emphasis: Emphasis | None = None

    @property
    def suspected(self) -> NDArray[np.bool_]:
        """Whether the model believes in a class other than the label."""
        return self.audit.suspected

    @property
    def sure(self) -> NDArray[np.bool_]:
        """Whether an instance is a suspect with a high score."""
        return is_sure(self.audit)


def view_run(folder: RunFolder) -> RunView:
    """Read a run folder, audit its history, and prepare its inputs for the page."""
    info, instances = folder.info, folder.instances()
    values, valid = folder.history()
    visited = without_prior(values, valid, 1 / len(info.class_names))
    inputs = folder.inputs()
    name = folder.path.resolve().name
    fields = tuple(_fields(inputs, instances))
    code = {name: number for number, name in enumerate(info.class_names)}
    label, predicted = (
        np.array([code[row[column]] for row in folder.validation()], dtype=np.int64)
        for column in ("label", "predicted")
    )
    found = audit_run(folder)
    emphasis = folder.emphasis()
    return RunView(
        info, name, instances, found, values, visited, inputs.images, fields, label, predicted, emphasis
    )


def _fields(inputs: Inputs, instances: Instances) -> list[Field]:
    if inputs.rows is None:
        return [make_field("file", list(inputs.names))] if inputs.names else []
    fields = [make_field(str(column), _as_texts(inputs.rows[column])) for column in inputs.rows.columns]
    if instances.sentence is not None and "word" in inputs.rows.columns:
        fields.append(_sentences(inputs.rows, instances))
    if (frame := inputs.identifiers) is not None:
        named = [make_field(str(name), _as_texts(frame[name]))._replace(identifies=True) for name in frame]
        fields = [*named, *fields]
    return fields


def make_field(name: str, texts: list[str]) -> Field:
    """Number the different texts, so that repeated texts are stored once.

    >>> field = make_field("colour", ["red", "blue", "red"])
    >>> field.texts, field.codes
    (['red', 'blue'], array([0, 1, 0]))
    """
    numbers: dict[str, int] = {}
    codes = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), np.int64, len(texts))
    return Field(name, list(numbers), codes)


def _as_texts(column: "Any") -> list[str]:
    """Return a column as texts; missing values become empty."""
    return ["" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]


def _sentences(rows: "DataFrame", instances: Instances) -> Field:
    """Join the words of every sentence with single spaces.

    The page splits a sentence at the spaces to find a word. A space inside a word therefore becomes a
    no-break space.
    """
    assert instances.sentence is not None
    assert instances.word is not None
    words = [text.replace(" ", "\u00a0") for text in _as_texts(rows["word"])]
    number, codes = np.unique(instances.sentence, return_inverse=True)
    gathered: list[list[str]] = [[] for _ in number]
    for place in np.lexsort((instances.word, instances.sentence)):
        sentence = gathered[codes[place]]
        # A word that is not a training instance becomes "…", so that the following words keep their numbers.
        sentence.extend("…" for _ in range(int(instances.word[place]) - len(sentence)))
        sentence.append(words[place])
    return Field("sentence", [" ".join(sentence) for sentence in gathered], codes.astype(np.int64))
