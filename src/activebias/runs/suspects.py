"""The instances of a run as rows or as a CSV file, the labels most likely wrong first."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from activebias.internal import replacing
from activebias.runs.auditing import Audit, audit, joined
from activebias.runs.cells import safe_cell
from activebias.runs.contents import Inputs, Instances, RunInfo, identifiers_beside, places_of
from activebias.runs.folder import RunFolder

EXCERPT_LENGTH = 80
# Words to the left and to the right of a word that is shown in its sentence.
AROUND = 4
# A suspect with this score or more is sure: the other class is nine times as probable as the label.
SURE = 0.9
# A model with a higher validation error, in per cent, is a weak judge of labels.
WEAK = 15.0


def audit_run(folder: RunFolder) -> Audit:
    """Audit a run: its history, and the labels, believed classes and rivals in `instances.npz`.

    The two parts are audited one by one: a visit in training and an epoch of validation have weights of their
    own. Their scores are comparable as they are (docs/audit.md has the measurement). Several judges treat all
    instances alike: each is held out by one judge.
    """
    instances, (values, valid) = folder.instances(), folder.history()

    def audit_part(part: NDArray[np.bool_]) -> Audit:
        return audit(
            (values[part], valid[part]),
            instances.label[part],
            instances.believed[part],
            rival=None if instances.rival_prob is None else instances.rival_prob[part],
            prior=1 / len(folder.info.class_names),
        )

    if folder.info.num_judges > 1:
        return audit_part(np.ones(len(instances), np.bool_))
    parts = (~instances.in_validation, instances.in_validation)
    return joined([audit_part(part) for part in parts if part.any()])


def weak_judge(info: RunInfo) -> str:
    """Return a warning that the model errs often, or an empty text."""
    errors = info.curves.get("validation_error", ())
    if not len(errors) or min(errors) <= WEAK:
        return ""
    lowest = f"The lowest validation error is {min(errors):.0f} %. If the validation labels are right,"
    if info.num_judges > 1:
        return (
            f"{lowest} the judges are weak, and many suspects are their own mistakes: begin at the top of "
            "the list."
        )
    return (
        f"{lowest} the model is a weak judge, and many suspects are its own mistakes: begin at the top of "
        "the list."
    )


def judges_note(info: RunInfo) -> str:
    """Say how several judges were averaged; an empty text for one model.

    Every instance is held out by one judge, so validation instances are judged as all others.
    """
    if info.num_judges == 1:
        return ""
    epochs = info.judges["epochs"]
    which = f"epoch {epochs[0]}"
    if len(epochs) > 1:
        all_of_them = len(epochs) == epochs[-1] - epochs[0] + 1
        which = f"{'' if all_of_them else f'{len(epochs)} of the '}epochs {epochs[0]} to {epochs[-1]}"
    return (
        f"{info.num_judges} models judged every label, and one of them had not trained on it. Their beliefs "
        f"are averaged over {which}, in which held-out labels were most probable."
    )


def is_sure(found: Audit) -> NDArray[np.bool_]:
    """Return which instances are suspects with a score of at least `SURE`."""
    return found.suspected & (found.score >= SURE)


def at_least(info: RunInfo, num_sure: int) -> str:
    """Say how many labels are wrong at least, if several judges are sure; else an empty text.

    docs/audit.md has the share of such labels that were wrong. One model alone is too often sure and wrong.
    """
    if info.num_judges == 1 or not num_sure:
        return ""
    return (
        f"Expect at least about {num_sure:,} wrong labels: the judges are sure about so many (a score of "
        f"{SURE} or more). How many more are wrong cannot be told."
    )


def class_ranks(found: Audit, label: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return every instance's rank among the instances with its label, the most suspicious 1."""
    ranks = np.empty(len(found), np.int64)
    for code in np.unique(label):
        members = found.order[label[found.order] == code]
        ranks[members] = np.arange(1, len(members) + 1)
    return ranks


