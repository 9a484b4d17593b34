"""The numbers of every class: instances, suspects, and the predictions on the validation part."""

from typing import Any

import numpy as np

from activebias.report.view import RunView


def class_rows(view: RunView) -> list[dict[str, Any]]:
    """Return one dict per class, in the order of the class names.

    `recall` is the share of the validation instances with this label that are predicted so; `error` is the
    share of the instances predicted so that have another label. Both are None where there is none.
    """
    number = len(view.info.class_names)
    right = view.validation_label == view.validation_predicted
    counts = {
        "instances": np.bincount(view.instances.label, minlength=number),
        "suspects": np.bincount(view.instances.label[view.suspected], minlength=number),
        "validated": np.bincount(view.validation_label, minlength=number),
        "predicted": np.bincount(view.validation_predicted, minlength=number),
        "right": np.bincount(view.validation_label[right], minlength=number),
    }
    rows: list[dict[str, Any]] = [
        {name: int(values[code]) for name, values in counts.items()} | {"code": code}
        for code in range(number)
    ]
    for row in rows:
        row["recall"] = row["right"] / row["validated"] if row["validated"] else None
        row["error"] = 1 - row["right"] / row["predicted"] if row["predicted"] else None
    return rows


def balanced_error(view: RunView) -> float | None:
    """Return the mean over the classes of the share of wrong predictions, in per cent."""
    recalls = [row["recall"] for row in class_rows(view) if row["recall"] is not None]
    return 100 * (1 - sum(recalls) / len(recalls)) if recalls else None
