"""The paper's numbers, to compare with ours."""

import csv
from collections.abc import Iterable
from functools import cache
from importlib import resources

from activebias.lab.experiment.results import METRICS


@cache
def _tables() -> dict[tuple[str, str, str], tuple[float, float | None]]:
    text = resources.files("activebias.lab").joinpath("paper_tables.csv").read_text(encoding="utf-8")
    return {
        (line["row"], line["method"].removeprefix("SGD-").lower(), line["metric"]): (
            float(line["value"]),
            float(line["stderr"]) if line["stderr"] else None,
        )
        for line in csv.DictReader(text.splitlines())
    }


def paper_rows() -> tuple[str, ...]:
    """Return the names of the paper's rows, in the paper's order."""
    return tuple(dict.fromkeys(row for row, _, _ in _tables()))


def paper_value(row: str, method: str, metric: str) -> tuple[float, float | None] | None:
    """Return the paper's error in per cent and its standard error; None if the paper has no such number.

    The standard error is None if the paper leaves it out, which it does below 0.01.

    >>> paper_value("mnist-cnn", "wpv", "best_test_error")
    (0.48, 0.01)
    >>> paper_value("mnist-cnn", "wpv", "best_train_error")
    (0.01, None)
    >>> paper_value("cifar100-rn27", "spv", "best_test_error") is None
    True
    """
    if metric not in METRICS:
        raise ValueError(f"Expected `metric` to be one of {', '.join(METRICS)}, but got {metric!r}")
    return _tables().get((row, method, metric))


def paper_metrics(row: str, methods: Iterable[str]) -> list[str]:
    """Return the metrics that the paper prints for a row.

    >>> paper_metrics("mnist-fc", ["scan", "wpv"])
    ['best_test_error', 'last10_test_error', 'best_train_error']
    """
    names = list(methods)
    return [metric for metric in METRICS if any(paper_value(row, name, metric) is not None for name in names)]
