"""Compares methods and peers by the protocol: search, then trials."""

from collections.abc import Sequence

from activebias.commands.running import run
from activebias.commands.shared import print_json, show
from activebias.lab.experiment.place import Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.peer_table import protocol_json, short_table
from activebias.lab.protocol import Protocol, Unit, run_protocol
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

    def train(unit: Unit) -> bool:
        run(unit.recipe, unit.sides, unit.seeds, place, quiet=quiet or as_json, spread=spread)
        return True

    protocol = Protocol.of(recipe, names)
    run_protocol(protocol, seeds, place, train)
    if as_json:
        print_json(protocol_json(protocol, place.store))
        return
    show(short_table(protocol, place.store).to_rich())
    show(f"Results: {place.store.path(recipe.name)}.")
