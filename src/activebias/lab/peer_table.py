"""The table of a comparison by the protocol: settings, errors, paired tests and budgets, side by side."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import Any, Final, NamedTuple

from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.protocol import Chosen, Protocol
from activebias.lab.result_tables import Cell, TextTable, display_name
from activebias.lab.significance import (
    SIGNIFICANCE_LEVEL,
    Estimate,
    estimate,
    holm,
    paired_t_test,
    signed_rank_test,
)

# The sides that the others are tested against. A pair is tested once: Scan is not tested against WTC.
BASES: Final = ("scan", "wtc")
COLUMNS: Final = (
    "",
    "setting",
    "n",
    "validation %",
    "test error %",
    "median %",
    "best epoch %",
    "last 10 %",
    *(f"against {display_name(base)}" for base in BASES),
    "searched",
    "s a trial",
)
_NOTHING = "–"
_NOTES = (
    "Test error at the epoch with the best validation error; best epoch: the lowest test error.",
    "*: significantly different (paired t-test, Holm's correction, 5 %; the p-value in brackets).",
    "Setting: chosen by the search on a validation part; rate × 3: three times the recipe's learning rate.",
    "Searched: models × epochs of the search.",
)
_FAILED = (
    "A trial failed if its test error is nearer to 100 % than to the median of all trials of the row. Means, "
    "standard errors and tests include failed trials. A difference from a side with a failed trial is the "
    "median of the differences (med), tested by ranks (Wilcoxon): in a t-test the failed trial would decide."
)


def side_title(name: str) -> str:
    """Return the name of a side as tables show it.

    >>> side_title("wtc+label-smoothing"), side_title("gce")
    ('WTC+label-smoothing', 'GCE')
    """
    return "+".join(display_name(part) for part in name.split("+"))


def num_failed(results: Mapping[str, Sequence[TrialResult]]) -> dict[str, int]:
    """Return the number of failed trials by side: nearer to 100 % than to the median of all trials."""
    errors = [result.chosen_test_error for result in chain(*results.values())]
    limit = (median(errors) + 100) / 2 if errors else 100.0
    return {
        name: sum(result.chosen_test_error > limit for result in group) for name, group in results.items()
    }


def failed_notes(
    results: Mapping[str, Sequence[TrialResult]], named: Callable[[str], str] = side_title
) -> list[str]:
    """Return a note about the failed trials, or no note."""
    sides = [
        f"{named(name)} {number} of {len(results[name])} (median of the test error "
        f"{median(result.chosen_test_error for result in results[name]):.2f})"
        for name, number in num_failed(results).items()
        if number
    ]
    return [f"Failed trials: {', '.join(sides)}. {_FAILED}"] if sides else []


def protocol_table(protocol: Protocol, store: ResultStore) -> TextTable:
    """Return the table of a row: the sides with their settings, errors and budgets.

    A difference from Scan or WTC that is significant at 5 % (paired test, Holm's correction) is bold.
    """
    chosen = protocol.chosen(store)
    results = protocol.results(store)
    failed = num_failed(results)
    tests = {base: _tests(results, base) for base in BASES}
    rows = []
    for name in protocol.names:
        against = [tests[base].get(name, Cell(_NOTHING)) for base in BASES]
        rows.append(_line(name, chosen.get(name), results.get(name, []), failed.get(name, 0), against))
    notes = (*_NOTES, *failed_notes(results))
    return TextTable(f"{protocol.recipe.name}: {protocol.recipe.title}", COLUMNS, tuple(rows), notes)


class Compared(NamedTuple):
    """The test errors of two sides by seed; `by_ranks` if a trial failed, which would decide a t-test."""

    errors: Mapping[int, float]
    base: Mapping[int, float]
    by_ranks: bool


def errors_by_seed(results: Mapping[str, Sequence[TrialResult]]) -> dict[str, dict[int, float]]:
    """Return the test error of every trial, by side and seed."""
    return {name: {each.seed: each.chosen_test_error for each in group} for name, group in results.items()}


def difference_cells(compared: Mapping[str, Compared]) -> dict[str, Cell]:
    """Return differences with their p-values after Holm's correction over all of them."""
    found = {
        name: (signed_rank_test if each.by_ranks else paired_t_test)(each.errors, each.base)
        for name, each in compared.items()
    }
    corrected = holm({name: test.p_value for name, test in found.items()})
    cells = {}
    for name, test in found.items():
        if test.difference is not None:
            p_value = corrected[name]
            text = f"{'med ' * compared[name].by_ranks}{test.difference:+.2f}"
            text += "" if p_value is None else f" ({_p(p_value)})"
            cells[name] = Cell(text, bold=p_value is not None and p_value < SIGNIFICANCE_LEVEL)
    return cells


def _tests(results: Mapping[str, Sequence[TrialResult]], base: str) -> dict[str, Cell]:
    """Return the difference from a base with its corrected p-value, by name of the other side."""
    errors, failed = errors_by_seed(results), num_failed(results)
    tested = BASES[: BASES.index(base) + 1]
    return difference_cells(
        {
            name: Compared(values, errors[base], bool(failed[name] or failed[base]))
            for name, values in errors.items()
            if name not in tested and errors.get(base)
        }
    )


def _line(
    name: str, chosen: Chosen | None, results: Sequence[TrialResult], failed: int, against: Sequence[Cell]
) -> tuple[Cell, ...]:
    shown = Cell(side_title(name))
    if chosen is None:
        return (shown, Cell("not searched yet"), *(Cell(_NOTHING) for _ in COLUMNS[2:]))
    setting = chosen.side.setting.rule.replace("learning rate", "rate") or "as the recipe"
    budget = Cell(f"{chosen.models}×{chosen.epochs}")
    if not results:
        empty = (Cell(_NOTHING) for _ in COLUMNS[3:-2])
        return (shown, Cell(setting), Cell("not trained yet"), *empty, budget, Cell(_NOTHING))

    def of(get: Callable[[TrialResult], float]) -> Cell:
        return Cell(_value(estimate(map(get, results))))

    middle = f"{median(result.chosen_test_error for result in results):.2f}"
    return (
        shown,
        Cell(setting),
        Cell(str(len(results))),
        of(lambda result: result.best_validation_error),
        of(lambda result: result.chosen_test_error),
        Cell(f"{middle} ({failed} failed)" if failed else middle),
        of(lambda result: result.best_test_error),
        of(lambda result: result.last10_test_error),
        *against,
        budget,
        Cell(f"{math.fsum(result.seconds for result in results) / len(results):.1f}"),
    )


def protocol_json(protocol: Protocol, store: ResultStore) -> dict[str, dict[str, Any]]:
    """Return the settings, budgets and errors of every trial by side, for JSON."""
    results = protocol.results(store)
    failed = num_failed(results)
    return {
        name: {
            "setting": chosen.side.setting.rule or None,
            "searched": {"models": chosen.models, "epochs": chosen.epochs},
            "validation_error": chosen.validation_error,
            "seeds": [result.seed for result in results[name]],
            "test_error": [result.chosen_test_error for result in results[name]],
            "best_test_error": [result.best_test_error for result in results[name]],
            "failed": failed[name],
        }
        for name, chosen in protocol.chosen(store).items()
    }


def _value(numbers: Estimate) -> str:
    return f"{numbers.mean:.2f}" + ("" if numbers.stderr is None else f" ± {numbers.stderr:.2f}")


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"
