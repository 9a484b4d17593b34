"""Compares methods and peers by the protocol: search, then trials."""

from collections.abc import Sequence

from activebias.commands.running import run
from activebias.commands.shared import print_json, show
from activebias.lab.experiment.place import Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult
from activebias.lab.protocol import Protocol, Unit, run_protocol
from activebias.lab.searched_table import searched
from activebias.lab.trials import Spread


def compare_searched(
    recipe: Recipe,
    names: Sequence[str],
    seeds: Sequence[int],
    place: Place,
    *,
    as_json: bool,
    quiet: bool,
    spread: Spread | None = None,
) -> None:
    """Search the settings of every method, train the trials, and print the table."""
    protocol = Protocol.of(recipe, names)

    def train(unit: Unit) -> bool:
        searches = unit.recipe == protocol.searched
        settings = {(side.name, side.rule): side.setting for side in unit.sides}

        def named(result: TrialResult) -> str:
            which = "search" if searches else f"trial {result.seed}"
            setting = settings[result.method, result.rule].shown(recipe.optimiser.learning_rate)
            return f"{which}, {result.method} ({setting})"

        run(unit.recipe, unit.sides, unit.seeds, place, quiet=quiet or as_json, spread=spread, named=named)
        return True

    run_protocol(protocol, seeds, place, train)
    found = searched(protocol, place.store)
    if as_json:
        print_json(found.json)
        return
    show(found.table.to_rich())
    for line in (*found.notes, "", found.conclusion):
        show(line)
    show(f"Results: {place.store.path(recipe.name)}.")
