"""Makes the page docs/reproduction.md from the result store: which of the paper's findings hold here.

    python -m activebias.lab.reproduction results docs/reproduction.md

The text of a row (commands, causes, failed attempts) is in `results/notes/ROW.md`.
"""

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from activebias.lab.cookbook import RECIPES, get_recipe
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import METRICS, TrialResult
from activebias.lab.experiment.store import ResultStore
from activebias.lab.figures import convergence_figure, save_figure
from activebias.lab.paper import paper_metrics, paper_rows, paper_value
from activebias.lab.result_tables import (
    METRIC_TITLES,
    TextTable,
    comparison_table,
    num_trials,
    paper_estimates,
    paper_findings,
    reproduction_table,
)
from activebias.lab.significance import Estimate, Finding, against_baselines, order_agreement
from activebias.runs.outcome import plural

_CANNOT = {"ontonotes5-cnn": "cannot be run here: OntoNotes 5.0 is licensed, and we do not have it"}
_WIDTH = 110
_INTRODUCTION = """# Reproduction

Which of the paper's findings hold in this repository? A row of the paper is a data set and a model. Each row
has a section with our numbers, the paper's, and the commands that trained it. All results are shown, good or
bad. One JSON line per trial and method is in `results/`, and this command makes the page from it:

```sh
python -m activebias.lab.reproduction results docs/reproduction.md
```

This command writes the same rows with interactive curves, as one HTML file of 5 MB (not in the repository):

```sh
activebias reproduce --trials 0 --out results --html docs/reproduction.html
```

How to read the numbers ([the methods](method.md) have a page of their own):

- **A comparison** is a method against its baseline: Uni for S* methods, Scan for W* methods. It has one of
  three findings: better, worse, or no difference. **A comparison holds** if our trials and the paper have the
  same finding.
- **Our finding** is a paired t-test over trials, Holm-corrected at 5 %. **The paper's finding** is a
  difference if it is more than twice the combined standard error. The paper rounds standard errors to 0.01
  and leaves out smaller ones. A missing standard error counts as 0.01, and none as less than 0.005.
- **The order of two methods** is the paper's if they differ by more than twice the combined standard error,
  in the same direction, here and in the paper. It is opposite if the directions differ. All other pairs are
  undecided.
- **Seconds** are per trial and method. For models trained side by side they are a model's share of the time,
  without loading the data. The shared burn-in counts in full for every method. An asterisk marks seconds that
  cover part of the trials, or a GPU shared with other work.
"""
# Rows whose stored seconds are not the time of a whole trial: their notes say why.
_SECONDS_OF_PARTS = ("cifar100-rn27", "qt-cnn", "mnist-fc-distill")


@final
@dataclass(frozen=True)
class PaperRow:
    """One row of the paper with our results, which are empty if the row was not run."""

    recipe: Recipe
    results: list[TrialResult]

    @property
    def metrics(self) -> list[str]:
        """The metrics that the paper prints for the row."""
        return paper_metrics(self.recipe.row or "", {result.method for result in self.results})

    def findings(self, metric: str, stderr_of: str | None = None) -> list[tuple[Finding, Finding]]:
        """Return our finding and the paper's finding for every comparison."""
        found = paper_findings(self.results, row=self.recipe.row, metric=metric, stderr_of=stderr_of)
        return [(ours, theirs) for _, ours, theirs in found]

    def held(self, metric: str, stderr_of: str | None = None) -> tuple[int, int]:
        """Return the number of comparisons that hold, and of all comparisons."""
        findings = self.findings(metric, stderr_of)
        return sum(ours == theirs for ours, theirs in findings), len(findings)

    def apart(self, metric: str, stderr_of: str | None = None) -> tuple[int, int, int]:
        """Return how many others are significant only here, only in the paper, or have opposite findings."""
        apart = [(ours, theirs) for ours, theirs in self.findings(metric, stderr_of) if ours != theirs]
        here = sum(theirs == "no difference" for _, theirs in apart)
        there = sum(ours == "no difference" for ours, _ in apart)
        return here, there, len(apart) - here - there

    def verdict(self, metric: str) -> str:
        """Return a sentence: how many comparisons hold, and how the others differ."""
        held, total = self.held(metric)
        what = METRIC_TITLES[metric].removesuffix(" %").capitalize()
        if not total:
            return f"{what}: no comparison could be tested."
        others = "" if held == total else f" Of the others, {_apart_text(*self.apart(metric))}."
        return f"{what}: {held} of {total} comparisons hold.{others}"

    def same_signs(self, metric: str) -> int:
        """Return how many differences to the baseline have the paper's sign, significant or not."""
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
        """Return how many pairs of methods have the paper's order, are undecided, have the opposite order."""
        items = against_baselines(self.results, metric)
        ours = {item.method: Estimate(item.mean, item.stderr) for item in items}
        order = order_agreement(ours, paper_estimates(self.recipe.row or "", items, metric))
        return len(order.agrees), len(order.undecided), len(order.disagrees)


