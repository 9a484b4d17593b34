"""`activebias compare`: the methods of a recipe, tested against their baselines."""

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
    NumTrials,
    Out,
    Quiet,
    RecipeName,
    Seed,
    SideBySide,
    print_json,
    reports_errors,
    show,
)

app = typer.Typer()

Search = Annotated[
    bool,
    typer.Option("--search", help="First search each method's settings on a part of the training data."),
]


@app.command(epilog="Example: activebias compare mnist-fc --methods scan,wpv,wtc --trials 3 --noise 0.1")
@reports_errors
def compare(
    recipe_name: RecipeName,
    methods: Methods = None,
    trials: NumTrials = None,
    noise: NoiseText = None,
    search: Search = False,
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
    """Train the methods of a recipe, and test them against their baselines.

    Methods may be the paper's (wtc), peers (gce) or both (wtc+gce). With --search every one of them gets the
    same search of its learning rate and its parameter, on a validation part of the training data.
    """
    from activebias.commands.choosing import find_methods, find_place, find_recipe
    from activebias.commands.running import run
    from activebias.lab.conclusion import conclusion
    from activebias.lab.notes import notes
    from activebias.lab.result_tables import comparison_table, summary

    recipe = find_recipe(recipe_name, noise=noise, epochs=epochs)
    seeds = range(seed, seed + (trials or recipe.trials))
    place = find_place(out, data, device, side_by_side)
    names = find_methods(methods, recipe, peers=True)
    if search:
        from activebias.commands.searching import compare_searched

        compare_searched(recipe, names, seeds, place, as_json=as_json, quiet=quiet)
        return
    results = run(recipe, names, seeds, place, quiet=quiet or as_json)
    if as_json:
        print_json(summary(results))
        return
    show(comparison_table(results).to_rich())
    show("")
    for line in (conclusion(results), *notes(recipe, results)):
        show(line)
    show(f"Results: {place.store.path(recipe.name)}.")
