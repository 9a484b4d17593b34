"""Training one model: on a recipe of the paper, or on data of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from activebias.commands.shared import (
    Data,
    Debug,
    Device,
    Epochs,
    Json,
    NoiseText,
    Out,
    Quiet,
    RecipeName,
    Seed,
    print_json,
    reports_errors,
    show,
)

app = typer.Typer()


@app.command(epilog="Example: activebias train mnist-fc --method wpv --seed 1")
@reports_errors
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
        print_json({"recipe": recipe.name, "method": name, "seed": seed, **errors, "model": str(path)})
        return
    best, last, training = errors.values()
    show(
        f"{recipe.name}, {name}, seed {seed}: best test error {best:.2f} %, last 10 epochs {last:.2f} %, "
        f"best training error {training:.2f} %."
    )
    for line in shared.notes(recipe, [result]):
        show(line)
    show(f"Model and history: {path}.")
