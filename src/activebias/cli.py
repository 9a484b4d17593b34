"""The command `activebias`: run the paper's experiments, compare methods, look at the outcome.

What a command needs is imported inside it, so that `activebias --help` loads nothing of the lab.
"""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as error:  # only the library is installed
    sys.exit(f"activebias: the command needs {error.name}: run `pip install 'activebias[lab]'`.")

app = typer.Typer(
    name="activebias",
    help="Active Bias (NIPS 2017): train more accurate classifiers by emphasising uncertain instances.",
    epilog="Example: activebias demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(
    help="List the data sets: present, checksum wrong, or missing and what to do.",
    epilog="Example: activebias data --data my/folder",
    invoke_without_command=True,
)
app.add_typer(data_app, name="data")

Out = Annotated[Path, typer.Option("--out", help="Folder of results, checkpoints, models and figures.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder (default: $ACTIVEBIAS_DATA or ~/.cache/activebias)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the first trial; the others count up.")]
Trials = Annotated[
    int | None, typer.Option("--trials", min=1, help="Number of trials (default: the recipe's).")
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Shorten to so many epochs, the burn-in in proportion.")
]
NoiseText = Annotated[
    str | None,
    typer.Option("--noise", help="Label noise: 0.1 (uniform), KIND:SHARE, human:ANNOTATION, or 0 for none."),
]
Methods = Annotated[
    str | None, typer.Option("--methods", help="Methods, separated by commas (default: the recipe's).")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A name that `activebias recipes` lists.")]

_Command = TypeVar("_Command", bound=Callable[..., None])


def _reports_errors(command: _Command) -> _Command:
    """Turn an error into one sentence and exit code 1, and Ctrl-C into a hint; --debug shows everything."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, debug: bool = False, **options: Any) -> None:
        try:
            command(*arguments, debug=debug, **options)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            _say("Stopped. The same command goes on where it was.")
            raise typer.Exit(130) from None
        except Exception as error:
            if debug:
                raise
            expected = isinstance(error, (ValueError, TypeError, OSError, RuntimeError))
            text = " ".join(str(error).split()) or "no message"
            _say(f"activebias: {text if expected else f'unexpected {type(error).__name__}: {text}'}")
            raise typer.Exit(1) from None

    return wrapper  # type: ignore[return-value]


def _say(text: str) -> None:
    """Write to the error stream, which leaves standard output to results."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(text)


def _show(text: Any) -> None:
    # Wide where nobody's window limits it: a table cut in a log file helps no one.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=110)
    console.print(text)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@app.command(epilog="Example: activebias demo --out runs")
@_reports_errors
def demo(
    out: Out = Path("runs"),
    trials: Trials = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train on digits with 20 % wrong labels by Scan and the four weighting methods: table and figure."""
    import torch

    from activebias.lab import commands as shared
    from activebias.lab.conclusion import conclusion
    from activebias.lab.figures import convergence_figure, save_figure
    from activebias.lab.tables import comparison_table, summary

    torch.set_num_threads(1)  # the net is so small that a second thread only costs
    recipe = shared.find_recipe("digits")
    place = shared.find_place(out, None, "cpu")
    seeds = range(seed, seed + (trials or recipe.trials))
    results = shared.run(recipe, recipe.methods, seeds, place, quiet=quiet or as_json)
    files = save_figure(convergence_figure(results), out / "figures" / recipe.name)
    if as_json:
        _print_json(summary(results) | {"conclusion": conclusion(results), "files": [str(f) for f in files]})
        return
    _show(comparison_table(results).to_rich())
    _show("")
    _show(conclusion(results))
    _show(f"Results: {place.store.path(recipe.name)}; figure: {' and '.join(str(file) for file in files)}.")


@app.command(epilog="Example: activebias recipes --json")
@_reports_errors
def recipes(as_json: Json = False, debug: Debug = False) -> None:
    """List the recipes: one for every row of the paper's experiments, and a few more."""
    from activebias.lab import RECIPES, get_recipe
    from activebias.lab.tables import Cell, TextTable

    found = [get_recipe(name) for name in RECIPES]
    if as_json:
        _print_json(
            {
                "recipes": [
                    {"name": r.name, "title": r.title, "row": r.row, "methods": r.methods, "trials": r.trials}
                    | r.config()
                    for r in found
                ]
            }
        )
        return
    rows = [
        tuple(
            Cell(str(v))
            for v in (r.name, r.data, len(r.methods), r.trials, r.epochs, r.burn_in, r.batch_size)
        )
        for r in found
    ]
    columns = ("recipe", "data", "methods", "trials", "epochs", "burn-in", "batch")
    titles = tuple(f"{recipe.name}: {recipe.title}." for recipe in found)
    _show(TextTable("Recipes", columns, tuple(rows), titles).to_rich())


@app.command(epilog="Example: activebias train mnist-fc --method wpv --seed 1")
@_reports_errors
def train(
    recipe_name: RecipeName,
    method: Annotated[str, typer.Option("--method", help="One method.")] = "wpv",
    seed: Seed = 0,
    epochs: Epochs = None,
    noise: NoiseText = None,
    out: Out = Path("runs"),
    data: Data = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train one model and save it with its history."""
    from activebias.lab import commands as shared
    from activebias.lab.store import METRICS

    recipe = shared.find_recipe(recipe_name, noise=noise, epochs=epochs)
    (name,) = shared.find_methods(method, recipe)[:1]
    place = shared.find_place(out, data, device)
    (result,) = shared.run(recipe, [name], [seed], place, quiet=quiet or as_json, keep_models=True)
    path = place.model_path(recipe, name, seed)
    errors = {metric: result.metric(metric) for metric in METRICS}
    if as_json:
        _print_json({"recipe": recipe.name, "method": name, "seed": seed, **errors, "model": str(path)})
        return
    best, last, training = errors.values()
    _show(
        f"{recipe.name}, {name}, seed {seed}: best test error {best:.2f} %, last 10 epochs {last:.2f} %, "
        f"best training error {training:.2f} %."
    )
    for line in shared.notes(recipe, [result]):
        _show(line)
    _show(f"Model and history: {path}.")


@app.command(epilog="Example: activebias compare mnist-fc --methods scan,wpv,wtc --trials 3 --noise 0.1")
@_reports_errors
def compare(
    recipe_name: RecipeName,
    methods: Methods = None,
    trials: Trials = None,
    noise: NoiseText = None,
    seed: Seed = 0,
    epochs: Epochs = None,
    out: Out = Path("runs"),
    data: Data = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train methods side by side on a recipe, and test them against their baseline."""
    from activebias.lab import commands as shared
    from activebias.lab.conclusion import conclusion
    from activebias.lab.tables import comparison_table, summary

    recipe = shared.find_recipe(recipe_name, noise=noise, epochs=epochs)
    seeds = range(seed, seed + (trials or recipe.trials))
    place = shared.find_place(out, data, device)
    results = shared.run(recipe, shared.find_methods(methods, recipe), seeds, place, quiet=quiet or as_json)
    if as_json:
        _print_json(summary(results))
        return
    _show(comparison_table(results).to_rich())
    _show("")
    for line in (conclusion(results), *shared.notes(recipe, results)):
        _show(line)
    _show(f"Results: {place.store.path(recipe.name)}.")


@app.command(epilog="Example: activebias reproduce mnist-fc cifar10-lr --trials 5")
@_reports_errors
def reproduce(
    rows: Annotated[list[str] | None, typer.Argument(metavar="[ROW]...", help="Rows (default: all).")] = None,
    methods: Methods = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials", min=0, help="Number of trials (default: the paper's); 0 shows what is stored."
        ),
    ] = None,
    seed: Seed = 0,
    epochs: Epochs = None,
    out: Out = Path("runs"),
    data: Data = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train rows of the paper, and show our numbers beside the paper's."""
    from activebias.lab import commands as shared
    from activebias.lab.data import DataError
    from activebias.lab.tables import reproduction_table, summary

    place = shared.find_place(out, data, device)
    summaries = []
    for recipe in shared.find_rows(rows, epochs=epochs):
        names = shared.find_methods(methods, recipe, keep_applicable=not rows)
        try:
            if trials == 0:
                stored = place.store.load(recipe.name, recipe.config())
                results = [result for result in stored if result.method in names]
            else:
                seeds = range(seed, seed + (trials or recipe.trials))
                results = shared.run(recipe, names, seeds, place, quiet=quiet or as_json)
        except DataError as error:
            if rows:
                raise
            _say(f"{recipe.name} is left out: {error}")
            continue
        if not results:
            _say(f"{recipe.name}: no results in {place.store.path(recipe.name)}.")
            continue
        summaries.append(summary(results))
        if not as_json:
            for metric in shared.paper_metrics(recipe):
                _show(reproduction_table(results, row=recipe.row, metric=metric).to_rich())
                _show("")
            for line in shared.notes(recipe, results):
                _show(line)
    if as_json:
        _print_json(summaries[0] if rows and len(rows) == len(summaries) == 1 else {"rows": summaries})


@app.command(epilog="Example: activebias figures mnist-fc --out runs")
@_reports_errors
def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE]...", help="Recipes (default: all that are stored)."),
    ] = None,
    seed: Seed = 0,
    out: Out = Path("runs"),
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw the toy example and the convergence curves of what is stored, as PNG and SVG."""
    from activebias.lab import commands as shared
    from activebias.lab.figures import save_figure
    from activebias.lab.toy_figure import run_toy, toy_figure

    files = shared.draw_curves(names, out)
    files += save_figure(toy_figure(*run_toy(seed=seed)), out / "figures" / "toy")
    if as_json:
        _print_json({"files": [str(file) for file in files]})
    else:
        for file in files:
            _show(str(file))


@app.command(epilog="Example: activebias theory --seed 1")
@_reports_errors
def theory(seed: Seed = 0, as_json: Json = False, debug: Debug = False) -> None:
    """Check the paper's theory (logistic regression) in numbers."""
    from dataclasses import asdict

    from activebias.lab import commands as shared
    from activebias.lab.theory import check_all

    checked = check_all(seed)
    if as_json:
        _print_json(asdict(checked))
    else:
        _show(shared.theory_table(checked).to_rich())


@data_app.callback()
@_reports_errors
def data_list(context: typer.Context, data: Data = None, as_json: Json = False, debug: Debug = False) -> None:
    """List the data sets: present, checksum wrong, or missing and what to do."""
    if context.invoked_subcommand is not None:
        return
    from activebias.lab.data import data_root, status

    entries = status(data)
    if as_json:
        keys = ("name", "title", "state", "advice")
        _print_json(
            {"folder": str(data_root(data)), "data": [{k: getattr(e, k) for k in keys} for e in entries]}
        )
        return
    _show(f"Data folder: {data_root(data)}")
    for entry in entries:
        _show(
            f"{entry.name}: {entry.state}. {entry.title}."
            + (f" To do: {entry.advice}." if entry.advice else "")
        )


@data_app.command("get", epilog="Example: activebias data get mnist")
@_reports_errors
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `activebias data` lists.")],
    data: Data = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Download a data set from its official address and verify its checksums."""
    from activebias.lab.data import fetch

    _show(f"{name}: present in {fetch(name, data, quiet=quiet or not sys.stderr.isatty())}.")


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
