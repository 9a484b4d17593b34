"""The summary of a run in plain words: the findings, their certainty, and the next steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from activebias.report.classes import balanced_error
from activebias.report.view import RunView
from activebias.runs.contents import THINGS
from activebias.runs.outcome import error_measure, plural
from activebias.runs.suspects import SURE, at_least, excerpt, judges_note, weak_judge

# The most letters of a class name in a sentence.
LONGEST_NAME = 60


def share(part: int, whole: int) -> str:
    """Return a part of a whole in per cent, with a decimal place only below 10 %.

    >>> share(1, 3), share(3, 1000), share(0, 5)
    ('33 %', '0.3 %', '0 %')
    """
    percent = 100 * part / max(whole, 1)
    return f"{percent:.1f} %" if 0 < percent < 9.5 else f"{percent:.0f} %"


def subtitle(view: RunView) -> str:
    """Return data, method and settings of the training in one line."""
    info = view.info
    return (
        f"{info.source} · {plural(info.num_audited, 'instance', 'instances')} of "
        f"{plural(len(info.class_names), 'class', 'classes')} · method {info.method}, "
        f"{plural(info.epochs, 'epoch', 'epochs')}, seed {info.seed}"
        f"{f', {info.num_judges} judges' if info.num_judges > 1 else ''}"
    )


def figures(view: RunView) -> list[dict[str, Any]]:
    """Return the most important numbers."""
    info, total = view.info, view.info.num_audited
    suspects, sure = int(view.suspected.sum()), int(view.sure.sum())
    parts = [("train", info.num_instances), ("validate", info.num_validation)]
    found: list[dict[str, Any]] = [
        {
            "value": f"{total:,}",
            "name": THINGS[info.kind],
            "note": ", ".join(f"{number:,} {name}" for name, number in parts if number),
        },
        {
            "value": f"{suspects:,}",
            "name": "suspected labels",
            "note": f"{share(suspects, total)} of all {THINGS[view.info.kind]}",
            "accent": suspects > 0,
        },
        {"value": f"{sure:,}", "name": "sure suspects", "note": f"score {SURE} or more"},
    ]
    if conflicts := view.instances.num_conflicts:
        found.append(
            {
                "value": f"{conflicts:,}",
                "name": "conflicts",
                "note": "same input, different label",
                "accent": True,
            }
        )
    errors = view.info.curves.get("validation_error", ())
    if len(errors):
        best = int(np.argmin(errors))
        note = f"best {errors[best]:.1f} % at epoch {best + 1}"
        if (balanced := balanced_error(view)) is not None and info.kind != "tagging":
            note += f"; {balanced:.1f} % if every class counts the same"
        name = "validation error" if error_measure(info) == "" else f"validation error, {error_measure(info)}"
        found.append({"value": f"{errors[-1]:.1f} %", "name": name, "note": note})
    return found


def sentences(view: RunView) -> list[str]:
    """Return the findings, in one or two sentences each."""
    total, suspects, sure = view.info.num_audited, int(view.suspected.sum()), int(view.sure.sum())
    things = THINGS[view.info.kind]
    found = [f"The model was trained on {view.info.num_instances:,} {things} from {view.info.source}."]
    if judges := judges_note(view.info):
        found.append(judges)
    elif view.info.num_validation:
        found.append(
            f"The labels of the {view.info.num_validation:,} validation {things} are audited too. The model "
            "never trained on them, so that more of their suspects are its own mistakes."
        )
    if unseen := int((view.audit.visits == 0).sum()):
        found.append(f"Never visited: {unseen:,}. Nothing is known about these instances.")
    if not suspects:
        found.append(
            "Averaged over the epochs, the model believed in the class of every label: no label is suspected."
        )
        return [*found, *view.info.notes]
    found.append(
        f"For {suspects:,} of {total:,} {things} ({share(suspects, total)}) the model, averaged over the "
        "epochs, believed in a class other than the label. These labels are suspected. Their number is no "
        f"estimate of the number of wrong labels. The model was sure about {sure:,} of them: a score of "
        f"{SURE} or more, the other class much more probable than the label."
    )
    if least := at_least(view.info, sure):
        found.append(least)
    if suspects > sure:
        found.append(f"Less certain suspects: {suspects - sure:,}. Each is a wrong label or a hard instance.")
    if doubt := weak_judge(view.info):
        found.append(doubt)
    if pairs := frequent_confusions(view):
        found.append(f"Most often: {'; '.join(pairs)}.")
    return [*found, *view.info.notes]


def frequent_confusions(view: RunView, most: int = 3) -> list[str]:
    """Return the most frequent pairs of label and believed class among the suspects, in words."""
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
    """Return the next steps, in order."""
    suspects, sure = int(view.suspected.sum()), int(view.sure.sum())
    steps = []
    if view.info.warnings:
        steps.append("Read the warning first: it says how far you can trust the findings.")
    if conflicts := view.instances.num_conflicts:
        steps.append(
            f"Compare the {plural(conflicts, 'instance', 'instances')} with the same input as an instance of "
            "another label: choose “Conflicts” above the table. Either a label is wrong, or the input does "
            "not determine the class."
        )
    if sure:
        steps.append(
            f"Look through the {plural(sure, 'sure suspect', 'sure suspects')} near the top of the table, "
            "and correct or remove the wrong labels."
        )
    if suspects > sure:
        steps.append("Continue down the table until most labels are right.")
    if suspects:
        steps.append(
            "Decide about each of them (keys A, K, O), export corrections.csv and write the corrected data: "
            "`activebias apply corrections.csv --run RUN --out NEW`."
        )
        steps.append(
            "Train again with the same split, `activebias train … --like RUN`, and compare: "
            "`activebias report RUN NEW_RUN`."
        )
    else:
        steps.append("Look at the right side of the map: more data helps for the undecided instances.")
    if view.info.skipped:
        steps.append("Read the list of skipped inputs below, and repair them if necessary.")
    return steps


def curves_note(view: RunView) -> str:
    """Describe the curves: the burn-in, and the training and validation error at the end."""
    info = view.info
    train, validation = (info.curves.get(name, ()) for name in ("train_error", "validation_error"))
    parts = []
    if 0 < info.burn_in < info.epochs:
        parts.append(
            f"All instances had the same weight in the first {plural(info.burn_in, 'epoch', 'epochs')} "
            f"(burn-in). Then {info.method} emphasised instances."
        )
    if len(train) and len(validation):
        parts.append(
            f"At the end the training error is {train[-1]:.1f} % and the validation error "
            f"{validation[-1]:.1f} %. Both are measured against the given labels, including wrong labels."
        )
    if measure := error_measure(info):
        parts.append(f"Both errors are {measure}.")
    if "recipe" in info.model:
        parts.append("The validation part is the recipe's test set.")
    return " ".join(parts)


def emphasis_note(view: RunView) -> str:
    """Describe the curve that the method has learnt; empty if it has learnt none."""
    if view.emphasis is None:
        return ""
    return (
        f"{view.info.explanation} The method {view.info.method} has learnt this from validation data. p̄ is "
        "the mean of the probabilities that the model gave an instance's label in training. There is a line "
        "for each epoch, or for some of many, the first ones pale."
    )


def comparison(views: Sequence[RunView], names: Sequence[str]) -> dict[str, Any]:
    """Return a table with one row per run, as texts."""
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
    note = "Errors are in per cent of each run's validation part, including its wrong labels."
    if len({view.info.source for view in views}) > 1 or len({v.info.num_instances for v in views}) > 1:
        note += " The runs have different data: compare their numbers with care."
    return {"columns": columns, "rows": rows, "note": note}


def _comparison_cells(view: RunView) -> list[str]:
    info = view.info
    errors = info.curves.get("validation_error", ())
    best, last = (f"{min(errors):.2f} %", f"{errors[-1]:.2f} %") if len(errors) else ("–", "–")
    counts = (f"{number:,}" for number in (info.num_audited, view.suspected.sum(), view.sure.sum()))
    return [info.method, str(info.seed), str(info.epochs), *counts, best, last]
