"""`activebias export`: the history of a run for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from activebias.commands.shared import Debug, Json, RunPath, print_json, reports_errors, show

app = typer.Typer()


@app.command(epilog="Example: activebias export runs/pets --format cartography --out dynamics")
@reports_errors
def export(
    run: RunPath,
    out: Annotated[Path, typer.Option("--out", help="The file, or the folder for cartography.")],
    format_name: Annotated[
        str, typer.Option("--format", help="npz, parquet, or cartography (dynamics_epoch_X.jsonl).")
    ] = "npz",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the history of a run for other tools: the probability of the label at every visit."""
    from activebias.runs.exports import FORMATS, export_history
    from activebias.runs.folder import read_run

    if format_name not in FORMATS:
        raise typer.BadParameter(
            f"Expected `--format` to be one of {', '.join(FORMATS)}, but got {format_name!r}."
        )
    number = export_history(read_run(run), out, format_name)
    if as_json:
        print_json({"run": str(run), "format": format_name, "num_instances": number, "out": str(out)})
    else:
        show(f"The histories of {number:,} instances: {out}.")
