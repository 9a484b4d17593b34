"""The page docs/reproduction.md, made from the result store: what of the paper holds here.

    python -m activebias.lab.reproduction results docs/reproduction.md

Prose that belongs to a row (commands, causes, what was tried) stands in `results/notes/ROW.md`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from activebias.lab.cookbook import RECIPES, get_recipe
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import METRICS, TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.figures import convergence_figure, save_figure
from activebias.lab.paper import paper_rows, paper_value
from activebias.lab.result_tables import (
    METRIC_TITLES,
    TextTable,
    comparison_table,
    num_trials,
    paper_findings,
    reproduction_table,
)
from activebias.lab.significance import Estimate, Finding, against_baselines, order_agreement, paper_estimate

_CANNOT = {"ontonotes5-cnn": "cannot be run here: OntoNotes 5.0 is licensed, and we do not have it"}
_INTRODUCTION = """# Reproduction

The paper's rows, trained here, beside the paper's numbers. This page is made by command from the result
store in `results/`, one JSON line per trial and method, and shows whatever came out:

```sh
python -m activebias.lab.reproduction results docs/reproduction.md
```

A comparison is a method against its baseline (Uni for the methods that draw, Scan for those that weigh). It
holds if ours says what the paper's says: better, worse, or no difference; ours by a paired t-test over
trials with Holm's correction at 5 %, the paper's by twice the combined standard error. The paper rounds
standard errors to 0.01 and leaves out smaller ones: one that is left out counts as 0.01, and none as less
than 0.005. Two methods agree in
order if they are apart by more than twice the combined standard error, in the same direction, here and
there; they disagree if the directions differ; everything else is undecided. The seconds of a trial and
method are, side by side, a model's share of the time, without the loading of the data; the burn-in, which the
methods of a trial share, counts in full for each of them. An asterisk: not those of whole trials, or shared
with other work, as the row's text says.
"""
# Rows whose stored seconds are not what a trial takes: their notes say why.
_SECONDS_OF_PARTS = ("qt-cnn", "mnist-fc-distill")


@final
@dataclass(frozen=True)
class _Row:
    """One row of the paper with our results; without results it is open."""

    recipe: Recipe
    results: list[TrialResult]

    @property
    def metrics(self) -> list[str]:
        """The metrics that the paper prints for the row."""
        methods = {result.method for result in self.results}
        row = self.recipe.row or ""
        return [
            metric
            for metric in METRICS
            if any(paper_value(row, method, metric) is not None for method in methods)
        ]

    def findings(self, metric: str, stderr_of: str | None = None) -> list[tuple[Finding, Finding]]:
        """Return our finding and the paper's for every comparison."""
        found = paper_findings(self.results, row=self.recipe.row, metric=metric, stderr_of=stderr_of)
        return [(ours, theirs) for _, ours, theirs in found]

    def held(self, metric: str, stderr_of: str | None = None) -> tuple[int, int]:
        """Return how many comparisons hold, of how many."""
        findings = self.findings(metric, stderr_of)
        return sum(ours == theirs for ours, theirs in findings), len(findings)

    def apart(self, metric: str, stderr_of: str | None = None) -> tuple[int, int, int]:
        """Return how many others are differences here alone, in the paper alone, or of opposite sign."""
        apart = [(ours, theirs) for ours, theirs in self.findings(metric, stderr_of) if ours != theirs]
        here = sum(theirs == "no difference" for _, theirs in apart)
        there = sum(ours == "no difference" for ours, _ in apart)
        return here, there, len(apart) - here - there

    def same_signs(self, metric: str) -> int:
        """Return how many methods stand on the paper's side of their baseline, significantly or not."""
        count = 0
        for item in against_baselines(self.results, metric):
            if item.test is None or item.test.difference is None or item.baseline is None:
                continue
            method, baseline = (
                paper_value(self.recipe.row or "", m, metric) for m in (item.method, item.baseline)
            )
            if method is not None and baseline is not None:
                count += _sign(item.test.difference) == _sign(method[0] - baseline[0])
        return count

    def order(self, metric: str) -> tuple[int, int, int]:
        """Return how many pairs of methods agree, are undecided, disagree."""
        ours = {
            item.method: Estimate(item.mean, item.stderr) for item in against_baselines(self.results, metric)
        }
        values = {method: paper_value(self.recipe.row or "", method, metric) for method in ours}
        paper = {method: paper_estimate(*value) for method, value in values.items() if value is not None}
        order = order_agreement(ours, paper)
        return len(order.agrees), len(order.undecided), len(order.disagrees)


def page(store: ResultStore, notes: Path, figures: str) -> str:
    """Return the page as Markdown; `figures` is the folder of the figures as seen from it."""
    rows = [_Row(recipe, store.load(recipe.name, recipe.config())) for recipe in _recipes()]
    done = [row for row in rows if row.results]
    # A variant of a row (cifar10-lr-as-printed) must not count its comparisons a second time.
    in_paper = [row for row in done if row.recipe.row in paper_rows() and row.recipe.name == row.recipe.row]
    parts = [_INTRODUCTION, _summary(in_paper), _overview(rows)]
    parts += [_section(row, notes, figures) for row in done]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _recipes() -> list[Recipe]:
    recipes = [get_recipe(name) for name in RECIPES]
    others = ("wnut17-cnn",)  # the paper's model on data that everybody can have
    return [recipe for recipe in recipes if recipe.row is not None or recipe.name in others]


