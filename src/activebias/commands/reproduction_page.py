"""From results to the HTML page of a reproduction: `activebias reproduce … --html FILE`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from activebias.lab.conclusion import conclusion
from activebias.lab.experiment.results import METRICS
from activebias.lab.figures import colours_of, mean_curves
from activebias.lab.notes import notes
from activebias.lab.reproduction import PaperRow, counted, hardware_text, what_holds
from activebias.lab.result_tables import (
    METRIC_TITLES,
    TextTable,
    display_name,
    num_trials,
    reproduction_table,
)
from activebias.lab.significance import BASELINES, draws
from activebias.report.reproduction import Cell, Curve, Row, Table, write_reproduction

_MEANING = (
    "A comparison is a method against its baseline: Uni for S* methods, Scan for W* methods. It holds if our "
    "trials and the paper have the same finding: better, worse, or no difference. Our finding is a paired "
    "t-test over trials, Holm-corrected at 5 %; the paper's is a difference of more than twice the combined "
    "standard error."
)


def write_page(rows: Sequence[PaperRow], out: Path) -> Path:
    """Write the page of the rows that have results."""
    lines = [*(what_holds(counted(rows)) if counted(rows) else []), *_not_counted(rows)]
    return write_reproduction(
        [_row(row) for row in rows],
        out,
        title="Active Bias: the paper's rows, reproduced",
        sentences=[line.replace("**", "").replace(" %:", ":", 1) for line in lines] + [_MEANING],
        overview=_overview(rows),
    )


def _not_counted(rows: Sequence[PaperRow]) -> list[str]:
    """Return a sentence that names the rows without a part in the counts, or no sentence."""
    known = {row.recipe.name for row in counted(rows)}
    others = [
        f"{row.recipe.name}, a variant of {row.recipe.row}" for row in rows if row.recipe.name not in known
    ]
    return [f"Not counted: {'; '.join(others)}."] if others else []


def _overview(rows: Sequence[PaperRow]) -> Table:
    """Return the number of comparisons that hold, by row and metric."""
    titles = [f"hold: {METRIC_TITLES[metric].removesuffix(' %')}" for metric in METRICS]
    return Table(
        "Comparisons that hold",
        ("row", "trials here", "paper's", *titles, "hardware"),
        [
            [
                Cell(row.recipe.name, section=row.recipe.name),
                Cell(num_trials(row.results)),
                Cell(str(row.recipe.trials)),
                *(Cell(_held_text(row, metric)) for metric in METRICS),
                Cell(hardware_text(row.results)),
            ]
            for row in rows
        ],
    )


def _held_text(row: PaperRow, metric: str) -> str:
    held, total = row.held(metric) if metric in row.metrics else (0, 0)
    return f"{held} of {total}" if total else "–"


def _row(row: PaperRow) -> Row:
    recipe, results = row.recipe, row.results
    curves = mean_curves(results, recipe.burn_in)
    colours = colours_of(curves.by_method)
    return Row(
        name=recipe.name,
        title=recipe.title,
        verdicts=[row.verdict(metric) for metric in row.metrics] + [conclusion(results)],
        notes=notes(recipe, results),
        tables=[
            _table(reproduction_table(results, row=recipe.row, metric=metric), metric)
            for metric in row.metrics
        ],
        curves=[
            Curve(
                display_name(method),
                mean,
                stderr,
                None if method in BASELINES else colours[method],
                _dash(method),
            )
            for method, (mean, stderr) in curves.by_method.items()
        ],
        burn_in=recipe.burn_in,
        first_epoch=curves.first_epoch,
        limits=curves.limits,
    )


def _dash(method: str) -> Literal["solid", "dot", "dash"]:
    """Return the dashes of a method's curve: a statistic has one colour, drawn or weighted."""
    if method == "scan":
        return "dash"
    return "dot" if draws(method) else "solid"


def _table(table: TextTable, metric: str) -> Table:
    cells = [[Cell(cell.text, cell.bold) for cell in row] for row in table.rows]
    title = f"{METRIC_TITLES[metric].removesuffix(' %').capitalize()}: {table.title}"
    return Table(title, table.columns, cells, [note.replace("*: ", "Bold: ", 1) for note in table.notes])
