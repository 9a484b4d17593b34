"""Lanes: the models of a run side by side, and their division into groups."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from activebias import METHODS, Method
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.rules import RunKey
from activebias.lab.experiment.sides import PLAIN, Missing, Setting, Side


class Lane(NamedTuple):
    """One model of a run: its trial's seed, its method and its setting."""

    seed: int
    method: Method
    setting: Setting = PLAIN

    @property
    def side(self) -> Side:
        """The lane without its seed."""
        return Side(self.method, self.setting)

    @property
    def in_burn_in(self) -> "Lane":
        """The lane that trains this lane's burn-in."""
        return self._replace(method=METHODS["scan" if self.method.order == "scan" else "uni"])

    @property
    def key(self) -> RunKey:
        """The key of the lane's result."""
        return self.side.key(self.seed)


def epochs_of(recipe: Recipe, lanes: Iterable[Lane]) -> int:
    """Return the number of epochs of the lanes: a burn-in per trial and setting, the rest per lane."""
    lanes = list(lanes)
    burn_in = min(recipe.burn_in, recipe.epochs)
    return len(burn_in_lanes(lanes)) * burn_in + len(lanes) * (recipe.epochs - burn_in)


def burn_in_lanes(lanes: Iterable[Lane]) -> list[Lane]:
    """Return the lanes of the burn-in that lanes share: one per trial and setting, sorted."""
    return sorted({lane.in_burn_in for lane in lanes}, key=lambda lane: (lane.setting.rank, lane.seed))


def lanes_of(missing: Missing, *, scans: bool) -> list[Lane]:
    """Return the missing trials of methods that scan, or of methods that draw: they never train together."""
    return [
        Lane(seed, *side)
        for seed, group in missing.items()
        for side in group
        if (side.method.order == "scan") is scans
    ]


def in_groups(lanes: Sequence[Lane], most: int) -> list[list[Lane]]:
    """Divide the lanes into groups of about the same size, at most `most`, with whole trials if they fit.

    >>> from activebias import METHODS
    >>> methods = [METHODS["scan"], METHODS["wpv"]]
    >>> groups = in_groups([Lane(seed, method) for seed in range(3) for method in methods], most=5)
    >>> [[(lane.seed, lane.method.name) for lane in group] for group in groups]
    [[(0, 'scan'), (1, 'scan'), (0, 'wpv'), (1, 'wpv')], [(2, 'scan'), (2, 'wpv')]]
    """
    trials: dict[int, list[Lane]] = {}
    for lane in lanes:
        trials.setdefault(lane.seed, []).append(lane)
    largest = max(len(trial) for trial in trials.values())
    if largest > most:
        pieces = [
            trial[start : start + most] for trial in trials.values() for start in range(0, len(trial), most)
        ]
    else:
        each = most // largest
        number = -(-len(trials) // each)
        each = -(-len(trials) // number)
        whole = list(trials.values())
        pieces = [list(chain(*whole[start : start + each])) for start in range(0, len(whole), each)]
    return [sorted(piece, key=lambda lane: (lane.method.name, lane.setting.rank)) for piece in pieces]
