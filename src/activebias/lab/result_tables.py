"""Tables of results: for the terminal, for a Markdown page, and as the JSON object of `--json`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from activebias.lab.experiment.results import METRICS, TrialResult
from activebias.lab.paper import paper_rows, paper_value
from activebias.lab.significance import (
    BASELINES,
    SAMPLING_METHODS,
    Comparison,
    Estimate,
    Finding,
    against_baselines,
    by_method,
    finding_json,
    order_agreement,
    our_finding,
    paper_estimate,
    paper_finding,
)

if TYPE_CHECKING:
    from rich.table import Table as RichTable

METRIC_TITLES: Final = {
    "best_test_error": "best test error %",
    "last10_test_error": "last 10 epochs %",
    "best_train_error": "training error %",
}
_NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """A cell's text, and whether it is bold: significantly different from the baseline."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table of text for several outputs; `breaks` are the rows that begin a new group."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    breaks: tuple[int, ...] = ()

    def to_rich(self) -> "RichTable":
        """Return the table for the terminal. Bold cells also have a star, because files show no bold."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        starred = [any(row[column].bold for row in self.rows) for column in range(len(self.columns))]
        # The star has its own column, so that the digits are aligned.
        texts = [
            [
                cell.text.replace(" ± ", "±") + ("*" if cell.bold else " " * star)
                for cell, star in zip(row, starred, strict=True)
            ]
            for row in self.rows
        ]
        widths = [
            max((len(column) + 1) // 2, *map(len, column.split()), *(len(row[position]) for row in texts))
            for position, column in enumerate(self.columns)
        ]
        shown = [
            [
                Text(text.rjust(width) if position else text, "bold" if cell.bold else "")
                for position, (text, width, cell) in enumerate(zip(line, widths, row, strict=True))
            ]
            for line, row in zip(texts, self.rows, strict=True)
        ]
        table = Table(
            title=escape(self.title) + "\n",
            caption="\n" + "\n".join(map(escape, self.notes)),
            box=box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
            title_style="bold",
            caption_style="",
            # As narrow as possible: all eleven methods must fit into 80 columns.
            padding=(0, 1, 0, 0),
            show_edge=False,
        )
        for position, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            header = Text(column, justify="right" if position else "left")
            table.add_column(header, width=width, vertical="bottom", overflow="fold")
        for number, row in enumerate(shown):
            if number in self.breaks:
                table.add_section()
            table.add_row(*row)
        return table

    def to_text(self, width: int = 100) -> str:
        """Return the table as plain text, for a log file."""
        from io import StringIO

        from rich.console import Console

        console = Console(
            file=StringIO(), width=width, no_color=True, force_terminal=False, legacy_windows=False
        )
        with console.capture() as captured:
            console.print(self.to_rich())
        return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n") + "\n"

    def to_markdown(self) -> str:
        """Return the table as Markdown, with title and notes."""

        def line(texts: Iterable[str]) -> str:
            return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

        rows = [line(f"**{cell.text}**" if cell.bold else cell.text for cell in row) for row in self.rows]
        alignment = line(["---", *["---:"] * (len(self.columns) - 1)])
        head = [f"**{self.title}**", "", line(self.columns), alignment]
        notes = [part for note in self.notes for part in ("", note.replace("*: ", "Bold: ", 1))]
        return "\n".join([*head, *rows, *notes]) + "\n"


def display_name(method: str) -> str:
    """Return a method's name as the paper writes it, without "SGD-".

    >>> display_name("wpv"), display_name("scan"), display_name("my-method")
    ('WPV', 'Scan', 'my-method')
    """
    if method in BASELINES:
        return method.capitalize()
    return method.upper() if method.isalpha() and len(method) <= 3 else method


def num_trials(results: Sequence[TrialResult]) -> str:
    """Return the number of trials of the methods: "3", or "10 to 20" if it differs between methods."""
    numbers = [len(values) for values in by_method(results, METRICS[0]).values()]
    fewest, most = min(numbers), max(numbers)
    return str(most) if fewest == most else f"{fewest} to {most}"


def trials_text(results: Sequence[TrialResult]) -> str:
    """Return the number of trials with its noun: "1 trial", "10 to 20 trials"."""
    number = num_trials(results)
    return f"{number} {'trial' if number == '1' else 'trials'}"


def summary(results: Sequence[TrialResult]) -> dict[str, Any]:
    """Return the JSON object for `--json`; the standard error of a single trial is null."""
    methods: dict[str, dict[str, dict[str, Any]]] = {}
    for metric in METRICS:
        for item in against_baselines(results, metric):
            numbers = {"mean": item.mean, "stderr": item.stderr, **finding_json(item)}
            methods.setdefault(item.method, {})[metric] = numbers
    trials = len({result.seed for result in results})
    return {"recipe": results[0].recipe, "trials": trials, "methods": methods}


def comparison_table(results: Sequence[TrialResult], named: Callable[[str], str] = display_name) -> TextTable:
    """Return the methods side by side: n, mean ± standard error, difference to the baseline, corrected p.

    Difference and p are of the first metric. Bold is decided for each column separately.
    `named` gives the name of a method in the table.
    """
    first, *others = METRICS
    compared = {name: against_baselines(results, name) for name in METRICS}
    main = compared[first]
    decimals = {name: _decimals(items) for name, items in compared.items()}

    def value(name: str, position: int) -> Cell:
        item = compared[name][position]
        return Cell(_with_error(item.mean, item.stderr, decimals[name]), item.significant)

    rows = []
    for position, item in enumerate(main):
        test = item.test
        difference = (
            Cell(_NOTHING)
            if test is None or test.difference is None
            else Cell(_with_error(test.difference, test.stderr, decimals[first], "+"), item.significant)
        )
        head = (Cell(named(item.method)), Cell(str(item.n)), value(first, position))
        more = (value(name, position) for name in others)
        rows.append((*head, difference, Cell(_p_text(item.p_holm)), *more))
    titles = [METRIC_TITLES[name] for name in others]
    columns = ("method", "n", METRIC_TITLES[first], "- baseline", "p Holm", *titles)
    notes = [*_notes(main, named), *_short_run_notes(results)]
    return TextTable(_title(results), columns, tuple(rows), tuple(notes), _breaks(main))


def reproduction_table(
    results: Sequence[TrialResult], *, row: str | None = None, metric: str = "best_test_error"
) -> TextTable:
    """Return our numbers beside the paper's numbers in `row` (default: the row with the recipe's name)."""
    items = against_baselines(results, metric)
    paper = paper_estimates(row or results[0].recipe, items, metric)
    decimals = _decimals(items)
    findings = {
        method: (ours, theirs) for method, ours, theirs in paper_findings(results, row=row, metric=metric)
    }
    rows = []
    for item in items:
        printed = paper_value(row or results[0].recipe, item.method, metric)
        test, ours_text, paper_text = item.test, _NOTHING, _NOTHING
        if test is not None and test.difference is not None:
            ours_text = _number(test.difference, decimals, "+")
        if item.baseline in paper and item.method in paper:
            paper_text = _number(paper[item.method].mean - paper[item.baseline].mean, 2, "+")
        ours, theirs = findings.get(item.method, (None, None))
        rows.append(
            (
                Cell(display_name(item.method)),
                Cell(str(item.n)),
                Cell(_with_error(item.mean, item.stderr, decimals), item.significant),
                Cell(_NOTHING if printed is None else _with_error(*printed, 2)),
                Cell(_NOTHING if printed is None else _number(item.mean - printed[0], 2, "+")),
                Cell(ours_text, item.significant),
                Cell(_p_text(item.p_holm)),
                Cell(paper_text),
                Cell(_NOTHING if ours is None else "yes" if ours == theirs else "no"),
            )
        )
    columns = (
        "method",
        "n",
        f"ours: {METRIC_TITLES[metric]}",
        "paper",
        "ours - paper",
        "ours - baseline",
        "p Holm",
        "paper - baseline",
        "holds",
    )
    notes = [*_notes(items), *_agreement_notes(items, paper, list(findings.values()))]
    if metric == "last10_test_error":
        notes += _short_run_notes(results)
    return TextTable(_title(results), columns, tuple(rows), tuple(notes), _breaks(items))


def paper_findings(
    results: Sequence[TrialResult],
    *,
    row: str | None = None,
    metric: str = "best_test_error",
    stderr_of: str | None = None,
) -> list[tuple[str, Finding, Finding]]:
    """Return (method, our finding, the paper's finding) for every comparison that both made.

    With `stderr_of`, the paper's finding uses its standard errors of another metric.
    """
    items = against_baselines(results, metric)
    paper = paper_estimates(row or results[0].recipe, items, metric)
    if stderr_of is not None:
        others = paper_estimates(row or results[0].recipe, items, stderr_of)
        paper = {method: Estimate(value.mean, others[method].stderr) for method, value in paper.items()}
    findings = []
    for item in items:
        ours = our_finding(item)
        if ours is not None and item.method in paper and item.baseline in paper:
            findings.append((item.method, ours, paper_finding(paper[item.method], paper[item.baseline])))
    return findings


def paper_estimates(row: str, items: Iterable[Comparison], metric: str) -> dict[str, Estimate]:
    """Return the paper's numbers in a row, by method, for the methods that it has."""
    if row not in paper_rows():
        raise ValueError(
            f"Expected `row` to be a row of the paper, {', '.join(paper_rows())}, but got {row!r}"
        )
    values = {item.method: paper_value(row, item.method, metric) for item in items}
    return {method: paper_estimate(*value) for method, value in values.items() if value is not None}


def _agreement_notes(
    items: Sequence[Comparison], paper: dict[str, Estimate], findings: Sequence[tuple[Finding, Finding]]
) -> list[str]:
    order = order_agreement({item.method: Estimate(item.mean, item.stderr) for item in items}, paper)
    pairs = len(order.agrees) + len(order.undecided) + len(order.disagrees)
    notes = []
    if findings:
        held = sum(ours == theirs for ours, theirs in findings)
        notes.append(
            f"Findings: {held} of {len(findings)} hold (better, worse or no difference against the baseline; "
            "in the paper by more than twice the combined standard error)."
        )
    if pairs:
        notes.append(
            f"Order of {pairs} pairs of methods: {len(order.agrees)} as in the paper, "
            f"{len(order.undecided)} undecided, {len(order.disagrees)} opposite (decided by more than twice "
            "the combined standard error, here and in the paper)."
        )
    if order.disagrees:
        named = ", ".join(f"{display_name(low)} < {display_name(high)}" for low, high in order.disagrees)
        notes.append(f"Opposite order in the paper: {named}.")
    return notes


def _title(results: Sequence[TrialResult]) -> str:
    first = results[0]
    number = len(first.test_error)
    return f"{first.recipe}, {trials_text(results)}, {number} {'epoch' if number == 1 else 'epochs'}"


def _short_run_notes(results: Sequence[TrialResult]) -> list[str]:
    """Return a note if a run has fewer than ten epochs."""
    number = min(len(result.test_error) for result in results)
    return (
        [f"Last 10 epochs: there are only {number}, and the mean is over all of them."] if number < 10 else []
    )


def _notes(items: Sequence[Comparison], named: Callable[[str], str] = display_name) -> list[str]:
    by_baseline: dict[str, list[Comparison]] = {}
    for item in items:
        if item.baseline is not None:
            by_baseline.setdefault(item.baseline, []).append(item)
    if not by_baseline:
        return ["n trials, mean ± standard error; no baseline to compare with."]
    against = "; ".join(
        f"{', '.join(named(item.method) for item in group)} against {named(baseline)}"
        for baseline, group in by_baseline.items()
    )
    notes = [f"n trials, mean ± standard error; {against}."]
    count = sum(item.p_holm is not None for item in items)
    if count:
        tests = "test" if count == 1 else "tests"
        notes.append(
            f"*: p < 0.05 in a paired t-test by trial, Holm-corrected over {count} {tests} per column."
        )
    else:
        notes.append(
            "No test is possible: a method needs at least two trials in common with its baseline, and "
            "differences that vary between trials."
        )
    fewer = [item for item in items if count and item.test is not None and item.test.n < item.n]
    if fewer:
        numbers = ", ".join(f"{named(item.method)} {item.test.n}" for item in fewer if item.test)
        notes.append(f"Fewer pairs than trials: {numbers}.")
    return notes


def _breaks(items: Sequence[Comparison]) -> tuple[int, ...]:
    sampling = sum(item.method in SAMPLING_METHODS for item in items)
    return (sampling,) if 0 < sampling < len(items) else ()


def _decimals(items: Sequence[Comparison]) -> int:
    # Two as in the paper, or three if a standard error below 0.01 would keep only one digit.
    errors = [item.stderr for item in items] + [item.test.stderr for item in items if item.test]
    return 3 if any(error is not None and 0 < error < 0.01 for error in errors) else 2


def _number(value: float, decimals: int, sign: str = "") -> str:
    # Adding 0 turns -0.00 into 0.00.
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"


def _with_error(mean: float, stderr: float | None, decimals: int, sign: str = "") -> str:
    text = _number(mean, decimals, sign)
    return text if stderr is None else f"{text} ± {stderr:.{decimals}f}"


def _p_text(p_value: float | None) -> str:
    if p_value is None:
        return _NOTHING
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def listing(names: Sequence[str]) -> str:
    """Return names as words of a sentence.

    >>> listing(["wd", "we", "wtc"])
    'wd, we and wtc'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
