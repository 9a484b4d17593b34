"""`activebias audit`: the labels of a run that are likely wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from activebias.commands.shared import Debug, Json, RunPath, print_json, printable, reports_errors, show

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer()

# Class names are cut on the screen.
NAME_LENGTH = 40
# A longer identifier of a row would take the width of the row's values.
IDENTIFIER_LENGTH = 20


@app.command(epilog="Example: activebias audit runs/pets --out suspects.csv --top 50")
@reports_errors
def audit(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option("--out", help="CSV of all instances, most suspicious first.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Number of instances to show.")] = 20,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Do not escape text that a spreadsheet would run as a formula."),
    ] = False,
    by_class: Annotated[
        bool,
        typer.Option("--by-class", help="Every label in turn: its most suspicious, its second, and so on."),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Rank the instances of a run: labels that are most likely wrong come first."""
    from activebias.runs.folder import read_run
    from activebias.runs.outcome import plural, warnings_of_memorising
    from activebias.runs.suspects import (
        at_least,
        audit_run,
        is_sure,
        judges_note,
        rows,
        weak_judge,
        write_csv,
    )

    folder = read_run(run)
    found = audit_run(folder)
    if out is not None:
        write_csv(folder, found, out, exact=exact, by_class=by_class)
    worst = list(rows(folder, found, top, by_class=by_class))
    number, sure = int(found.suspected.sum()), int(is_sure(found).sum())
    num_conflicts = folder.instances().num_conflicts
    if as_json:
        print_json(
            {
                "run": str(run),
                "num_instances": len(found),
                "num_suspected": number,
                "num_sure": sure,
                "num_conflicts": num_conflicts,
                "judges": folder.info.num_judges,
                "out": None if out is None else str(out),
                "suspects": worst,
            }
        )
        return
    if worst:
        order = "every label in turn" if by_class else "most suspicious first"
        show(_table(f"{folder.info.title}: {order}", worst, with_conflict=num_conflicts > 0))
        if counted := _counted(worst[0]):
            show(counted)
    who = "the model believes" if folder.info.num_judges == 1 else "the judges believe"
    if number:
        show(
            f"For {number:,} of {len(found):,} instances {who} in a class other than the label. "
            f"{'The most suspicious of every label' if by_class else 'The most suspicious'} come first. A "
            "person has to check them: their number is no estimate of the number of wrong labels."
        )
    else:
        show(
            f"There are no suspects: for all {len(found):,} instances {who} in the label. The least probable "
            "labels come first. Some of them may be wrong all the same."
        )
    for note in (judges_note(folder.info), at_least(folder.info, sure)):
        if note:
            show(note)
    if doubt := weak_judge(folder.info):
        show(doubt)
    if folder.info.num_judges == 1:  # several judges leave out epochs of memorising
        for warning in warnings_of_memorising(folder.info):
            show(f"Warning of the training: {warning}")
    if folder.conflicts_file is not None:
        place = ", numbered in the column conflict" if worst or out is not None else ""
        show(
            f"Some inputs have different labels: {plural(num_conflicts, 'instance', 'instances')}{place}. "
            f"{folder.conflicts_file} lists them group by group."
        )
    show("Write all instances with --out FILE.csv." if out is None else f"All instances: {out}.")


def _counted(row: dict[str, Any]) -> str:
    """Say from where the first column counts, if it is a number."""
    if "row" in row:
        return "The column row counts from 0, without the header."
    return "The columns sentence and word count from 0." if "sentence" in row else ""


def _table(title: str, worst: list[dict[str, Any]], *, with_conflict: bool) -> "Table":
    from rich.table import Table

    from activebias.runs.suspects import excerpt

    table = Table(title=printable(title), title_justify="left")
    conflict = ("conflict",) if with_conflict else ()
    first = list(worst[0])
    place = first[: first.index("label")]
    identifiers = place[1:] if place[0] == "row" else []
    if identifiers:
        place = ["row", *(name for name in identifiers[:1] if _fits(name, worst))]
    instance = () if place == ["file"] else ("instance",)  # the name of the file, once more
    # A word with its sentence needs the width, and so does an identifier.
    more = ("confidence",) if len(place) > 1 else ("confidence", "variability")
    names = (*place, "label", "believed", "score", *conflict, *more, *instance)
    for name in names:
        is_text = name in ("file", "label", "believed", "instance", *identifiers)
        table.add_column(printable(name), justify="left" if is_text else "right", overflow="fold")
    for row in worst:
        short = {name: excerpt(row[name], NAME_LENGTH) for name in ("label", "believed")}
        table.add_row(*(_cell((row | short)[name]) for name in names))
    return table


def _fits(name: str, worst: list[dict[str, Any]]) -> bool:
    """Tell whether a column of identifiers is narrow enough for the screen."""
    return max(len(name), *(len(row[name] or "") for row in worst)) <= IDENTIFIER_LENGTH


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else printable(str(value))
