"""Several runs in one report: compared on common validation rows, in place of errors that mislead."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from activebias.report.repeats import Described, repeated
from activebias.report.view import RunView
from activebias.runs.before_after import BeforeAfter
from activebias.runs.contents import THINGS, Instances, RunInfo
from activebias.runs.folder import RunFolder

HIDDEN = "not comparable"


def with_before_after(
    table: dict[str, Any], views: Sequence[RunView], names: Sequence[str], found: Sequence[BeforeAfter]
) -> dict[str, Any]:
    """Return the table of the comparison with sentences about the common rows.

    `found` compares the first run with each of the others, or is empty. If the validation parts differ, the
    errors of the whole parts are left out: the last two columns of both tables, and the chart. Runs that
    repeat each other with other seeds may differ, if all methods have the same parts.
    """
    sentences = [] if table.get("means") else _sentences(views, names, found)
    if have_same_parts(views):
        return table | ({"sentences": sentences} if sentences else {})
    what = THINGS[views[0].info.kind]
    if table.get("means"):
        sentences = [
            f"The methods were validated on different {what}, or with other labels, so their errors "
            "are not comparable. Train all methods with the same seeds on the same data."
        ]
    hidden = {"rows": _without_errors(table["rows"]), "sentences": sentences, "hides_errors": True}
    if table.get("means"):
        hidden["means"] = table["means"] | {"rows": _without_errors(table["means"]["rows"])}
    return table | hidden


def have_same_parts(views: Sequence[Described]) -> bool:
    """Return whether the methods were validated on the same inputs with the same labels.

    Runs that repeat each other are one method. Runs of recipes do not know their inputs: they are taken to
    have the same test set.
    """
    if any(view.instances.identity is None or not view.info.num_validation for view in views):
        return True
    parts = [_part(view) for view in views]
    methods = [Counter(parts[number] for number in group) for group in repeated(views)]
    return all(method == methods[0] for method in methods)


class _Run(NamedTuple):
    info: RunInfo
    instances: Instances


def different_parts(folders: Sequence[RunFolder]) -> str:
    """Return a warning that the errors of the runs are not comparable, or an empty text."""
    if have_same_parts([_Run(folder.info, folder.instances()) for folder in folders]):
        return ""
    what = THINGS[folders[0].info.kind]
    return (
        f"The runs were validated on different {what}, or with other labels: their validation errors are not "
        f"comparable. The report compares them on common {what} only."
    )


def _part(view: Described) -> frozenset[tuple[Any, int]]:
    """Return the validation instances (input, word and label), and how often each occurs."""
    instances, names = view.instances, view.info.class_names
    held_out = instances.in_validation
    assert instances.identity is not None
    identity, label = instances.identity[held_out].tolist(), instances.label[held_out].tolist()
    words = [0] * len(identity) if instances.word is None else instances.word[held_out].tolist()
    keys = zip(identity, words, (names[code] for code in label), strict=True)
    return frozenset(Counter(keys).items())


def _sentences(views: Sequence[RunView], names: Sequence[str], found: Sequence[BeforeAfter]) -> list[str]:
    what = THINGS[views[0].info.kind]
    if len(found) < 2:
        return [sentence for each in found for sentence in each.sentences(what)]
    return [
        f"{names[0]} (before) and {name} (after): {' '.join(each.sentences(what))}"
        for name, each in zip(names[1:], found, strict=True)
    ]


def _without_errors(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[*row[:-2], HIDDEN, HIDDEN] for row in rows]
