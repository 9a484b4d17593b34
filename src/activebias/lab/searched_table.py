"""What `activebias compare RECIPE --search` prints: settings, errors, tests, budgets and a conclusion."""

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any, NamedTuple

from activebias.lab.baselines import against_halves
from activebias.lab.conclusion import conclusion_of
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.notes import notes
from activebias.lab.peer_table import errors_by_seed, failed_notes, num_failed, protocol_json
from activebias.lab.protocol import RATES, Chosen, Protocol
from activebias.lab.result_tables import Cell, TextTable, listing
from activebias.lab.significance import Comparison, against_baselines_of, finding_json

_NOTHING = "–"


class Searched(NamedTuple):
    """The table of a search and its trials, sentences that explain it, the conclusion, and all as JSON."""

    table: TextTable
    notes: list[str]
    conclusion: str
    json: dict[str, Any]


def searched(protocol: Protocol, store: ResultStore) -> Searched:
    """Return table, notes and conclusion of a comparison by the protocol, with names as they are typed."""
    chosen, results = protocol.chosen(store), protocol.results(store)
    errors = errors_by_seed(results)
    failed = {name for name, number in num_failed(results).items() if number}
    items = against_baselines_of({name: errors[name] for name in protocol.names}, by_ranks=failed)
    recipe = protocol.recipe
    table = TextTable(
        f"{recipe.name}: {recipe.title}",
        ("method", "setting", "n", f"{recipe.measure} %", "- baseline", "p Holm", "searched"),
        tuple(_line(item, chosen[item.method], recipe.optimiser.learning_rate, failed) for item in items),
        (),
    )
    sentences = [
        *_notes(protocol, chosen, results, items),
        *failed_notes(results, str),
        *notes(recipe, list(chain(*results.values()))),
    ]
    conclusion = conclusion_of(items, against_halves(errors, by_ranks=failed), str, recipe.measure)
    numbers = protocol_json(protocol, store)
    methods = {item.method: numbers[item.method] | finding_json(item) for item in items}
    whole = {"recipe": recipe.name, "methods": methods, "conclusion": conclusion}
    return Searched(table, sentences, conclusion, whole)


def _line(item: Comparison, chosen: Chosen, rate: float, failed: Collection[str]) -> tuple[Cell, ...]:
    test, difference, p_value = item.test, _NOTHING, _NOTHING
    if test is not None and test.difference is not None:
        median = "med " if {item.method, item.baseline} & {*failed} else ""
        difference = f"{median}{test.difference:+.2f}"
        difference += "" if test.stderr is None else f" ± {test.stderr:.2f}"
    if item.p_holm is not None:
        p_value = "< 0.001" if item.p_holm < 0.001 else f"{item.p_holm:.3f}"
    error = f"{item.mean:.2f}" + ("" if item.stderr is None else f" ± {item.stderr:.2f}")
    return (
        Cell(item.method),
        Cell(chosen.side.setting.shown(rate)),
        Cell(str(item.n)),
        Cell(error, item.significant),
        Cell(difference, item.significant),
        Cell(p_value),
        Cell(f"{chosen.models}×{chosen.epochs}"),
    )


def _notes(
    protocol: Protocol,
    chosen: Mapping[str, Chosen],
    results: Mapping[str, list[TrialResult]],
    items: list[Comparison],
) -> list[str]:
    recipe = protocol.recipe
    rates = listing([f"{rate * recipe.optimiser.learning_rate:.3g}" for rate in RATES])
    seeds = sorted({result.seed for group in results.values() for result in group})
    trials = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    searched_on = listing(list(map(str, protocol.search_seeds)))
    sentences = [
        f"Search: every method was trained with the learning rates {rates}, a peer also with each value of "
        f"its parameter. Seed {searched_on}, {protocol.searched.epochs} epochs. The lowest error on the "
        f"validation part decided: {100 * (recipe.validation or 0):.0f} % of the training data. "
        "Searched: models × epochs.",
        f"Trials: {trials}, {recipe.epochs} epochs, with the setting that the search chose. The test error "
        "is that of the epoch with the lowest validation error, mean ± standard error over n trials.",
    ]
    if any(item.significant for item in items):
        sentences.append("*: differs from its baseline, p < 0.05 (paired test, Holm's correction).")
    ends = [name for name, each in chosen.items() if each.side.setting.rate in (min(RATES), max(RATES))]
    if ends:
        sentences.append(
            f"{listing(ends)}: the lowest or the highest rate was best, and a better rate may lie beyond."
        )
    return sentences
