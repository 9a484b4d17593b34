"""A step that was handed out, and the place of a batch in it."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from activebias.order import Handout


class Step(NamedTuple):
    """A step that was handed out: its items on all ranks, and their position in the epoch."""

    position: int
    items: np.ndarray


class Place(NamedTuple):
    """Where a batch stands among the steps that were handed out.

    Attributes:
        handout: the iteration that it is part of; None in the user's own order.
        skips: how many steps, and how many entries of its step, the caller has skipped before it.
        step: the step that it is part of.
        come: how many entries of this step came before it.
        num_real: how many of its entries are items; the others are padding.
        completes: whether it is the last batch of its step.
        padding_scale: by how much more the items weigh in a mean that counts the step's padding too; None
            if the step has no padding, on no rank.
        leaves_unfinished: whether an earlier step of its iteration was left before its last batch.
        restarts: whether its iteration is another one than before: visits that wait for their step are void.
    """

    handout: "Handout | None"
    skips: tuple[int, int]
    step: Step
    come: int
    num_real: int
    completes: bool
    padding_scale: float | None
    leaves_unfinished: bool
    restarts: bool = False
