"""Reads recipes, methods and places from the command line; a wrong word is a usage error."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from activebias import get_method
from activebias.commands.devices import find_device, find_devices
from activebias.lab.cookbook import RECIPES, get_recipe
from activebias.lab.data.human_labels import annotation_key
from activebias.lab.experiment.place import Place, check_folder
from activebias.lab.experiment.recipe import Noise, Recipe
from activebias.lab.experiment.sides import Side, find_side
from activebias.lab.on_devices import OnDevices
from activebias.lab.on_ray import OnRay
from activebias.lab.trials import Spread
from activebias.training.reading import DataError


def find_recipe(name: str, *, noise: str | None = None, epochs: int | None = None) -> Recipe:
    """Return the named recipe, with other noise or epochs; a wrong name or noise is a usage error."""
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
    """Return the recipes of the given rows of the paper, or of all rows."""
    recipes = [find_recipe(name, epochs=epochs) for name in names or RECIPES]
    if names and (other := [recipe.name for recipe in recipes if recipe.row is None]):
        raise typer.BadParameter(
            f"The paper has no row {other[0]!r} to compare with: use `activebias compare {other[0]}`."
        )
    return [recipe for recipe in recipes if recipe.row is not None]


def find_methods(
    text: str | None, recipe: Recipe, *, keep_applicable: bool = False, peers: bool = False
) -> list[str]:
    """Return the names of the methods in a text such as "scan,wpv"; a wrong name is a usage error.

    With `keep_applicable`, methods that the recipe cannot use are ignored instead of refused. With `peers`,
    the text may also name peers ("gce", "wtc+gce").
    """
    words = list(recipe.methods) if text is None else text.split(",")
    find = find_side if peers else lambda word: Side(get_method(word))
    try:
        methods = [find(word.strip()) for word in words if word.strip()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    drawing = [side.name for side in methods if side.method.order != "scan"]
    if recipe.metric == "entity F1" and drawing:
        if not keep_applicable:
            raise typer.BadParameter(
                f"{recipe.name} tags sentences, whose words train together: use scan, wd, we, wpv, wtc or "
                f"auto, not {', '.join(drawing)}."
            )
        methods = [side for side in methods if side.method.order == "scan"]
    if not methods:
        raise typer.BadParameter(
            "Expected `--methods` to name at least one method that applies, such as scan,wpv."
        )
    return list(dict.fromkeys(side.name for side in methods))


def find_folder(out: Path) -> Path:
    """Return the folder of results; it is a usage error if a file has its name."""
    try:
        check_folder(out, "--out")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return out


def find_place(out: Path, data: Path | None, device: str, side_by_side: int | None = None) -> Place:
    """Return the folder of results, the data folder and the device."""
    find_folder(out)
    return Place(out, data=data, device=find_device(device), side_by_side=side_by_side)


def find_spread(devices: str | None, ray: str | None, device: str) -> Spread | None:
    """Return who trains the trials: several devices, a Ray cluster, or (None) this process."""
    if devices is not None and ray is not None:
        raise typer.BadParameter("Give `--devices` or `--ray`, not both.")
    if devices is not None:
        if device != "auto":
            raise typer.BadParameter("Give `--device` or `--devices`, not both.")
        return OnDevices(find_devices(devices))
    if ray is None:
        return None
    if device not in ("auto", "cpu", "cuda"):
        raise typer.BadParameter(
            f"Expected `--device` to be auto, cpu or cuda with `--ray`, but got {device!r}: Ray chooses the "
            "GPU."
        )
    return OnRay(ray, None if device == "auto" else device)
