"""The paper's experiments: demo, recipes, compare, reproduce, figures, theory."""

from pathlib import Path
from typing import Annotated

import typer

from activebias.commands.shared import (
    Data,
    Debug,
    Device,
    Epochs,
    Json,
    Methods,
    NoiseText,
    Out,
    Quiet,
    RecipeName,
    Seed,
    SideBySide,
    Trials,
    print_json,
    reports_errors,
    say,
    show,
)

app = typer.Typer()


@app.command(epilog="Example: activebias demo --out runs")
@reports_errors
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
        print_json(summary(results) | {"conclusion": conclusion(results), "files": [str(f) for f in files]})
        return
    show(comparison_table(results).to_rich())
    show("")
    show(conclusion(results))
    show(f"Results: {place.store.path(recipe.name)}; figure: {' and '.join(str(file) for file in files)}.")


@app.command(epilog="Example: activebias recipes --json")
@reports_errors
def recipes(as_json: Json = False, debug: Debug = False) -> None:
    """List the recipes: one for every row of the paper's experiments, and a few more."""
    from activebias.lab import RECIPES, get_recipe
    from activebias.lab.tables import Cell, TextTable

    found = [get_recipe(name) for name in RECIPES]
    if as_json:
        print_json(
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
    show(TextTable("Recipes", columns, tuple(rows), titles).to_rich())


@app.command(epilog="Example: activebias compare mnist-fc --methods scan,wpv,wtc --trials 3 --noise 0.1")
@reports_errors
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
    side_by_side: SideBySide = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train methods on a recipe, and test them against their baseline."""
    from activebias.lab import commands as shared
    from activebias.lab.conclusion import conclusion
    from activebias.lab.tables import comparison_table, summary

    recipe = shared.find_recipe(recipe_name, noise=noise, epochs=epochs)
    seeds = range(seed, seed + (trials or recipe.trials))
    place = shared.find_place(out, data, device, side_by_side)
    results = shared.run(recipe, shared.find_methods(methods, recipe), seeds, place, quiet=quiet or as_json)
    if as_json:
        print_json(summary(results))
        return
    show(comparison_table(results).to_rich())
    show("")
    for line in (conclusion(results), *shared.notes(recipe, results)):
        show(line)
    show(f"Results: {place.store.path(recipe.name)}.")


@app.command(epilog="Example: activebias reproduce mnist-fc cifar10-lr --trials 5")
@reports_errors
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
    side_by_side: SideBySide = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train rows of the paper, and show our numbers beside the paper's."""
    from activebias.lab import commands as shared
    from activebias.lab.data import DataError
    from activebias.lab.tables import reproduction_table, summary

    place = shared.find_place(out, data, device, side_by_side)
    summaries = []
    for recipe in shared.find_rows(rows, epochs=epochs):
        names = shared.find_methods(methods, recipe, keep_applicable=not rows)
        try:
            if trials == 0:
                stored = place.store.load(recipe.name, recipe.config())
                results = [each for each in stored if each.method in names and each.rule is None]
            else:
                seeds = range(seed, seed + (trials or recipe.trials))
                results = shared.run(recipe, names, seeds, place, quiet=quiet or as_json)
        except DataError as error:
            if rows:
                raise
            say(f"{recipe.name} is left out: {error}")
            continue
        if not results:
            say(shared.nothing_stored(recipe, names, place))
            continue
        summaries.append(summary(results))
        if not as_json:
            for metric in shared.paper_metrics(recipe):
                show(reproduction_table(results, row=recipe.row, metric=metric).to_rich())
                show("")
            for line in shared.notes(recipe, results):
                show(line)
    if as_json:
        print_json(summaries[0] if rows and len(rows) == len(summaries) == 1 else {"rows": summaries})


@app.command(epilog="Example: activebias figures mnist-fc --out runs")
@reports_errors
def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE]...", help="Recipes (default: all that are stored)."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the toy example.")] = 0,
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
        print_json({"files": [str(file) for file in files]})
    else:
        for file in files:
            show(str(file))


@app.command(epilog="Example: activebias theory --seed 1")
@reports_errors
def theory(
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the made-up data.")] = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the paper's theory (logistic regression) in numbers."""
    from dataclasses import asdict

    from activebias.lab import commands as shared
    from activebias.lab.theory import check_all

    checked = check_all(seed)
    if as_json:
        print_json(asdict(checked))
    else:
        show(shared.theory_table(checked).to_rich())
