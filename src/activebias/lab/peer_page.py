"""docs/peers.md from the stored results: `python -m activebias.lab.peer_page RESULTS PAGE`."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.peer_rows import peer_rows
from activebias.lab.protocol import SEARCH_SEEDS, Chosen, Protocol
from activebias.lab.result_tables import Cell, TextTable, display_name
from activebias.lab.significance import Estimate, estimate, holm, paired_t_test

_COLUMNS = (
    "",
    "setting",
    "n",
    "test error %",
    "best epoch %",
    "last 10 %",
    "against Scan",
    "searched",
    "s a trial",
)
_NOTHING = "–"
_NOTES = (
    "Test error at the epoch with the best validation error; best epoch: the lowest test error.",
    "*: significantly different from Scan (paired t-test, Holm's correction, 5 %; the p-value in brackets).",
    "Setting: chosen by the search on a validation part; searched: models × epochs. Rate: of the recipe's.",
)


def _value(numbers: Estimate) -> str:
    return f"{numbers.mean:.2f}" + ("" if numbers.stderr is None else f" ± {numbers.stderr:.2f}")


def protocol_table(protocol: Protocol, store: ResultStore) -> TextTable:
    """Return the table of a row: the sides with their settings, errors and budgets.

    A difference from Scan that is significant at 5 % (paired t-test, Holm's correction) is bold.
    """
    chosen = protocol.chosen(store)
    results = protocol.results(store)
    tests = _tests(results)
    rows = tuple(
        _line(name, chosen.get(name), results.get(name, []), tests.get(name)) for name in protocol.names
    )
    return TextTable(f"{protocol.recipe.name}: {protocol.recipe.title}", _COLUMNS, rows, _NOTES)


def _tests(results: Mapping[str, Sequence[TrialResult]]) -> dict[str, tuple[float, float | None]]:
    """Return the mean difference from Scan and its corrected p-value, by name."""
    errors = {name: {each.seed: each.chosen_test_error for each in group} for name, group in results.items()}
    found = {
        name: paired_t_test(values, errors["scan"])
        for name, values in errors.items()
        if name != "scan" and errors.get("scan")
    }
    corrected = holm({name: test.p_value for name, test in found.items()})
    return {
        name: (test.difference, corrected[name])
        for name, test in found.items()
        if test.difference is not None
    }


def _line(
    name: str,
    chosen: Chosen | None,
    results: Sequence[TrialResult],
    test: tuple[float, float | None] | None,
) -> tuple[Cell, ...]:
    shown = Cell("+".join(display_name(part) for part in name.split("+")))
    if chosen is None:
        return (shown, Cell("not searched yet"), *(Cell(_NOTHING) for _ in _COLUMNS[2:]))
    setting = chosen.side.setting.rule.replace("learning rate", "rate") or "as the recipe"
    budget = Cell(f"{chosen.models}×{chosen.epochs}")
    if not results:
        empty = (Cell(_NOTHING) for _ in _COLUMNS[3:-2])
        return (shown, Cell(setting), Cell("not trained yet"), *empty, budget, Cell(_NOTHING))

    def of(get: Callable[[TrialResult], float]) -> str:
        return _value(estimate(map(get, results)))

    difference = Cell(_NOTHING)
    if test is not None:
        mean, p_value = test
        text = f"{mean:+.2f}" + ("" if p_value is None else f" ({_p(p_value)})")
        difference = Cell(text, bold=p_value is not None and p_value < 0.05)
    return (
        shown,
        Cell(setting),
        Cell(str(len(results))),
        Cell(of(lambda result: result.chosen_test_error)),
        Cell(of(lambda result: result.best_test_error)),
        Cell(of(lambda result: result.last10_test_error)),
        difference,
        budget,
        Cell(f"{math.fsum(result.seconds for result in results) / len(results):.1f}"),
    )


def protocol_json(protocol: Protocol, store: ResultStore) -> dict[str, Any]:
    """Return the table as a JSON object: settings, budgets, and the errors of every trial."""
    results = protocol.results(store)
    return {
        name: {
            "setting": chosen.side.setting.rule or None,
            "searched": {"models": chosen.models, "epochs": chosen.epochs},
            "validation_error": chosen.validation_error,
            "seeds": [result.seed for result in results[name]],
            "test_error": [result.chosen_test_error for result in results[name]],
            "best_test_error": [result.best_test_error for result in results[name]],
        }
        for name, chosen in protocol.chosen(store).items()
    }


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.01 else f"{value:.2f}"


def page(store: ResultStore, notes: Path) -> str:
    """Return the page; the text `notes` (when to use what) comes first if the file exists."""
    parts = ["# Peers: what people use instead", _INTRODUCTION]
    if notes.exists():
        parts.append(notes.read_text(encoding="utf-8").strip())
    for protocol in peer_rows().values():
        parts.append(f"## {protocol.recipe.name}")
        if protocol.chosen(store):
            parts.append(protocol_table(protocol, store).to_markdown())
        else:
            parts.append(f"{protocol.recipe.title}: not trained yet.")
    return "\n\n".join(part.strip() for part in parts) + "\n"


_INTRODUCTION = f"""Is weighing by history better than the losses and samplers that people use today? Every
side of these tables, ours and plain training included, gets the same search and the same trials.

- A tenth of the training data is held out. Its labels are as noisy as the rest.
- Search: the learning rate of the recipe times 1/3, 1, 3 and 10, and two or three values of the side's own
  parameter, in short runs (40 % of the epochs, schedule in proportion) with seed {SEARCH_SEEDS[0]}. The best
  error on the held-out part decides. "Searched" is the budget: models × epochs.
- Trials with the chosen setting, seeds 0 to 9 (residual nets 0 to 4). "Test error" is that of the epoch with
  the best error on the held-out part. "Best epoch" is the paper's metric, which looks at the test data.
- "Against Scan" is the difference in the first error, paired by seed, with the p-value after Holm's
  correction; bold below 0.05.
- Every step is one forward and one backward pass of the whole batch. Small loss and Selective Backprop could
  leave out a part of the backward pass. InfoBatch trains further passes in the steps that it saves.
- The peers are in `src/activebias/lab/peers/`, one file each, with formula and source. The same comparison on
  another recipe: `activebias compare RECIPE --methods scan,wtc,gce,sce --search`.

```sh
python benchmarks/peers.py --device cuda --out results/peers --seconds 1500   # goes on where it stopped
python -m activebias.lab.peer_page results/peers docs/peers.md
```"""


def main(folder: Path, out: Path) -> None:
    """Write the page."""
    out.write_text(page(ResultStore(folder), folder / "notes.md"), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m activebias.lab.peer_page RESULTS PAGE")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
