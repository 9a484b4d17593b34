"""What a report shows of one run: its numbers per instance, its audit, and its inputs as text and images."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from activebias import Audit
from activebias.internal import without_prior
from activebias.runs.folder import Inputs, Instances, RunFolder, RunInfo
from activebias.runs.suspects import audit_run

if TYPE_CHECKING:
    from pandas import DataFrame

# A suspect is called sure from this score on: the other class is nine times as probable as the label.
SURE = 0.9


class Field(NamedTuple):
    """One column of what is shown of the inputs: the different texts, and which of them each instance has."""

    name: str
    texts: list[str]
    codes: NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class RunView:
    """A run as the report needs it; arrays have one entry per training instance.

    `values` are the recorded probabilities of the label, (N, T) oldest first, and `visited` says which of
    them are visits.
    """

    info: RunInfo
    name: str
    instances: Instances
    audit: Audit
    values: NDArray[np.float32]
    visited: NDArray[np.bool_]
    images: NDArray[np.uint8] | None
    fields: tuple[Field, ...]

    @property
    def suspected(self) -> NDArray[np.bool_]:
        """Where the model believes in another class than the label's."""
        return self.audit.suspected

    @property
    def sure(self) -> NDArray[np.bool_]:
        """The suspects of the highest scores."""
        return self.suspected & (self.audit.score >= SURE)


def view_run(folder: RunFolder) -> RunView:
    """Read a run folder, audit its history, and put its inputs into what a page can show."""
    info, instances = folder.info, folder.instances()
    values, valid = folder.history()
    visited = without_prior(values, valid, 1 / len(info.class_names))
    inputs = folder.inputs()
    name = folder.path.resolve().name
    fields = tuple(_fields(inputs, instances))
    return RunView(info, name, instances, audit_run(folder), values, visited, inputs.images, fields)


def _fields(inputs: Inputs, instances: Instances) -> list[Field]:
    if inputs.rows is None:
        return [make_field("file", list(inputs.names))] if inputs.names else []
    fields = [make_field(str(column), _as_texts(inputs.rows[column])) for column in inputs.rows.columns]
    if instances.sentence is not None and "word" in inputs.rows.columns:
        fields.append(_sentences(inputs.rows, instances))
    return fields


def make_field(name: str, texts: list[str]) -> Field:
    """Number the different texts, so that what comes often is stored once.

    >>> field = make_field("colour", ["red", "blue", "red"])
    >>> field.texts, field.codes
    (['red', 'blue'], array([0, 1, 0]))
    """
    numbers: dict[str, int] = {}
    codes = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), np.int64, len(texts))
    return Field(name, list(numbers), codes)


def _as_texts(column: "Any") -> list[str]:
    """Turn a column into texts; what is missing shows as nothing."""
    return ["" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]


def _sentences(rows: "DataFrame", instances: Instances) -> Field:
    """Put the words of every sentence together again, with one space between them.

    The page finds an instance's word in it by its number, so a blank within a word is made another blank.
    """
    assert instances.sentence is not None
    assert instances.word is not None
    words = [text.replace(" ", "\u00a0") for text in _as_texts(rows["word"])]
    number, codes = np.unique(instances.sentence, return_inverse=True)
    gathered: list[list[str]] = [[] for _ in number]
    for place in np.lexsort((instances.word, instances.sentence)):
        sentence = gathered[codes[place]]
        # A word that is no training instance leaves a gap, which keeps the numbers right.
        sentence.extend("…" for _ in range(int(instances.word[place]) - len(sentence)))
        sentence.append(words[place])
    return Field("sentence", [" ".join(sentence) for sentence in gathered], codes.astype(np.int64))
