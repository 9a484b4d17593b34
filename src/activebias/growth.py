"""A data set that grows, and instances that are known by an id of their own instead of their position."""

import operator
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from activebias import checks
from activebias.history import PredictionHistory
from activebias.learning import follow_curve, limit_steps, means_of
from activebias.memory import InstanceMemory

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias


def rows_of(bias: "ActiveBias", ids: Any) -> torch.Tensor:
    """Return the index of instances that are known by an id, a string or an integer.

    A new id takes the next free row. Where there is none, the data set grows. The ids are part of the
    state. Several ranks must give all ids in the same order, before the first epoch.
    """
    rows, found = bias._row_of_id, _plain(ids)
    if new := [each for each in dict.fromkeys(found) if each not in rows]:
        if bias._ranks.number() > 1 and bias.epoch is not None:
            raise RuntimeError(
                f"The id {new[0]!r} is new, but the other ranks do not know its row: call `bias.rows(…)` "
                "with all ids, in the same order on every rank, before the first epoch."
            )
        if (needed := len(rows) + len(new)) > bias.num_instances // (bias._num_labels or 1):
            bias.grow(needed * (bias._num_labels or 1))
        rows.update({each: row for row, each in enumerate(new, start=len(rows))})
    return torch.tensor([rows[each] for each in found], dtype=torch.int64, device="cpu")


def _plain(ids: Any) -> list[Hashable]:
    """Return a batch of ids as a list of strings or integers, whatever held them."""
    found = ids.tolist() if hasattr(ids, "tolist") else ids
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise TypeError(f"Expected `ids` to be a batch of ids, but got {ids!r}: for one id give `[id]`.")
    return [_plain_id(each) for each in found]


def _plain_id(value: Any) -> Hashable:
    """Return an id as Python's own string or integer: a checkpoint with NumPy's could not be read."""
    if isinstance(value, str):
        return str(value)
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"Expected ids to be strings or integers, but got {value!r}.")


def grow_to(bias: "ActiveBias", num_instances: int) -> None:
    """Take in new instances behind the present ones; their histories begin at {1 / num_classes}.

    It copies the whole history. With a sampler, call it between epochs, and make the loader anew.
    """
    old = bias.history
    if checks.integer("num_instances", num_instances, at_least=1) <= old.num_instances:
        if num_instances == old.num_instances:
            return
        raise ValueError(
            f"The data set has {old.num_instances} instances and can only grow, but got {num_instances}: "
            "rows that are no longer used may stay."
        )
    if bias.multi_label or (bias._plan is not None and bias._plan.sentences):
        raise ValueError(
            "A data set of examples with several labels, or of sentences, cannot grow: make the bias for all "
            "of them, by `num_instances`."
        )
    if old.in_file:
        raise ValueError("A history in a memory-mapped file cannot grow: leave out `history_file`.")
    if bias._order.position:
        raise ValueError(
            "A data set cannot grow in the middle of an ordered epoch: call `set_epoch` for the next epoch, "
            "then `grow`, then make the loader anew."
        )
    with torch.inference_mode(False):
        history = PredictionHistory(
            num_instances, initial=old.initial, window=old.window, storage=old.storage, device=old.device
        )
        memory = InstanceMemory(
            bias.method,
            history,
            num_classes=bias.num_classes,
            remove_outliers=bias.remove_outliers,
            max_weight=bias.max_weight,
        )
        memory.curve = bias._memory.curve  # which knows whether it has warned
        memory.load_state_dict(
            _enlarged(bias._memory.state_dict(waiting=True), memory.state_dict(waiting=True)), waiting=True
        )
        if (curve := memory.curve) is not None:
            # The new instances have the scores of a curve that has learnt nothing.
            means = means_of(memory)
            follow_curve(memory, curve, means)
            if curve.last_epoch is not None or float(curve.factor) < 1:
                limit_steps(memory, curve, means)
    bias.history, bias._memory, bias.num_instances = history, memory, num_instances
    bias._plan = None
    bias._order.resize(num_instances)
    bias._prepare_epoch()


def _enlarged(state: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a memory, with the rows of a larger new one behind its own."""
    here, there = state["history"], fresh["history"]
    added = there["values"][len(here["count"]) :]  # one entry each
    if added.dim() == 2:
        added = torch.nn.functional.pad(added, (0, here["values"].shape[1] - 1))
    count = torch.cat([here["count"], there["count"][len(here["count"]) :]])
    history = {**here, "values": torch.cat([here["values"], added]), "count": count}
    old, new = state["scores"], fresh["scores"]["values"][len(state["scores"]["values"]) :]
    scores = {
        "values": torch.cat([old["values"], new]),
        "total": old["total"] + new.sum(dtype=torch.float64),
        "num_positive": old["num_positive"] + (new > 0).sum(),
    }
    return {**state, "history": history, "scores": scores}
