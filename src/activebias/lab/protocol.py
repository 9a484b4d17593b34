"""One protocol for methods and peers: the same search for each, decided on a validation part, then trials.

1. A tenth of the training data is held out, labels as noisy as the rest. The method `auto` also learns from
   it: every side has the same data.
2. Search: every side is trained with the recipe's learning rate times 1/3, 1, 3 and 10, and with two or three
   values of its parameter if it has one. The runs are short (40 % of the epochs, with the schedule of the
   learning rate in proportion) and have a seed of their own. The best validation error decides.
3. Trials with the chosen settings, on fresh seeds. The test error is that of the epoch with the best
   validation error.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple, final

from activebias import Method
from activebias.lab.experiment.place import Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import Setting, Side, find_side
from activebias.lab.experiment.store import ResultStore
from activebias.lab.trials import missing_runs

RATES: Final = (1 / 3, 1.0, 3.0, 10.0)
VALIDATION: Final = 0.1
SEARCHED_PART: Final = 0.4
SEARCH_SEEDS: Final = (1000,)


def candidates(side: str | Method | Side) -> list[Side]:
    """Return the sides that a search tries for a method or peer, the nearest to the given rate first.

    Of equal validation errors the first counts.

    >>> [len(candidates(name)) for name in ("scan", "wtc", "gce", "wtc+sce")]
    [4, 4, 12, 12]
    """
    method, setting = find_side(side)
    values = (0.0,) if setting.peer is None else setting.peer.values
    sides = [Side(method, Setting(setting.peer, value, rate)) for value in values for rate in RATES]
    return sorted(sides, key=lambda side: abs(math.log(side.setting.rate)))


class Unit(NamedTuple):
    """Runs that are trained together: sides × seeds of a recipe."""

    recipe: Recipe
    sides: tuple[Side, ...]
    seeds: tuple[int, ...]


@final
@dataclass(frozen=True)
class Chosen:
    """The side that a search chose, its validation error, and the budget: models × epochs of the search."""

    side: Side
    validation_error: float
    models: int
    epochs: int


@final
@dataclass(frozen=True)
class Protocol:
    """A recipe with a validation part, and the names of the methods and peers that are compared."""

    recipe: Recipe
    names: tuple[str, ...]
    search_seeds: tuple[int, ...] = SEARCH_SEEDS

    @staticmethod
    def of(recipe: Recipe, names: Sequence[str]) -> "Protocol":
        """Return the protocol of a recipe, with the validation part."""
        if recipe.teacher is not None:
            raise ValueError(
                f"Expected a recipe without a teacher, from whom peers do not learn, but got {recipe.name!r}."
            )
        return Protocol(recipe.holding_out(VALIDATION), tuple(names))

    @property
    def searched(self) -> Recipe:
        """The short recipe of the search; most epochs have no training error, since nothing reads it."""
        recipe = self.recipe.compressed(max(1, math.ceil(SEARCHED_PART * self.recipe.epochs)))
        return replace(recipe, last_train_errors=1)

    def chosen(self, store: ResultStore) -> dict[str, Chosen]:
        """Return the settings that the search chose, of the sides whose search is complete."""
        recipe = self.searched
        stored = {result.key[2:]: result for result in store.load(recipe.name, recipe.config())}
        found = {}
        for name in self.names:
            tried = candidates(name)
            runs = [[stored.get(side.key(seed)) for seed in self.search_seeds] for side in tried]
            if all(chain(*runs)):
                errors = [_validation_error([run for run in each if run is not None]) for each in runs]
                best = min(range(len(tried)), key=errors.__getitem__)
                models = len(tried) * len(self.search_seeds)
                found[name] = Chosen(tried[best], errors[best], models, recipe.epochs)
        return found

    def results(self, store: ResultStore) -> dict[str, list[TrialResult]]:
        """Return the trials with the chosen settings, by name."""
        stored = store.load(self.recipe.name, self.recipe.config())
        return {
            name: [
                result
                for result in stored
                if (result.method, result.rule) == (chosen.side.name, chosen.side.rule)
                and result.seed not in self.search_seeds
            ]
            for name, chosen in self.chosen(store).items()
        }

    def units(self, seeds: Sequence[int], store: ResultStore, at_once: int) -> Iterator[Unit]:
        """Yield the runs of the search, then those of the trials, about `at_once` models in a unit."""
        group: list[Side] = []
        for name in self.names:
            tried = candidates(name)
            if group and (len(group) + len(tried)) * len(self.search_seeds) > at_once:
                yield Unit(self.searched, tuple(group), self.search_seeds)
                group = []
            group += tried
        yield Unit(self.searched, tuple(group), self.search_seeds)
        sides = tuple(chosen.side for chosen in self.chosen(store).values())
        each = max(1, at_once // max(1, len(sides)))
        for start in range(0, len(seeds), each):
            yield Unit(self.recipe, sides, tuple(seeds[start : start + each]))


def _validation_error(results: Sequence[TrialResult]) -> float:
    return math.fsum(result.best_validation_error for result in results) / len(results)


def run_protocol(
    protocol: Protocol,
    seeds: Sequence[int],
    place: Place,
    train: Callable[[Unit], bool],
    *,
    at_once: int = 60,
) -> bool:
    """Call `train` with the runs that have no stored result, unit by unit; return whether all are trained.

    `train` trains a unit into the store (`run_trials`), or returns False, which ends the training.
    """
    if taken := sorted({*seeds} & {*protocol.search_seeds}):
        raise ValueError(
            f"Expected `seeds` to be other than the search's, but got {', '.join(map(str, taken))}: the "
            "settings were chosen on it, so begin the trials at another `--seed`."
        )
    for unit in protocol.units(seeds, place.store, at_once):
        missing = missing_runs(unit.recipe, unit.sides, unit.seeds, place)
        if missing:
            sides = tuple(dict.fromkeys(chain(*missing.values())))
            if not train(Unit(unit.recipe, sides, tuple(missing))):
                return False
    return True
