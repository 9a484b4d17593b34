"""`activebias report`: one HTML file about one or more runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from activebias.commands.shared import Debug, Json, print_json, reports_errors, show

app = typer.Typer()


@app.command(epilog="Example: activebias report my-run --out report.html")
@reports_errors
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, written by `activebias train`.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    image_budget: Annotated[
        float, typer.Option("--image-budget", min=0, help="Megabytes of pictures in the file.")
    ] = 10.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report for the browser: summary, curves, data map, suspects; several runs are compared."""
    from dataclasses import asdict

    from activebias.report.before_after import different_parts
    from activebias.report.page import write_report
    from activebias.runs.before_after import compare_before_after
    from activebias.runs.contents import THINGS
    from activebias.runs.folder import read_run

    folders = [read_run(run) for run in runs]
    written = write_report(folders, out, image_budget=round(image_budget * 1e6))
    size = written.stat().st_size
    found = compare_before_after(*folders) if len(folders) == 2 else None
    difference = different_parts(folders) if len(folders) > 2 else ""
    if as_json:
        more: dict[str, Any] = {} if found is None else {"before_after": asdict(found)}
        more |= {"note": difference} if difference else {}
        print_json({"out": str(written), "bytes": size, "runs": [str(run) for run in runs], **more})
    else:
        for folder in folders:
            if folder.info.explanation:
                show(f"{folder.path.resolve().name}, {folder.info.method}: {folder.info.explanation}")
        for sentence in [] if found is None else found.sentences(THINGS[folders[0].info.kind]):
            show(sentence)
        if difference:
            show(difference)
        show(f"Report: {written} ({size / 1e6:.1f} MB). Open it in a browser; it needs no network.")
