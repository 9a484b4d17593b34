"""Divides missing trials × methods into groups that fit into RAM, and trains one group after the other."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from activebias.lab.data import Dataset
from activebias.lab.experiment.place import Listener, Place
from activebias.lab.experiment.prepared import check_peer, prepare
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.experiment.sides import Missing, Side
from activebias.lab.experiment.splitting import split_rows
from activebias.lab.models import LabModel
from activebias.lab.side_by_side.group import Group
from activebias.lab.side_by_side.lanes import Lane, epochs_of, in_groups, lanes_of
from activebias.lab.side_by_side.plan import most_models
from activebias.lab.side_by_side.stacking import stacks_equally
from activebias.lab.side_by_side.stopped import GroupCheckpoint, stopped_groups
from activebias.training.fingerprint import first_few
from activebias.training.randomness import derived_generator

_CPU = torch.device("cpu")


def can_stack(recipe: Recipe, dataset: Dataset, device: torch.device) -> bool:
    """Return whether the recipe's models can be trained side by side.

    The lab's models can. Other models are tried. On a GPU a user's model is trained one by one, because a
    CUDA graph cannot record every model.
    """
    num_examples = len(dataset.train)
    if recipe.split is not None:
        num_examples = len(split_rows(dataset.train, recipe.split, 0).train)
    if recipe.batch_size >= num_examples:
        return False
    models = [recipe.model(dataset, derived_generator(seed, "can stack")) for seed in (0, 1)]
    of = type(models[0]).__module__
    if isinstance(models[0], LabModel) and of.startswith("activebias.lab.models"):
        return True
    if device.type != "cpu" and not of.startswith("activebias."):
        return False
    return stacks_equally(models, first_few(dataset.train).inputs)


def run_side_by_side(
    recipe: Recipe,
    dataset: Dataset,
    missing: Missing,
    place: Place,
    listener: Listener,
    teacher: Tensor | None,
) -> dict[int, list[Side]]:
    """Train missing trials side by side where that saves time; return the trials that are still missing.

    A GPU must be the current device: kernels, graphs and the learning rate use the current device.
    """
    device = torch.device(place.device)
    first = prepare(recipe, dataset, seed=min(missing), device=_CPU, root=place.data, teacher=teacher)
    sides = list(chain(*missing.values()))
    for peer in {side.setting.peer for side in sides}:
        check_peer(peer, first)
    drawing = [side.name for side in sides if side.method.order != "scan"]
    if first.tokens is not None and drawing:
        raise ValueError(
            f"Method {drawing[0]!r} draws single instances, but the words of a sentence train together: use "
            "scan, wd, we, wpv, wtc or auto."
        )
    left: dict[int, list[Side]] = {}
    fitted: list[int] = []  # group sizes that fitted after running out of RAM
    make = partial(Group, recipe, dataset, place=place, listener=listener, teacher=teacher)
    for scans in (True, False):
        lanes = lanes_of(missing, scans=scans)
        if not lanes:
            continue
        # Stopped groups resume unchanged, even if the free RAM now suggests other groups.
        stopped, waiting = _take_up(recipe, lanes, place)
        groups = [make(each) for each in stopped]
        listener.on_recount(_epochs(groups) + epochs_of(recipe, waiting) - epochs_of(recipe, lanes))
        fitted += _train_each(groups)
        if not waiting:
            continue
        most = place.side_by_side or most_models(recipe, first, device)
        most = min([most, *fitted])
        if recipe.split is not None and not _equally_large(recipe, dataset, missing):
            # Trials side by side have histories of one size: now one trial at a time, all methods at once.
            most = min(most, max(map(len, missing.values())))
        if min(most, len(waiting)) == 1 and device.type == "cpu":
            for lane in waiting:
                left.setdefault(lane.seed, []).append(lane.side)
            continue
        grouped = in_groups(waiting, most)
        listener.on_message(_plan_text(recipe, grouped, most, place))
        groups = [make(each) for each in grouped]
        listener.on_recount(_epochs(groups) - epochs_of(recipe, waiting))
        fitted += _train(groups, make, listener)
    return left


def _equally_large(recipe: Recipe, dataset: Dataset, seeds: Iterable[int]) -> bool:
    """Return whether all splits have parts of the same sizes, as they have in most data sets."""
    assert recipe.split is not None
    splits = (split_rows(dataset.train, recipe.split, seed) for seed in seeds)
    return not dataset.train.is_tagging and len({tuple(map(len, parts)) for parts in splits}) == 1


def _epochs(groups: Iterable[Group]) -> int:
    return sum(group.epochs_left for group in groups)


def _train_each(groups: Iterable[Group]) -> list[int]:
    """Train the groups in order; for groups that ran out of RAM, return the sizes that fitted."""
    return [fitted for group in groups if (fitted := group.train()) < len(group.lanes)]


def _train(groups: Sequence[Group], make: Callable[[Sequence[Lane]], Group], listener: Listener) -> list[int]:
    """Like `_train_each`, but after a group ran out of RAM, later groups have at most the fitting size."""
    waiting, fitted = deque(groups), []
    while waiting:
        fitted += _train_each([waiting.popleft()])
        if fitted and any(len(each.lanes) > min(fitted) for each in waiting):
            lanes = list(chain(*(each.lanes for each in waiting)))
            smaller = deque(make(each) for each in in_groups(lanes, min(fitted)))
            listener.on_recount(_epochs(smaller) - _epochs(waiting))
            waiting = smaller
    return fitted


def _take_up(recipe: Recipe, lanes: Sequence[Lane], place: Place) -> tuple[list[list[Lane]], list[Lane]]:
    """Return the groups of lanes that can resume from a checkpoint, and the other lanes.

    If only some lanes of a stopped group are wanted, or the group is too large, the wanted lanes form new
    groups.
    """
    waiting = {lane.key: lane for lane in lanes}
    taken = []
    for group in stopped_groups(recipe, place):
        wanted = [waiting.pop(run) for run in group.runs if run in waiting]
        if not wanted:
            continue
        parts = [wanted]
        if len(wanted) < len(group.runs) or len(wanted) > (place.side_by_side or len(wanted)):
            parts = in_groups(wanted, place.side_by_side or len(wanted))
            group.hand_on([GroupCheckpoint(recipe, place, [lane.key for lane in part]) for part in parts])
            if len(wanted) == len(group.runs):
                group.remove()  # the parts hold its whole state, which may be gigabytes
        taken += parts
    return taken, list(waiting.values())


def _plan_text(recipe: Recipe, groups: Sequence[Sequence[Lane]], most: int, place: Place) -> str:
    sizes = " + ".join(str(len(group)) for group in groups)
    limit = f"--side-by-side {most}" if place.side_by_side else f"at most {most} at once on {place.device}"
    models = "model" if sizes == "1" else "models"
    return f"{recipe.name}: {sizes} {models} side by side{f' ({limit})' if len(groups) > 1 else ''}."
