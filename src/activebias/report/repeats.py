"""Runs that repeat one training with other seeds: their mean and standard error per method."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from activebias.report.view import RunView
from activebias.runs.contents import Instances, RunInfo
from activebias.runs.outcome import plural

CURVE = "validation_error"


class Described(Protocol):
    """A run without its inputs and its audit: a `RunView` is one too."""

    @property
    def info(self) -> RunInfo:
        """The settings and results."""

    @property
    def instances(self) -> Instances:
        """The instances of both parts."""


def repeats(views: Sequence[RunView], names: Sequence[str]) -> dict[str, Any]:
    """Return the curves of a comparison, one per method, and a table of means if a method has several runs.

    Runs repeat each other if they have the same data, method and number of epochs, and different seeds. The
    table is None without repetitions.
    """
    groups = repeated(views)
    labels = [
        names[group[0]] if len(group) == 1 else _label([views[k] for k in group], views) for group in groups
    ]
    errors = [[_errors(views[k]) for k in group] for group in groups]
    curves = [
        {"name": label, "number": len(each), **_mean_curve(each)}
        for label, each in zip(labels, errors, strict=True)
    ]
    if len(groups) == len(views):
        return {"curves": curves, "means": None}
    columns = ["Method", "Runs", "Best validation error", "Last validation error"]
    rows = [
        [
            label,
            str(len(each)),
            _mean_text([min(curve, default=None) for curve in each]),
            _mean_text([curve[-1] if len(curve) else None for curve in each]),
        ]
        for label, each in zip(labels, errors, strict=True)
    ]
    return {"curves": curves, "means": {"columns": columns, "rows": rows}}


def repeated(views: Sequence[Described]) -> list[list[int]]:
    """Return the numbers of the runs in groups of repetitions, in the order of their first runs."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, view in enumerate(views):
        info = view.info
        key = (info.source, info.method, info.epochs, info.class_names)
        groups.setdefault(key, []).append(number)
    found: list[list[int]] = []
    for group in groups.values():
        seeds = {views[number].info.seed for number in group}
        # Equal seeds are no repetition: the data was changed in between, or a setting.
        found += [group] if len(seeds) == len(group) else [[number] for number in group]
    return sorted(found)


def _label(group: Sequence[RunView], views: Sequence[RunView]) -> str:
    """Return the method, with the data and the epochs if they differ between runs."""
    info = group[0].info
    label = info.method
    if len({view.info.source for view in views}) > 1:
        label += f", {Path(info.source).name}"
    if len({view.info.epochs for view in views}) > 1:
        label += f", {plural(info.epochs, 'epoch', 'epochs')}"
    return f"{label}, mean of {len(group)} runs"


def _errors(view: RunView) -> Sequence[float]:
    return view.info.curves.get(CURVE, ())


def _mean_curve(curves: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the mean and its standard error, epoch by epoch; no standard error for one run."""
    shortest = min(map(len, curves))
    values = np.array([curve[:shortest] for curve in curves], dtype=np.float64)
    mean = [_finite(value) for value in values.mean(axis=0)]
    if len(curves) == 1:
        return {"mean": mean, "stderr": None}
    stderr = values.std(axis=0, ddof=1) / np.sqrt(len(curves))
    return {"mean": mean, "stderr": [_finite(value) or 0.0 for value in stderr]}


def _mean_text(values: Sequence[float | None]) -> str:
    """Return mean ± standard error in per cent.

    >>> _mean_text([3.0, 3.4]), _mean_text([3.0]), _mean_text([None])
    ('3.20 ± 0.20 %', '3.00 %', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    if len(known) == 1:
        return f"{known[0]:.2f} %"
    return f"{np.mean(known):.2f} ± {np.std(known, ddof=1) / np.sqrt(len(known)):.2f} %"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
