"""A data set that grows, and instances that are known by an id of their own instead of their position."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from activebias import checks
from activebias.history import PredictionHistory
from activebias.memory import InstanceMemory

if TYPE_CHECKING:
    from activebias.active_bias import ActiveBias


class RowsOfIds:
    """Gives every new id the next row, in the order in which the ids come."""

    def __init__(self) -> None:
        """Begin without ids."""
        self._rows: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return how many ids are known."""
        return len(self._rows)

    def unknown(self, ids: Iterable[Hashable]) -> list[Hashable]:
        """Return the ids that have no row yet, each once."""
        return [each for each in dict.fromkeys(ids) if each not in self._rows]

    def add(self, ids: Iterable[Hashable]) -> None:
        """Give rows to new ids."""
        for each in ids:
            self._rows[each] = len(self._rows)

    def rows(self, ids: Iterable[Hashable]) -> list[int]:
        """Return the rows of known ids."""
        return [self._rows[each] for each in ids]

    def state(self) -> list[Hashable] | None:
        """Return the ids in the order of their rows, None if there are none."""
        return list(self._rows) or None

    def load(self, state: list[Hashable] | None) -> None:
        """Take over what `state` returned."""
        self._rows = {each: row for row, each in enumerate(state or [])}


def check_ids(ids: Any, num_instances: int) -> None:
    """Raise if `ids` are no state of `RowsOfIds` for so many instances."""
    if ids is None:
        return
    if not isinstance(ids, list) or len(set(ids)) != len(ids) or len(ids) > num_instances:
        raise ValueError(f"The stored `ids` are not at most {num_instances} different ids.")


def rows_of(bias: "ActiveBias", known: RowsOfIds, ids: Any) -> torch.Tensor:
    """Return the rows of ids, as `ActiveBias.rows` does."""
    found = _plain(ids)
    if new := known.unknown(found):
        if bias._ranks.number() > 1 and bias.epoch is not None:
            raise RuntimeError(
                f"The id {new[0]!r} is new, but the other ranks do not know its row: call `bias.rows(…)` "
                "with all ids, in the same order on every rank, before the first epoch."
            )
        if (needed := len(known) + len(new)) > bias.num_instances:
            bias.grow(needed)
        known.add(new)
    return torch.tensor(known.rows(found), dtype=torch.int64)


def _plain(ids: Any) -> list[Hashable]:
    """Return a batch of ids as a list of strings or integers, whatever held them."""
    found = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    for each in found:
        if isinstance(each, bool) or not isinstance(each, (str, int)):
            raise TypeError(f"Expected ids to be strings or integers, but got {each!r}.")
    return found


def grow(bias: "ActiveBias", num_instances: int) -> None:
    """Replace history and memory by larger ones; see `ActiveBias.grow`."""
    old = bias.history
    if checks.integer("num_instances", num_instances, at_least=1) <= old.num_instances:
        if num_instances == old.num_instances:
            return
        raise ValueError(
            f"The data set has {old.num_instances} instances and can only grow, but got {num_instances}: "
            "rows that are no longer used may stay."
        )
    if bias.multi_label or (bias._plan is not None and bias._plan.sentences):
        raise ValueError("A data set of examples with several labels, or of sentences, cannot grow.")
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
            bias.method, history, remove_outliers=bias.remove_outliers, max_weight=bias.max_weight
        )
        memory.load_state_dict(
            _enlarged(bias._memory.state_dict(waiting=True), memory.state_dict(waiting=True)), waiting=True
        )
    bias.history, bias._memory, bias.num_instances = history, memory, num_instances
    bias._plan = None
    bias._order.resize(num_instances)


def _enlarged(state: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a memory, with the rows of a larger new one behind its own."""
    here, there = state["history"], fresh["history"]
    added = there["values"][len(here["count"]) :]  # one entry each
    if added.dim() == 2:
        added = torch.nn.functional.pad(added, (0, here["values"].shape[1] - 1))
    scores = {name: value.clone() for name, value in fresh["scores"].items()}
    new = scores["values"][len(state["scores"]["values"]) :]
    scores["total"] = state["scores"]["total"] + new.sum(dtype=torch.float64)
    scores["num_positive"] = state["scores"]["num_positive"] + (new > 0).sum()
    for large, small in (
        (there["count"], here["count"]),
        (scores["values"], state["scores"]["values"]),
    ):
        large[: len(small)] = small
    history = {**here, "values": torch.cat([here["values"], added]), "count": there["count"]}
    return {**state, "history": history, "scores": scores}
