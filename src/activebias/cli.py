"""The command `activebias`, put together from the modules of `activebias.commands`.

A command imports its modules when it runs, so that `activebias --help` loads neither torch nor the lab.
"""

import sys
from typing import Annotated

try:
    import typer

    from activebias.commands import (
        apply,
        audit,
        compare,
        data,
        demo,
        export,
        figures,
        recipes,
        report,
        reproduce,
        theory,
        train,
    )
except ModuleNotFoundError as error:  # only the library is installed
    if error.name not in ("typer", "rich"):
        raise
    sys.exit(f"activebias: the command needs {error.name}: run `pip install 'activebias[lab]'`.")

app = typer.Typer(
    name="activebias",
    help="Active Bias (NIPS 2017): train more accurate classifiers by emphasising uncertain instances.",
    epilog="Example: activebias demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (demo, recipes, compare, reproduce, figures, theory, train, audit, apply, export, report, data):
    app.add_typer(module.app)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from activebias import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command."""
    app()
