"""What the commands of `activebias` share: from words on the command line to recipes, runs and tables."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import typer
from rich.console import Console

from activebias import get_method
from activebias.lab.data import DataError
from activebias.lab.data.human_labels import annotation_key
from activebias.lab.figures import convergence_figure, save_figure
from activebias.lab.paper import paper_value
from activebias.lab.place import check_folder
from activebias.lab.progress import show_progress
from activebias.lab.recipe import Noise, Recipe
from activebias.lab.recipes import RECIPES, get_recipe
from activebias.lab.rules import of_latest_rules
from activebias.lab.significance import in_order
from activebias.lab.store import METRICS, ResultStore, TrialResult, config_hash
from activebias.lab.tables import Cell, TextTable
from activebias.lab.theory import TheoryFigures
from activebias.lab.trials import Place, count_epochs, missing_runs, run_trials


def find_recipe(name: str, *, noise: str | None = None, epochs: int | None = None) -> Recipe:
    """Return the recipe of that name, with other noise or epochs; a wrong name or noise is a usage error."""
    try:
        recipe = get_recipe(name)
        if noise is not None:
            recipe = replace(recipe, noise=Noise.parse(noise))
            if recipe.noise is not None and recipe.noise.kind == "human":
                annotation_key(recipe.data, recipe.noise.annotation)
    except (ValueError, DataError) as error:
        raise typer.BadParameter(str(error)) from None
    return recipe if epochs is None else recipe.shortened(epochs)


def find_rows(names: Sequence[str] | None, *, epochs: int | None = None) -> list[Recipe]:
    """Return the recipes of the given rows of the paper, or of all."""
    recipes = [find_recipe(name, epochs=epochs) for name in names or RECIPES]
    if names and (other := [recipe.name for recipe in recipes if recipe.row is None]):
        raise typer.BadParameter(
            f"The paper has no row {other[0]!r} to compare with: use `activebias compare {other[0]}`."
        )
    return [recipe for recipe in recipes if recipe.row is not None]


def find_methods(text: str | None, recipe: Recipe, *, keep_applicable: bool = False) -> list[str]:
    """Return the names of the methods in a text such as "scan,wpv"; a wrong one is a usage error.

    With `keep_applicable`, methods that the recipe cannot use are left out instead of refused.
    """
    words = list(recipe.methods) if text is None else text.split(",")
    try:
        methods = [get_method(word.strip()) for word in words if word.strip()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    drawing = [method.name for method in methods if method.order != "scan"]
    if recipe.metric == "entity F1" and drawing:
        if not keep_applicable:
            raise typer.BadParameter(
                f"{recipe.name} tags sentences, whose words train together: use scan, wd, we, wpv or wtc, "
                f"not {', '.join(drawing)}."
            )
        methods = [method for method in methods if method.order == "scan"]
    if not methods:
        raise typer.BadParameter("`--methods` must name at least one method that applies, such as scan,wpv.")
    return list(dict.fromkeys(method.name for method in methods))


def find_folder(out: Path) -> Path:
    """Return the folder of results; a file in its place is a usage error."""
    try:
        check_folder(out, "--out")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return out


def find_place(out: Path, data: Path | None, device: str, side_by_side: int | None = None) -> Place:
    """Return where results go, where data lies and what to train on."""
    find_folder(out)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise typer.BadParameter(f"`--device` must be auto, cpu, cuda or cuda:N, but got {device!r}.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("`--device` is cuda, but torch sees no CUDA device here: use --device cpu.")
    return Place(out, data=data, device=device, side_by_side=side_by_side)


def run(
    recipe: Recipe,
    methods: Sequence[str],
    seeds: Sequence[int],
    place: Place,
    *,
    quiet: bool,
    keep_models: bool = False,
) -> list[TrialResult]:
    """Train what is missing, with progress on the error stream, and return the results."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    missing = missing_runs(recipe, methods, seeds, place, keep_models=keep_models)
    number = sum(len(group) for group in missing.values())
    total = count_epochs(recipe, missing)
    with show_progress(recipe.name, total, number, console=console, quiet=quiet) as listener:
        return run_trials(
            recipe, methods=methods, seeds=seeds, place=place, listener=listener, keep_models=keep_models
        )