def page(store: ResultStore, notes: Path, figures: str) -> str:
    """Return the page as Markdown; `figures` is the folder of the figures, relative to the page."""
    rows = [PaperRow(recipe, store.load(recipe.name, recipe.config())) for recipe in _recipes()]
    done = [row for row in rows if row.results]
    parts = [_INTRODUCTION, _summary(counted(done)), _overview(rows)]
    parts += [_section(row, notes, figures) for row in done]
    return _wrapped("\n\n".join(part.strip() for part in parts)) + "\n"


def counted(rows: Sequence[PaperRow]) -> list[PaperRow]:
    """Return the rows to count: the comparisons of a variant (cifar10-lr-as-printed) would count twice."""
    return [row for row in rows if row.recipe.row in paper_rows() and row.recipe.name == row.recipe.row]


def _recipes() -> list[Recipe]:
    recipes = [get_recipe(name) for name in RECIPES]
    others = ("wnut17-cnn",)  # the paper's model on free data
    return [recipe for recipe in recipes if recipe.row is not None or recipe.name in others]


def _summary(rows: Sequence[PaperRow]) -> str:
    lines = ["## How much of the paper holds", "", *(f"- {line}" for line in what_holds(rows))]
    lines += ["", _last_epochs_by_other_errors(rows)] if rows else []
    return "\n".join(lines)


def what_holds(rows: Sequence[PaperRow]) -> list[str]:
    """Return a line of Markdown per metric: how many comparisons hold, and how the others differ."""
    lines = []
    for metric in METRICS:
        stated = [row for row in rows if metric in row.metrics]
        held, total = _sums([row.held(metric) for row in stated], 2)
        here, there, opposite = _sums([row.apart(metric) for row in stated], 3)
        agree, undecided, disagree = _sums([row.order(metric) for row in stated], 3)
        signs = sum(row.same_signs(metric) for row in stated)
        lines.append(
            f"{METRIC_TITLES[metric].capitalize()}: **{held} of {total} comparisons hold** in "
            f"{plural(len(stated), 'row', 'rows')}. Of the others, {_apart_text(here, there, opposite)}. "
            f"{plural(signs, 'comparison has', 'comparisons have')} the paper's sign, significant or not. Of "
            f"{agree + undecided + disagree} pairs of methods, {plural(agree, 'has', 'have')} the paper's "
            f"order, {plural(undecided, 'is', 'are')} undecided, {plural(disagree, 'has', 'have')} the "
            "opposite order."
        )
    return lines


def _last_epochs_by_other_errors(rows: Sequence[PaperRow]) -> str:
    """Count the findings in the last ten epochs by the paper's standard errors of the best error."""
    metric, stderr_of = "last10_test_error", "best_test_error"
    stated = [row for row in rows if metric in row.metrics]
    held, total = _sums([row.held(metric, stderr_of) for row in stated], 2)
    here, there, opposite = _sums([row.apart(metric, stderr_of) for row in stated], 3)
    return (
        "In the last ten epochs the paper's standard errors are mostly far below those of its best error, "
        "and below ours for as many trials. Presumably they treat every epoch as a trial. If we take the "
        f"paper's standard errors of the best error instead, {held} of {total} comparisons hold; of the "
        f"others, {_apart_text(here, there, opposite)}."
    )


