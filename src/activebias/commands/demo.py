"""`activebias demo`: noisy digits, in less than a minute."""

from pathlib import Path

import typer

from activebias.commands.shared import (
    Debug,
    Json,
    NumTrials,
    Out,
    Quiet,
    Seed,
    print_json,
    reports_errors,
    show,
)

app = typer.Typer()


@app.command(epilog="Example: activebias demo --out runs")
@reports_errors
def demo(
    out: Out = Path("runs"),
    trials: NumTrials = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train on digits with 20 % wrong labels, with Scan and the four weighting methods: table and figure."""
    import torch

    from activebias.commands.choosing import find_place, find_recipe
    from activebias.commands.running import run
    from activebias.lab.conclusion import conclusion
    from activebias.lab.figures import convergence_figure, save_figure
    from activebias.lab.result_tables import comparison_table, summary

    torch.set_num_threads(1)  # the net is so small that a second thread makes it slower
    recipe = find_recipe("digits")
    place = find_place(out, None, "cpu")
    seeds = range(seed, seed + (trials or recipe.trials))
    results = run(recipe, recipe.methods, seeds, place, quiet=quiet or as_json)
    files = save_figure(convergence_figure(results), out / "figures" / recipe.name)
    if as_json:
        print_json(summary(results) | {"conclusion": conclusion(results), "files": [str(f) for f in files]})
        return
    show(comparison_table(results).to_rich())
    show("")
    show(conclusion(results))
    show(f"Results: {place.store.path(recipe.name)}; figure: {' and '.join(str(file) for file in files)}.")
