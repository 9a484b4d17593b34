"""From curves to a result that the store takes."""

from collections.abc import Sequence
from typing import Any

import torch

from activebias import Method
from activebias.lab.prepared import Prepared
from activebias.lab.recipe import Recipe
from activebias.lab.rules import rule_of
from activebias.lab.store import TrialResult


def trial_result(
    recipe: Recipe,
    data: Prepared,
    method: Method,
    seed: int,
    *,
    test_error: Sequence[float],
    train_error: Sequence[float],
    seconds: float,
    device: torch.device | None = None,
    **details: Any,
) -> TrialResult:
    """Return the result of a trial with what belongs beside it: hardware, noise, notes of the data."""
    device = device or data.device
    if device.type == "cpu":
        details["threads"] = torch.get_num_threads()
    clean = data.dataset.clean_targets
    if clean is not None:
        details["wrong_labels"] = int((clean != data.dataset.train.targets).sum())
    if data.dataset.notes:
        details["notes"] = list(data.dataset.notes)
    return TrialResult(
        recipe=recipe.name,
        method=method.name,
        seed=seed,
        config=recipe.config(),
        test_error=list(test_error),
        train_error=list(train_error),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        seconds=seconds,
        details=details,
        rule=rule_of(method),
    )
