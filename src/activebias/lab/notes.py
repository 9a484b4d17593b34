"""Sentences beside the numbers: differences from the recipe, and why a store has no results."""

from collections.abc import Sequence

from activebias.lab.cookbook import get_recipe
from activebias.lab.experiment.place import Place
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.results import TrialResult, config_hash
from activebias.lab.significance import in_order


def notes(recipe: Recipe, results: Sequence[TrialResult]) -> list[str]:
    """Return the sentences beside the numbers: epochs, noise, notes of recipe and data."""
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
    """Return how training and burn-in differ from the recipe; `--epochs` changes both."""
    usual = get_recipe(recipe.name)
    if recipe.epochs == usual.epochs:
        return []
    text = f"Epochs: {recipe.epochs} instead of {usual.epochs}; "
    text += f"burn-in, in proportion: {recipe.burn_in} instead of {usual.burn_in}."
    if recipe.epochs == 1:
        text += " In a single epoch no instance has a history yet: all weights are equal."
    return [text]


def nothing_stored(recipe: Recipe, methods: Sequence[str], place: Place) -> str:
    """Return why the store has no results: none at all, or only of other settings or methods."""
    path = place.store.path(recipe.name)
    stored = place.store.load(recipe.name)
    if not stored:
        return f"{recipe.name}: no results in {path}."
    same = [result for result in stored if result.key.config_hash == config_hash(recipe.config())]
    if same:
        names = ", ".join(in_order(result.method for result in same))
        return f"{recipe.name}: {path} has results of {names}, but not of {', '.join(methods)}."
    wanted, latest = recipe.config(), stored[-1].config
    other = [
        f"{name} {latest.get(name)} instead of {value}"
        for name, value in wanted.items()
        if config_hash({name: latest.get(name)}) != config_hash({name: value})
    ]
    return (
        f"{recipe.name}: {path} has only results of other settings ({len(stored)}); "
        f"the latest has {', '.join(other)}."
    )
