"""Options, one-sentence errors and output of all commands."""

import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from typer.core import TyperCommand

Out = Annotated[Path, typer.Option("--out", help="Folder of results, checkpoints, models and figures.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder (default: $ACTIVEBIAS_DATA or ~/.cache/activebias)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the first trial; later trials count up.")]
NumTrials = Annotated[
    int | None, typer.Option("--trials", min=1, help="Number of trials (default: the recipe's).")
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", min=1, help="Another number of epochs; the burn-in changes in proportion."),
]
NoiseText = Annotated[
    str | None,
    typer.Option("--noise", help="Label noise: 0.1 (uniform), KIND:SHARE, human:ANNOTATION, or 0 for none."),
]
Methods = Annotated[
    str | None, typer.Option("--methods", help="Methods, separated by commas (default: the recipe's).")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Devices = Annotated[
    str | None,
    typer.Option("--devices", help="Several devices of this machine, such as cuda:0,cuda:1: a process each."),
]
Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="An existing Ray cluster that trains the trials as tasks."),
]
SideBySide = Annotated[
    int | None,
    typer.Option("--side-by-side", min=1, help="Most models trained at once (default: as many as fit)."),
]
RecipeOrData = Annotated[
    str | None, typer.Argument(metavar="RECIPE", help="A name that `activebias recipes` lists.")
]
Images = Annotated[
    Path | None, typer.Option("--images", help="Own data: a folder with a folder of images per class.")
]
Csv = Annotated[
    Path | None, typer.Option("--csv", help="Own data: a table (CSV, TSV or parquet), with --target.")
]
Target = Annotated[str | None, typer.Option("--target", help="The column of the table with the labels.")]
Conll = Annotated[
    Path | None, typer.Option("--conll", help="Own data: text with a word and its tag per line.")
]

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `activebias train` wrote.")]


class OnceCommand(TyperCommand):
    """A command that refuses an option of the data given twice; by default the last one counts."""

    once = ("images", "csv", "target", "conll", "validation", "embeddings")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after a look at how often each option comes."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for parameter in order:
            if parameter.name in self.once and order.count(parameter) > 1:
                raise typer.BadParameter(
                    f"Give `{parameter.opts[0]}` once, not {order.count(parameter)} times: put the data into "
                    "one file or folder."
                )
        return super().parse_args(ctx, args)


def require_one_source(recipe: str | None, images: Path | None, csv: Path | None, conll: Path | None) -> str:
    """Return which of the options names the data; raise unless exactly one does."""
    sources = {"RECIPE": recipe, "--images": images, "--csv": csv, "--conll": conll}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        came = " and ".join(given) or "none"
        raise typer.BadParameter(f"Give exactly one of RECIPE, --images, --csv and --conll, not {came}.")
    return given[0]


def refuse_given(
    options: Mapping[str, Any], kind: str, reasons: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Refuse the first of the options that is given: all of them are for another `kind` of data."""
    for name, value in options.items():
        if value is not None:
            reason = f": {reasons[name]}" if name in reasons else ""
            raise typer.BadParameter(f"`{name}` is for {kind}{reason}.")


TABLES, TAGGED = (".csv", ".tsv", ".gz", ".parquet", ".pq"), (".conll", ".bio", ".iob")


def refuse_path(name: str) -> None:
    """Refuse a file or folder in the place of a recipe, and say which option it needs."""
    from activebias.lab.cookbook import RECIPES

    path, suffix = Path(name), Path(name).suffix.lower()
    if name in RECIPES:
        return
    table, tagged = f"`--csv {name} --target COLUMN`", f"`--conll {name}`"
    if path.is_dir():
        raise typer.BadParameter(f"{name!r} is a folder: use `--images {name}`.")
    if path.exists():
        use = table if suffix in TABLES else tagged if suffix in TAGGED else ""
        use = use or f"{table} for a table, or {tagged} for tagged text"
        raise typer.BadParameter(f"{name!r} is a file: use {use}.")
    if len(path.parts) > 1 or suffix in TABLES + TAGGED:
        raise typer.BadParameter(
            f"There is no recipe, file or folder {name!r}: check the path, and give own data by --images, "
            "--csv or --conll."
        )


def refuse_without_target(csv: Path | None) -> NoReturn:
    """Refuse one of `--csv` and `--target` without the other, and list the columns of the table."""
    from activebias.own.data import listing
    from activebias.own.tables import read_frame

    text = "`--csv FILE` and `--target COLUMN` belong together: give both."
    if csv is not None:
        frame, _ = read_frame(csv, target="")
        text += f" The columns of {csv} are {printable(listing(list(frame.columns), 20))}."
    raise typer.BadParameter(text)


_Command = TypeVar("_Command", bound=Callable[..., None])


def reports_errors(command: _Command) -> _Command:
    """Turn an error into one sentence and exit code 1, and Ctrl-C into a hint; --debug raises the error."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, debug: bool = False, **options: Any) -> None:
        try:
            command(*arguments, debug=debug, **options)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            say("Stopped. Run the same command again to resume.")
            raise typer.Exit(130) from None
        except Exception as error:
            if debug:
                raise
            expected = isinstance(error, (ValueError, TypeError, OSError, RuntimeError))
            text = " ".join(str(error).split()) or "no message"
            say(f"activebias: {text if expected else f'unexpected {type(error).__name__}: {text}'}")
            raise typer.Exit(1) from None

    return wrapper  # type: ignore[return-value]


def say(text: str) -> None:
    """Write to stderr; stdout is for results."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(printable(text))


def printable(text: str) -> str:
    """Return a line without control characters, because names from the data could control a terminal.

    >>> printable("a\x1b[31m b")
    'a�[31m b'
    """
    return "".join(character if character.isprintable() else "�" for character in text)


def show(text: Any) -> None:
    """Write a result to stdout."""
    # Without a terminal the width is fixed: a log file needs the whole table.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=110)
    console.print(text)


def print_json(value: Any) -> None:
    """Write one JSON object to stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
