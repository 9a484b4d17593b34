"""The summary of a run in plain words: what was found, how sure that is, and what to do next."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from activebias.report.view import SURE, RunView
from activebias.runs.suspects import excerpt, weak_judge

# Of a class in a sentence.
LONGEST_NAME = 60
# How to find an instance of the exported table in one's own data.
WHERE = {
    "images": "`file` names the image",
    "table": "`position` is the row of your data, counted from 0",
    "text": "`position` is the row of your data, counted from 0",
    "tagging": "`position` is the sentence in your data, counted from 0",
}
KINDS = {"images": "images", "table": "rows", "text": "texts", "tagging": "words"}


def share(part: int, whole: int) -> str:
    """Return a part of a whole in per cent, with as many digits as one reads.

    >>> share(1, 3), share(3, 1000), share(0, 5)
    ('33 %', '0.3 %', '0 %')
    """
    percent = 100 * part / max(whole, 1)
    return f"{percent:.1f} %" if 0 < percent < 9.5 else f"{percent:.0f} %"


def plural(number: int, one: str, many: str) -> str:
    """Return the number with its noun.

    >>> plural(1, "label", "labels"), plural(1200, "label", "labels")
    ('1 label', '1,200 labels')
    """
    return f"{number:,} {one if number == 1 else many}"


def subtitle(view: RunView) -> str:
    """Return what was trained on what, in one line."""
    info = view.info
    return (
        f"{info.source} · {plural(info.num_instances, 'instance', 'instances')} of "
        f"{plural(len(info.class_names), 'class', 'classes')} · method {info.method}, "
        f"{plural(info.epochs, 'epoch', 'epochs')}, seed {info.seed}"
    )


def figures(view: RunView) -> list[dict[str, Any]]:
    """Return the numbers to see at first glance."""
    total = view.info.num_instances
    suspects, sure = int(view.suspected.sum()), int(view.sure.sum())
    found: list[dict[str, Any]] = [
        {"value": f"{total:,}", "name": f"training {KINDS[view.info.kind]}", "note": ""},
        {
            "value": f"{suspects:,}",
            "name": "suspected labels",
            "note": f"{share(suspects, total)} of all",
            "accent": suspects > 0,
        },
        {"value": f"{sure:,}", "name": "of them sure", "note": f"score {SURE} or more"},
    ]
    if conflicts := view.instances.num_conflicts:
        found.append(
            {
                "value": f"{conflicts:,}",
                "name": "conflicts",
                "note": "same input, other label",
                "accent": True,
            }
        )
    errors = view.info.curves.get("validation_error", ())
    if len(errors):
        best = int(np.argmin(errors))
        note = f"best {errors[best]:.1f} % at epoch {best + 1}"
        found.append({"value": f"{errors[-1]:.1f} %", "name": "validation error", "note": note})
    return found


def sentences(view: RunView) -> list[str]:
    """Return the findings, a sentence or two each."""
    total, suspects, sure = view.info.num_instances, int(view.suspected.sum()), int(view.sure.sum())
    things = KINDS[view.info.kind]
    found = [f"The model was trained on {total:,} {things} from {view.info.source}."]
    if unseen := int((view.audit.visits == 0).sum()):
        found.append(f"{unseen:,} of them were never visited, so that nothing can be said about them.")
    if not suspects:
        found.append(
            "Averaged over the epochs it believed in the class of every label, so none is suspected."
        )
        return [*found, *view.info.notes]
    found.append(
        f"For {suspects:,} of them ({share(suspects, total)}) the model, averaged over the epochs, believed "
        f"in another class than the label's. These are the suspected labels. Of {sure:,} it was sure: their "
        f"score is {SURE} or more, and the label had hardly a chance against the other class."
    )
    if suspects > sure:
        found.append(
            f"The other {suspects - sure:,} are less certain: some labels are wrong, some instances hard."
        )
    if doubt := weak_judge(view.info):
        found.append(doubt)
    if pairs := frequent_confusions(view):
        found.append(f"Most often: {'; '.join(pairs)}.")
    return [*found, *view.info.notes]


def frequent_confusions(view: RunView, most: int = 3) -> list[str]:
    """Return the commonest pairs of label and believed class among the suspects, in words."""
    names = [excerpt(name, LONGEST_NAME) for name in view.info.class_names]
    codes = view.instances.label[view.suspected] * len(names) + view.instances.believed[view.suspected]
    pairs, numbers = np.unique(codes, return_counts=True)
    first = np.argsort(-numbers, kind="stable")[:most]
    return [
        f"labelled “{names[pair // len(names)]}”, believed “{names[pair % len(names)]}” ({number:,})"
        for pair, number in zip(pairs[first], numbers[first], strict=True)
        if number > 1
    ]


def advice(view: RunView) -> list[str]:
    """Return what to do next, in order."""
    suspects, sure = int(view.suspected.sum()), int(view.sure.sum())
    steps = []
    if view.info.warnings:
        steps.append("Read the warning first: it says how far the findings can be trusted.")
    if conflicts := view.instances.num_conflicts:
        steps.append(
            f"Compare the {conflicts:,} instances whose input comes with another label too: choose "
            "“Conflicts” above the table. A label is wrong, or the input does not tell the class."
        )
    if sure:
        steps.append(
            f"Look through the {plural(sure, 'sure suspect', 'sure suspects')} near the top of the table, "
            "and correct or remove the labels that are wrong."
        )
    if suspects > sure:
        steps.append("Go on down the table until the labels are mostly right, and stop there.")
    if suspects:
        steps.append(f"Export the table as CSV to work through it elsewhere; {WHERE[view.info.kind]}.")
        steps.append("Train again on the corrected data and compare: `activebias report OLD_RUN NEW_RUN`.")
    else:
        steps.append("Look at the right side of the map: the undecided instances are where more data helps.")
    if view.info.skipped:
        steps.append("See what was left out of training, listed below, and repair it if it matters.")
    return steps


def curves_note(view: RunView) -> str:
    """Return what the curves show: the burn-in, and the distance between training and validation."""
    info = view.info
    train, validation = (info.curves.get(name, ()) for name in ("train_error", "validation_error"))
    parts = []
    if 0 < info.burn_in < info.epochs:
        parts.append(
            f"All instances counted alike for the first {plural(info.burn_in, 'epoch', 'epochs')} (burn-in); "
            f"then {info.method} emphasised."
        )
    if len(train) and len(validation):
        parts.append(
            f"At the end the training error is {train[-1]:.1f} % and the validation error "
            f"{validation[-1]:.1f} %, labels that are wrong themselves included."
        )
    if info.kind == "tagging":
        parts.append(
            "The training error counts words; where the tags are entities, the validation error counts those "
            "(100 - F1)."
        )
    if "recipe" in info.model:
        parts.append("The validation part is the recipe's test set.")
    return " ".join(parts)


def comparison(views: Sequence[RunView], names: Sequence[str]) -> dict[str, Any]:
    """Return the table that sets the runs side by side, as texts."""
    columns = [
        "Run",
        "Method",
        "Seed",
        "Epochs",
        "Instances",
        "Suspects",
        "Sure",
        "Best validation error",
        "Last validation error",
    ]
    rows = [[name, *_comparison_cells(view)] for name, view in zip(names, views, strict=True)]
    note = "Errors are in per cent of each run's validation part, wrong labels included."
    if len({view.info.source for view in views}) > 1 or len({v.info.num_instances for v in views}) > 1:
        note += " The runs come from different data, so that their numbers compare with care only."
    return {"columns": columns, "rows": rows, "note": note}


def _comparison_cells(view: RunView) -> list[str]:
    info = view.info
    errors = info.curves.get("validation_error", ())
    best, last = (f"{min(errors):.2f} %", f"{errors[-1]:.2f} %") if len(errors) else ("–", "–")
    counts = (f"{number:,}" for number in (info.num_instances, view.suspected.sum(), view.sure.sum()))
    return [info.method, str(info.seed), str(info.epochs), *counts, best, last]
