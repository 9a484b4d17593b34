"""`activebias compare`: the methods of a recipe, or on the user's data, tested against their baselines."""

from pathlib import Path
from typing import Annotated

import typer

from activebias.commands.shared import (
    Conll,
    Csv,
    Data,
    Debug,
    Device,
    Devices,
    Images,
    Json,
    NoiseText,
    NumTrials,
    OnceCommand,
    Out,
    Quiet,
    Ray,
    RecipeOrData,
    Seed,
    SideBySide,
    Target,
    print_json,
    refuse_given,
    refuse_path,
    refuse_without_target,
    reports_errors,
    require_one_source,
    say,
    show,
)

app = typer.Typer()

Search = Annotated[
    bool,
    typer.Option("--search", help="Search each method's learning rate and parameter on validation data."),
]


@app.command(
    cls=OnceCommand,
    epilog="Example: activebias compare mnist-fc --methods scan,wpv,wtc --trials 3 --noise 0.1; on own data: "
    "activebias compare --csv wine.csv --target quality --minutes 5",
)
@reports_errors
def compare(
    recipe_name: RecipeOrData = None,
    images: Images = None,
    csv: Csv = None,
    target: Target = None,
    conll: Conll = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Methods, separated by commas (default: the recipe's; for own data "
            "scan,wtc,label-smoothing,wtc+label-smoothing,we).",
        ),
    ] = None,
    trials: NumTrials = None,
    splits: Annotated[
        int | None, typer.Option("--splits", min=1, help="Own data: number of splits (default: 10).")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Own data: a budget; fewer splits may be finished.")
    ] = None,
    burn_in: Annotated[
        int | None,
        typer.Option("--burn-in", min=0, help="Own data: epochs without emphasis (default: a fifth)."),
    ] = None,
    noise: NoiseText = None,
    search: Search = False,
    seed: Seed = 0,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=1, help="Epochs (default: the recipe's; 30 for own data)."),
    ] = None,
    out: Out = Path("runs"),
    data: Data = None,
    device: Device = "auto",
    devices: Devices = None,
    ray: Ray = None,
    side_by_side: SideBySide = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare methods with their baselines: on a recipe of the paper, or on your own data.

    Methods may be the paper's (wtc), auto, peers (gce) or both (wtc+gce). With --search every one of them
    gets the same search of its learning rate and its parameter, decided on validation data: of a recipe once
    and in short runs, of own data in every split.
    """
    require_one_source(recipe_name, images, csv, conll)
    if recipe_name is None:
        of_recipes = {"--trials": trials, "--noise": noise, "--data": data, "--seed": seed or None}
        of_recipes |= {"--devices": devices, "--ray": ray}
        refuse_given(of_recipes, "recipes", {"--trials": "use `--splits`"})
        if (csv is None) != (target is None):
            refuse_without_target(csv)
        from activebias.commands.compare_own import Source, compare_own

        compare_own(
            Source(images, csv, target, conll),
            methods=methods,
            splits=splits,
            minutes=minutes,
            epochs=epochs,
            burn_in=burn_in,
            search=search,
            out=out,
            device=device,
            side_by_side=side_by_side,
            as_json=as_json,
            quiet=quiet,
        )
        return
    refuse_path(recipe_name)
    of_own_data = {"--target": target, "--splits": splits, "--minutes": minutes, "--burn-in": burn_in}
    refuse_given(of_own_data, "own data")
    from activebias.commands.choosing import find_methods, find_place, find_recipe, find_spread
    from activebias.commands.running import run
    from activebias.lab.baselines import without_baseline
    from activebias.lab.conclusion import conclusion
    from activebias.lab.notes import notes
    from activebias.lab.result_tables import comparison_table, summary
    from activebias.lab.trials import nothing_to_learn_from

    recipe = find_recipe(recipe_name, noise=noise, epochs=epochs)
    seeds = range(seed, seed + (trials or recipe.trials))
    spread = find_spread(devices, ray, device)
    place = find_place(out, data, device if spread is None else "cpu", side_by_side)
    names = find_methods(methods, recipe, peers=True)
    if alone := without_baseline(names):
        say(f"Warning: {alone}")
    if search:
        from activebias.commands.searching import compare_searched

        compare_searched(recipe, names, seeds, place, as_json=as_json, quiet=quiet, spread=spread)
        return
    results = run(recipe, names, seeds, place, quiet=quiet or as_json, spread=spread)
    if as_json:
        print_json(summary(results) | {"conclusion": conclusion(results, str)})
        return
    show(comparison_table(results, str).to_rich())
    show("")
    unlearnt = nothing_to_learn_from(recipe, names)  # beside the numbers too: a log may hold these alone
    for line in (conclusion(results, str), *notes(recipe, results), *([unlearnt] if unlearnt else [])):
        show(line)
    show(f"Results: {place.store.path(recipe.name)}.")
