"""`activebias reproduce`: rows of the paper, with our numbers beside the paper's numbers."""

from pathlib import Path
from typing import Annotated

import typer

from activebias.commands.shared import (
    Data,
    Debug,
    Device,
    Devices,
    Epochs,
    Json,
    Methods,
    Out,
    Quiet,
    Ray,
    Seed,
    SideBySide,
    print_json,
    reports_errors,
    say,
    show,
)

app = typer.Typer()


@app.command(epilog="Example: activebias reproduce mnist-fc cifar10-lr --trials 5")
@reports_errors
def reproduce(
    rows: Annotated[list[str] | None, typer.Argument(metavar="ROW", help="Rows (default: all).")] = None,
    methods: Methods = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials", min=0, help="Number of trials (default: the paper's); 0 shows stored results."
        ),
    ] = None,
    seed: Seed = 0,
    epochs: Epochs = None,
    out: Out = Path("runs"),
    data: Data = None,
    device: Device = "auto",
    devices: Devices = None,
    ray: Ray = None,
    side_by_side: SideBySide = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a page with all rows, curves and verdicts.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train rows of the paper, and show our numbers beside the paper's numbers."""
    from activebias.commands.choosing import find_methods, find_place, find_rows, find_spread
    from activebias.commands.running import run
    from activebias.lab.data import DataError
    from activebias.lab.notes import notes, nothing_stored
    from activebias.lab.paper import paper_metrics
    from activebias.lab.reproduction import PaperRow
    from activebias.lab.result_tables import reproduction_table, summary

    spread = find_spread(devices, ray, device)
    place = find_place(out, data, device if spread is None else "cpu", side_by_side)
    if html is not None:
        from activebias.report.reproduction import check_file

        check_file(html)
    summaries, done = [], []
    for recipe in find_rows(rows, epochs=epochs):
        names = find_methods(methods, recipe, keep_applicable=not rows)
        try:
            if trials == 0:
                stored = place.store.load(recipe.name, recipe.config())
                results = [each for each in stored if each.method in names and each.rule is None]
            else:
                seeds = range(seed, seed + (trials or recipe.trials))
                results = run(recipe, names, seeds, place, quiet=quiet or as_json, spread=spread)
        except DataError as error:
            if rows:
                raise
            say(f"{recipe.name} is skipped: {error}")
            continue
        if not results:
            say(nothing_stored(recipe, names, place))
            continue
        summaries.append(summary(results))
        done.append(PaperRow(recipe, results))
        if not as_json:
            for metric in paper_metrics(recipe.row or recipe.name, recipe.methods):
                show(reproduction_table(results, row=recipe.row, metric=metric).to_rich())
                show("")
            for line in notes(recipe, results):
                show(line)
    if html is not None and done:
        from activebias.commands.reproduction_page import write_page

        say(f"Page: {write_page(done, html)}. Open it in a browser; it needs no network.")
    if as_json:
        print_json(summaries[0] if rows and len(rows) == len(summaries) == 1 else {"rows": summaries})
