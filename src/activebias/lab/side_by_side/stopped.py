"""Checkpoints of groups: found after an interruption, and divided into checkpoints of smaller groups."""

import hashlib
import json
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, final

from activebias.internal import remove_leftovers, replacing
from activebias.lab.experiment.place import Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.rules import RunKey
from activebias.lab.side_by_side.training import part_of_state

_log = logging.getLogger(__name__)
_CONTENTS = {
    *("stack", "optimiser", "memory", "trials", "seconds", "emphasises"),
    *("test_error", "train_error", "validation_error"),
}


@final
class GroupCheckpoint:
    """Two files: the state of a group's lanes, and a small label with their keys and the epoch."""

    def __init__(self, recipe: Recipe, place: Place, runs: Sequence[RunKey]) -> None:
        """Use the files of exactly these lanes in this order; the files may not exist yet."""
        self.runs = list(runs)
        self.seeds = sorted({seed for _, seed, _ in runs})
        self.epoch = 0
        digest = hashlib.sha256(json.dumps(self.runs).encode()).hexdigest()[:12]
        self._file = place.checkpoint(recipe, self.seeds[0], f"side-by-side-{digest}")
        self._label = self._file.path.with_suffix(".json")

    def due(self) -> bool:
        """Return whether the last write is old enough for another write."""
        return self._file.due()

    def write(self, state: dict[str, Any]) -> None:
        """Write the label, then the state: the label finds temporary files of a killed process."""
        label = {"epoch": len(state["test_error"]), "runs": self.runs}
        # FileNotFoundError: another process has finished the same trials and removed the folder.
        with suppress(FileNotFoundError), replacing(self._label) as temporary:
            temporary.write_text(json.dumps(label), encoding="utf-8")
        self._file.write(state)

    def exists(self) -> bool:
        """Return whether there is a state, not only a label."""
        return self._file.path.exists()

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None if there is no usable state."""
        state = self._file.read()
        if state is not None and not state.keys() >= _CONTENTS:
            _log.warning("%s is not a state of this version: training begins again.", self._file.path)
            return None
        return state

    def remove(self) -> None:
        """Remove both files, the label last: it is needed to find the state."""
        self._file.remove()
        remove_leftovers(self._label)
        self._label.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or another process was faster
            self._label.parent.rmdir()

    def hand_on(self, parts: Sequence["GroupCheckpoint"]) -> None:
        """Divide this checkpoint into checkpoints of `parts`, which then resume from the same epoch."""
        if (state := self.read()) is None:
            return
        for part in parts:
            trials = [self.seeds.index(seed) for seed in part.seeds]
            lanes = [self.runs.index(run) for run in part.runs]
            parents = [state["parents"][lane] for lane in lanes] if "parents" in state else trials
            burn_ins = sorted(set(parents))
            try:
                cut = part_of_state(state, lanes if state["emphasises"] else burn_ins, trials)
                cut["parents"] = [burn_ins.index(parent) for parent in parents]
            except (KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
                _log.warning("%s cannot be divided (%s): training begins again.", self._file.path, error)
                return
            part.write(cut)


def stopped_groups(recipe: Recipe, place: Place) -> list[GroupCheckpoint]:
    """Return the stopped groups, latest epoch first: a lane may be in a group and in a part of the group."""
    return sorted(
        (group for group in _labelled(recipe, place) if group.exists()), key=lambda group: -group.epoch
    )


def _labelled(recipe: Recipe, place: Place) -> list[GroupCheckpoint]:
    found = []
    for path in place.checkpoint_files(recipe, "side-by-side-*.json"):
        with suppress(
            OSError, ValueError, TypeError, KeyError
        ):  # removed by another process, or half written
            label = json.loads(path.read_text(encoding="utf-8"))
            runs: list[RunKey] = [(name, int(seed), rule) for name, seed, rule in label["runs"]]
            if runs:
                group = GroupCheckpoint(recipe, place, runs)
                group.epoch = int(label["epoch"])
                found.append(group)
    return found


def remove_finished(recipe: Recipe, place: Place, stored: Collection[RunKey]) -> None:
    """Remove checkpoints of groups whose results are all stored, and states without a label."""
    for group in _labelled(recipe, place):
        if all(run in stored for run in group.runs):
            group.remove()
    for pattern in ("side-by-side-*.pt", ".side-by-side-*"):
        for path in place.checkpoint_files(recipe, pattern):
            if not (path.parent / f"{path.name.strip('.').split('.')[0]}.json").exists():
                path.unlink(missing_ok=True)
                with suppress(OSError):  # not empty, or another process was faster
                    path.parent.rmdir()
