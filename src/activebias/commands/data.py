"""`activebias data`: lists and downloads the data sets of the experiments."""

import sys
from typing import Annotated

import typer

from activebias.commands.shared import (
    Data,
    Debug,
    Json,
    Quiet,
    print_json,
    reports_errors,
    show,
)

app = typer.Typer()
data_app = typer.Typer(
    help="List the data sets: present, wrong checksum, or missing with the next step.",
    epilog="Example: activebias data --data my/folder",
    invoke_without_command=True,
)
app.add_typer(data_app, name="data")


@data_app.callback()
@reports_errors
def data_list(context: typer.Context, data: Data = None, as_json: Json = False, debug: Debug = False) -> None:
    """List the data sets: present, wrong checksum, or missing with the next step."""
    if context.invoked_subcommand is not None:
        return
    from activebias.lab.data import data_root, status

    entries = status(data)
    if as_json:
        keys = ("name", "title", "state", "advice")
        print_json(
            {"folder": str(data_root(data)), "data": [{k: getattr(e, k) for k in keys} for e in entries]}
        )
        return
    show(f"Data folder: {data_root(data)}")
    for entry in entries:
        show(
            f"{entry.name}: {entry.state}. {entry.title}."
            + (f" To do: {entry.advice}." if entry.advice else "")
        )


@data_app.command("get", epilog="Example: activebias data get mnist")
@reports_errors
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `activebias data` lists.")],
    data: Data = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Download a data set from its official address and verify its checksums."""
    from activebias.lab.data import DataError, fetch
    from activebias.lab.data.sources import get_source

    try:
        get_source(name)
    except DataError as error:
        raise typer.BadParameter(str(error)) from None
    show(f"{name}: present in {fetch(name, data, quiet=quiet or not sys.stderr.isatty())}.")