def _apart_text(here: int, there: int, opposite: int) -> str:
    """Return the counts of `PaperRow.apart` in words.

    >>> _apart_text(1, 9, 0)
    '1 is significant only here, 9 only in the paper, 0 have opposite findings'
    """
    return (
        f"{plural(here, 'is', 'are')} significant only here, {there} only in the paper, "
        f"{plural(opposite, 'has', 'have')} opposite findings"
    )


def _sign(value: float) -> int:
    # Differences of printed numbers have rounding errors.
    return 0 if abs(value) < 1e-9 else 1 if value > 0 else -1


def _sums(rows: Sequence[tuple[int, ...]], width: int) -> list[int]:
    return [sum(row[column] for row in rows) for column in range(width)]


def _overview(rows: Sequence[PaperRow]) -> str:
    lines = [
        "| row | trials here | paper's | comparisons that hold (best test error) | hardware | "
        "seconds per trial and method |",
        "|---|---:|---:|---|---|---:|",
    ]
    for row in rows:
        recipe, results = row.recipe, row.results
        if not results:
            state = _CANNOT.get(recipe.name, "open: not run yet")
            lines.append(f"| {recipe.name} | 0 | {recipe.trials} | {state} | – | – |")
            continue
        trials = num_trials(results)
        held = "not in the paper" if recipe.row is None else "{} of {}".format(*row.held("best_test_error"))
        star = "*" if recipe.name in _SECONDS_OF_PARTS else ""
        lines.append(
            f"| [{recipe.name}](#{recipe.name}) | {trials} | {recipe.trials} | {held} | "
            f"{hardware_text(results)} | {_seconds(results)}{star} |"
        )
    return "\n".join(lines)


def hardware_text(results: Sequence[TrialResult]) -> str:
    """Return the kinds of hardware that trained the results."""
    return ", ".join(dict.fromkeys("CPU" if result.device == "cpu" else result.device for result in results))


def _seconds(results: Sequence[TrialResult]) -> str:
    """Return the mean seconds on each kind of hardware."""
    texts = []
    for device in dict.fromkeys(result.device for result in results):
        seconds = [result.seconds for result in results if result.device == device]
        mean = sum(seconds) / len(seconds)
        texts.append(f"{mean:,.0f}" if mean >= 10 else f"{mean:.2g}")
    return ", ".join(texts)


def _section(row: PaperRow, notes: Path, figures: str) -> str:
    recipe = row.recipe
    note = notes / f"{recipe.name}.md"
    parts = [f"## {recipe.name}", f"{recipe.title}."]
    if note.exists():
        parts.append(note.read_text(encoding="utf-8").strip())
    parts += [f"*{line}*" for line in _data_notes(row.results)]
    described = "Mean test error by epoch, one curve per method"
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


def _wrapped(text: str) -> str:
    """Wrap long lines outside tables and blocks of code.

    >>> [len(line) for line in _wrapped("- " + 30 * "word ").splitlines()]
    [106, 46]
    >>> [len(line) for line in _wrapped("| " + 30 * "word ").splitlines()]
    [152]
    >>> [len(line) for line in _wrapped("```sh\\n" + 30 * "word " + "\\n```").splitlines()]
    [5, 150, 3]
    """
    lines, in_code = [], False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        if len(line) <= _WIDTH or line.startswith("|") or in_code:
            lines.append(line)
        else:
            indent = "  " if line.startswith("- ") else ""
            lines += textwrap.wrap(
                line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines)


def main(folder: Path, out: Path) -> None:
    """Write the page, and its figures into the folder `figures` beside the page."""
    store = ResultStore(folder)
    figures = out.parent / "figures"
    for recipe in _recipes():
        if results := store.load(recipe.name, recipe.config()):
            save_figure(convergence_figure(results), figures / recipe.name)
            (figures / f"{recipe.name}.svg").unlink()  # the page shows the PNG only
    out.write_text(page(store, folder / "notes", "figures"), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m activebias.lab.reproduction RESULTS PAGE")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
