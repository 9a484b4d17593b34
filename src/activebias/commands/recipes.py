"""`activebias recipes`: the recipes to compare and to train."""

import typer

from activebias.commands.shared import Debug, Json, print_json, reports_errors, show

app = typer.Typer()


@app.command(epilog="Example: activebias recipes --json")
@reports_errors
def recipes(as_json: Json = False, debug: Debug = False) -> None:
    """List the recipes: one for every row of the paper's experiments, and additional recipes."""
    from activebias.lab import RECIPES, get_recipe
    from activebias.lab.result_tables import Cell, TextTable

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
