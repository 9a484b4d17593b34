"""`activebias figures`: the toy example and the convergence curves of stored results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from activebias.commands.shared import Debug, Json, Out, print_json, reports_errors, show

app = typer.Typer()


@app.command(epilog="Example: activebias figures mnist-fc --out runs")
@reports_errors
def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECIPE", help="Recipes (default: all with stored results)."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the toy example.")] = 0,
    out: Out = Path("runs"),
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw the toy example and the convergence curves of stored results, as PNG and SVG."""
    from activebias.lab.figures import save_figure
    from activebias.lab.toy_figure import run_toy, toy_figure

    files = draw_curves(names, out)
    files += save_figure(toy_figure(*run_toy(seed=seed)), out / "figures" / "toy")
    if as_json:
        print_json({"files": [str(file) for file in files]})
    else:
        for file in files:
            show(str(file))


def draw_curves(names: Sequence[str] | None, out: Path) -> list[Path]:
    """Draw the convergence curves of stored results, one figure per recipe and configuration."""
    from activebias.commands.choosing import find_folder
    from activebias.lab.cookbook import RECIPES, get_recipe
    from activebias.lab.experiment.results import TrialResult, config_hash, of_latest_rules
    from activebias.lab.experiment.store import ResultStore
    from activebias.lab.figures import convergence_figure, save_figure
    from activebias.training.reading import DataError

    store = ResultStore(out)
    files = []
    in_store = sorted(path.stem for path in find_folder(out).glob("*.jsonl"))
    for name in names or in_store:
        if name not in in_store and name not in RECIPES:
            raise typer.BadParameter(_unknown_results(name, [*in_store, *RECIPES], out))
        groups: dict[str, list[TrialResult]] = {}
        for result in store.load(name):
            groups.setdefault(result.key.config_hash, []).append(result)
        if not groups:
            raise DataError(
                f"There are no results of {name} in {out}: run `activebias compare {name}` first."
            )
        known = get_recipe(name) if name in RECIPES else None
        for group, results in groups.items():
            usual = (known is not None and group == config_hash(known.config())) or len(groups) == 1
            file_name = name if usual else f"{name}-{group}"
            files += save_figure(convergence_figure(of_latest_rules(results)), out / "figures" / file_name)
    return files


def _unknown_results(name: str, known: Sequence[str], out: Path) -> str:
    from activebias.internal import did_you_mean

    return f"There are no results of {name!r} in {out}, and no such recipe.{did_you_mean(name, known)}"