def _summary(rows: Sequence[_Row]) -> str:
    lines = ["## How much of the paper holds", ""]
    for metric in METRICS:
        stated = [row for row in rows if metric in row.metrics]
        held, total = _sums([row.held(metric) for row in stated], 2)
        here, there, opposite = _sums([row.apart(metric) for row in stated], 3)
        agree, undecided, disagree = _sums([row.order(metric) for row in stated], 3)
        signs = sum(row.same_signs(metric) for row in stated)
        lines.append(
            f"- {METRIC_TITLES[metric].capitalize()}: **{held} of {total} comparisons hold** in "
            f"{len(stated)} rows; of the others {here} are a difference here alone, {there} in the paper "
            f"alone, {opposite} say the opposite. {signs} have the paper's sign, significant or not. Of "
            f"{agree + undecided + disagree} pairs of "
            f"methods {agree} stand in the paper's order, {undecided} are undecided, {disagree} stand the "
            "other way round."
        )
    lines += ["", _last_epochs_by_other_errors(rows)] if rows else []
    return "\n".join(lines)


def _last_epochs_by_other_errors(rows: Sequence[_Row]) -> str:
    """Return what becomes of the last ten epochs with the paper's standard errors of the best error."""
    metric, stderr_of = "last10_test_error", "best_test_error"
    stated = [row for row in rows if metric in row.metrics]
    held, total = _sums([row.held(metric, stderr_of) for row in stated], 2)
    here, there, opposite = _sums([row.apart(metric, stderr_of) for row in stated], 3)
    return (
        "In the last ten epochs the paper's standard errors are mostly far below those of its best errors, "
        "and below ours for as many trials; presumably they count every epoch. What it sees there leans on "
        f"them: with its standard errors of the best error {held} of {total} comparisons hold, {here} are a "
        f"difference here alone, {there} in the paper alone, {opposite} say the opposite."
    )


def _sign(value: float) -> int:
    # Differences of printed numbers carry rounding errors.
    return 0 if abs(value) < 1e-9 else 1 if value > 0 else -1


def _sums(rows: Sequence[tuple[int, ...]], width: int) -> list[int]:
    return [sum(row[column] for row in rows) for column in range(width)]


def _overview(rows: Sequence[_Row]) -> str:
    lines = [
        "| row | trials here | paper's | comparisons that hold (best test error) | hardware | "
        "seconds a trial and method |",
        "|---|---:|---:|---|---|---:|",
    ]
    for row in rows:
        recipe, results = row.recipe, row.results
        if not results:
            state = _CANNOT.get(recipe.name, "open: not run yet, nothing is claimed")
            lines.append(f"| {recipe.name} | 0 | {recipe.trials} | {state} | – | – |")
            continue
        trials = num_trials(results)
        held = "not in the paper" if recipe.row is None else "{} of {}".format(*row.held("best_test_error"))
        lines.append(
            f"| [{recipe.name}](#{recipe.name}) | {trials} | {recipe.trials} | {held} | "
            f"{_hardware(results)} | {_seconds(results)}{'*' if recipe.name in _SECONDS_OF_PARTS else ''} |"
        )
    return "\n".join(lines)


def _hardware(results: Sequence[TrialResult]) -> str:
    return ", ".join(dict.fromkeys("CPU" if result.device == "cpu" else result.device for result in results))


def _seconds(results: Sequence[TrialResult]) -> str:
    """Return the mean seconds by hardware; side by side, a model's share of the time."""
    texts = []
    for device in dict.fromkeys(result.device for result in results):
        seconds = [result.seconds for result in results if result.device == device]
        mean = sum(seconds) / len(seconds)
        texts.append(f"{mean:,.0f}" if mean >= 10 else f"{mean:.2g}")
    return ", ".join(texts)


def _section(row: _Row, notes: Path, figures: str) -> str:
    recipe = row.recipe
    note = notes / f"{recipe.name}.md"
    parts = [f"## {recipe.name}", f"{recipe.title}."]
    if note.exists():
        parts.append(note.read_text(encoding="utf-8").strip())
    parts += [f"*{line}*" for line in _data_notes(row.results)]
    described = "Mean test error by epoch, one curve a method, with the last epoch's value beside its name"
    parts.append(f"![{described}]({figures}/{recipe.name}.png)")
    tables: list[TextTable]
    if recipe.row is None:
        tables = [comparison_table(row.results)]
    else:
        tables = [reproduction_table(row.results, row=recipe.row, metric=metric) for metric in row.metrics]
    parts += [table.to_markdown() for table in tables]
    return "\n\n".join(parts)


def _data_notes(results: Sequence[TrialResult]) -> list[str]:
    return list(dict.fromkeys(note for result in results for note in result.details.get("notes", [])))


def main(folder: Path, out: Path) -> None:
    """Write the page and its figures beside it."""
    store = ResultStore(folder)
    figures = out.parent / "figures"
    for recipe in _recipes():
        if results := store.load(recipe.name, recipe.config()):
            save_figure(convergence_figure(results), figures / recipe.name)
            (figures / f"{recipe.name}.svg").unlink()  # a page needs one of the two
    out.write_text(page(store, folder / "notes", "figures"), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m activebias.lab.reproduction RESULTS PAGE")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