def notes(recipe: Recipe, results: Sequence[TrialResult]) -> list[str]:
    """Return the sentences that belong beside the numbers: epochs, noise, what recipe and data note."""
    lines = _epochs_notes(recipe)
    if recipe.noise is not None:
        fraction = recipe.noise.fraction
        share = (
            recipe.noise.annotation if fraction is None else f"{100 * fraction:g} % of the training labels"
        )
        lines.append(f"Label noise: {recipe.noise.kind}, {share}.")
    lines += recipe.notes
    lines += [note for result in results for note in result.details.get("notes", [])]
    return list(dict.fromkeys(lines))


def _epochs_notes(recipe: Recipe) -> list[str]:
    """Say how training and burn-in differ from the recipe's own; `--epochs` changes both."""
    usual = get_recipe(recipe.name)
    if recipe.epochs == usual.epochs:
        return []
    text = f"Epochs: {recipe.epochs} instead of {usual.epochs}; "
    text += f"burn-in, in proportion: {recipe.burn_in} instead of {usual.burn_in}."
    if recipe.epochs == 1:
        text += " In one epoch an instance has no history before it is scanned: no weight differs."
    return [text]


def nothing_stored(recipe: Recipe, methods: Sequence[str], place: Place) -> str:
    """Say why the store has nothing to show: no results at all, or only of other settings or methods."""
    path = place.store.path(recipe.name)
    stored = place.store.load(recipe.name)
    if not stored:
        return f"{recipe.name}: no results in {path}."
    same = [result for result in stored if result.key.config_hash == config_hash(recipe.config())]
    if same:
        names = ", ".join(in_order(result.method for result in same))
        return f"{recipe.name}: {path} has results of {names}, but none of {', '.join(methods)}."
    wanted, latest = recipe.config(), stored[-1].config
    other = [
        f"{name} {latest.get(name)} instead of {value}"
        for name, value in wanted.items()
        if config_hash({name: latest.get(name)}) != config_hash({name: value})
    ]
    return (
        f"{recipe.name}: the {len(stored)} results in {path} are of other settings; "
        f"the latest has {', '.join(other)}."
    )


def paper_metrics(recipe: Recipe) -> list[str]:
    """Return the metrics that the paper prints for the recipe's row."""
    row = recipe.row or recipe.name
    return [
        metric
        for metric in METRICS
        if any(paper_value(row, method, metric) is not None for method in recipe.methods)
    ]


def draw_curves(names: Sequence[str] | None, out: Path) -> list[Path]:
    """Draw the convergence curves of what is stored, one figure a recipe and configuration."""
    store = ResultStore(out)
    files = []
    in_store = sorted(path.stem for path in find_folder(out).glob("*.jsonl"))
    for name in names or in_store:
        if name not in in_store and name not in RECIPES:
            raise typer.BadParameter(_unknown_results(name, in_store, out))
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


def _unknown_results(name: str, in_store: Sequence[str], out: Path) -> str:
    known = list(dict.fromkeys([*in_store, *RECIPES]))
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return f"There are no results of {name!r} in {out}, and no such recipe. Did you mean {nearest!r}?"


def theory_table(checked: TheoryFigures) -> TextTable:
    """Return the figures of the theory's checks as a table."""
    total = checked.total_variance
    rows = [
        ("Equation 3, Hessian against autograd", "relative error", checked.hessian.relative_error),
        ("Equation 3 with weights v", "relative error", checked.hessian.weighted_relative_error),
    ]
    for item in checked.variance:
        what = f"Equation 4, variance of p, {item.num_instances} instances"
        rows += [
            (what, "median relative error", item.median_relative_error),
            (what, "rank correlation", item.rank_correlation),
        ]
    rows += [
        ("Equation 5, total variance = N_T · dim(w)", "relative error", total.exact_relative_error),
        ("  without the weights", "relative error", total.unweighted_relative_error),
        ("  with the weights really used (ε = mean)", "relative error", total.smoothed_relative_error),
        ("  with a p that is not quite the model's", "relative error", total.stale_relative_error),
        (
            f"History of {checked.history.num_epochs} epochs of SGD",
            "rank correlation",
            checked.history.rank_correlation,
        ),
    ]
    cells = tuple((Cell(what), Cell(kind), Cell(f"{value:.2g}")) for what, kind, value in rows)
    explained = (
        "Equation 5 is exact for its own weights; the indented lines show what is left without a condition.",
    )
    return TextTable("Theory, logistic regression", ("check", "figure", "value"), cells, explained)