def rows(
    folder: RunFolder, found: Audit, limit: int | None = None, *, by_class: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield one dict per instance, the most suspicious first, at most `limit`; unknown values are None.

    The columns that identify the rows of a table come behind `row`. No two columns have the same name: an
    identifier with the name `index` is `index_` here.

    With `by_class` the most suspicious instance of every label comes first, then the second of every label,
    and so on: a large class with few wrong labels is audited too.
    """
    instances, names, inputs = folder.instances(), folder.info.class_names, folder.inputs()
    describe, places = describer(inputs, folder.info.kind), places_of(folder.info.kind, instances, inputs)
    if instances.sentence is not None and instances.word is not None and inputs.rows is not None:
        describe = words_in_sentences(inputs.rows.iloc[:, 0].tolist(), instances)
    numbers: dict[str, NDArray[Any]] = {
        "confidence": found.confidence,
        "variability": found.variability,
        "correctness": found.correctness,
        "label_prob": instances.label_prob,
        "believed_prob": instances.believed_prob,
    }
    suspected, conflict, validates = found.suspected, instances.conflict, instances.in_validation
    ranks, order = class_ranks(found, instances.label), found.order
    identifiers: dict[str, list[str | None]] | None = None
    if by_class:
        order = order[np.argsort(ranks[order], kind="stable")]
    for index in order[:limit].tolist():
        place = {name: values[index] for name, values in places.items()}
        row: dict[str, Any] = {
            "label": names[instances.label[index]],
            "believed": names[instances.believed[index]],
            "score": _known(found.score[index]),
            "suspected": bool(suspected[index]),
            "conflict": None if conflict is None else int(conflict[index]) or None,
            "class_rank": int(ranks[index]),
            "part": "validation" if validates[index] else "training",
            **{name: _known(values[index]) for name, values in numbers.items()},
            "visits": int(found.visits[index]),
            "index": index,
            "position": int(instances.position[index]),
            "instance": describe(index),
        }
        if identifiers is None:
            identifiers = identifiers_beside([*place, *row], inputs.identifiers)
        yield place | {name: cells[index] for name, cells in identifiers.items()} | row


def describer(inputs: Inputs, kind: str) -> Callable[[int], str]:
    """Return a function from an instance to a short description: its file name, text, word or row."""
    if inputs.rows is None:
        file_names = inputs.names
        return str if file_names is None else lambda index: file_names[index]
    # Lists, because access to single rows of a data frame is slow. A missing value is a dash.
    shown = inputs.rows.astype(object).where(inputs.rows.notna(), "–")
    columns = {str(name): shown[name].tolist() for name in shown.columns}
    if kind != "table":  # the text, or the word, is the first column
        texts = next(iter(columns.values()))
        return lambda index: excerpt(str(texts[index]))
    return lambda index: excerpt(", ".join(f"{name}={values[index]}" for name, values in columns.items()))


def words_in_sentences(words: Sequence[str], instances: Instances) -> Callable[[int], str]:
    """Return a function from a word to the word and the words around it in its sentence."""
    assert instances.sentence is not None
    assert instances.word is not None
    sentence = list(zip(instances.in_validation.tolist(), instances.sentence.tolist(), strict=True))
    place = instances.word.tolist()
    members: dict[tuple[bool, int], dict[int, str]] = {}
    for key, number, word in zip(sentence, place, words, strict=True):
        members.setdefault(key, {})[number] = str(word)

    def describe(index: int) -> str:
        inside, here = members[sentence[index]], place[index]
        around = range(max(here - AROUND, 0), min(here + AROUND, max(inside)) + 1)
        text = " ".join(inside.get(number, "…") for number in around)
        start, end = "… " * (around.start > 0), " …" * (around.stop <= max(inside))
        return excerpt(f"{words[index]} in “{start}{text}{end}”")

    return describe


def excerpt(text: str, length: int = EXCERPT_LENGTH) -> str:
    """Return the beginning of a text as one line.

    >>> excerpt("one two\\n three", 9)
    'one two …'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def write_csv(
    folder: RunFolder, found: Audit, path: Path, *, exact: bool = False, by_class: bool = False
) -> None:
    """Write all instances atomically, the most suspicious first; `exact` does not escape formulas."""
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        for number, row in enumerate(rows(folder, found, by_class=by_class)):
            if number == 0:
                writer.writerow(row if exact else [safe_cell(name) for name in row])
            cells = [f"{value:.6g}" if isinstance(value, float) else value for value in row.values()]
            writer.writerow(cells if exact else [safe_cell(cell) for cell in cells])


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
