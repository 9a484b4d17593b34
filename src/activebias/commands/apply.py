"""`activebias apply`: a copy of the data of a run with corrected labels."""

from pathlib import Path
from typing import Annotated

import typer

from activebias.commands.shared import Debug, Json, print_json, reports_errors, show

app = typer.Typer()

SHOWN = 5


@app.command(epilog="Example: activebias apply corrections.csv --run runs/pets --out pets-corrected")
@reports_errors
def apply(
    corrections: Annotated[
        Path, typer.Argument(metavar="CORRECTIONS", help="The CSV file that the report exports.")
    ],
    run: Annotated[Path, typer.Option("--run", help="The run folder of the report.")],
    out: Annotated[Path, typer.Option("--out", help="The corrected data: a new file or folder.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a copy of a run's data with corrected labels; the data itself is never changed."""
    from activebias.own.applying import apply_corrections, count_changes
    from activebias.runs.corrections import read_corrections
    from activebias.runs.folder import read_run
    from activebias.runs.outcome import plural

    folder = read_run(run)
    found = read_corrections(corrections, folder)
    if not found:
        raise ValueError(f"{corrections} changes no label, so nothing is written.")
    written = apply_corrections(folder, found, out)
    changes = count_changes(folder, found)
    again = " ".join(f"{option} {path}" for option, path in written.items())
    if as_json:
        print_json(
            {
                "run": str(run),
                "out": str(out),
                "num_changed": len(found),
                "changes": [{"label": old, "new_label": new, "number": n} for old, new, n in changes],
                "written": {option: str(path) for option, path in written.items()},
            }
        )
        return
    pairs = "; ".join(f"{old} → {new} ({number})" for old, new, number in changes[:SHOWN])
    num_more = len(changes) - SHOWN
    more = f"; and {plural(num_more, 'more pair', 'more pairs')}" if num_more > 0 else ""
    show(
        f"Changed {plural(len(found), 'label', 'labels')} of {folder.info.num_audited:,}: {pairs}{more}. The "
        f"corrected data is {out}; {folder.info.source} is unchanged. Next: `activebias train {again} --like "
        f"{run}` trains again with the same split."
    )
