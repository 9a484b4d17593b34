"""How many models at once: as many as fit into RAM, or as are of use."""

import os
from pathlib import Path

import torch

from activebias.lab.data import Dataset
from activebias.lab.experiment.prepared import Prepared
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.side_by_side.stacking import Stack
from activebias.training.randomness import derived_generator

# The share of the free RAM that may be planned for: the rest is for evaluation and fragments.
_SHARE = 0.6
# Side by side saves the overhead of Python and of launches. Where a model's arithmetic takes much longer
# than those, on a CPU, there is nothing to save (measured: benchmarks/trials.py).
_LARGEST_ON_CPU, _MOST_ON_CPU = 8 << 20, 128 << 20
_MEMINFO = Path("/proc/meminfo")


def most_models(recipe: Recipe, data: Prepared, device: torch.device, *, draws: bool) -> int:
    """Return how many models to train at once on the device, at least 1."""
    training = _training_bytes(recipe, data.dataset, data, device)
    if device.type == "cpu":
        if training > _LARGEST_ON_CPU:
            return 1
        return max(1, min(_MOST_ON_CPU // training, _fitting(recipe, data, training, device, draws)))
    return _fitting(recipe, data, training, device, draws)


def _fitting(recipe: Recipe, data: Prepared, training: int, device: torch.device, draws: bool) -> int:
    needed = training + _history_bytes(recipe, data.num_instances, draws=draws)
    return max(1, int(_SHARE * free_bytes(device)) // needed)


def free_bytes(device: torch.device) -> int:
    """Return how much RAM is free on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        # What the cache of files takes is free for whoever needs it.
        fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):  # not Linux: half of what is built in
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _training_bytes(recipe: Recipe, dataset: Dataset, data: Prepared, device: torch.device) -> int:
    """Return what one model takes in an iteration: what autograd keeps, and weights in all their forms."""
    model = recipe.model(dataset, derived_generator(0, "plan"))
    stack = Stack.of([model], device, half_precision=recipe.in_half_precision(device))
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    index = torch.arange(min(recipe.batch_size, len(data.train)))
    inputs, _ = data.train.batch(index)
    inputs = tuple(tensor.unsqueeze(0).to(device) for tensor in inputs)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        stack.logits(inputs)
    weights = sum(value.nbytes for value in stack.parameters.values())
    # Weights, gradient, two moments, a half-precision copy; twice what is kept, for what comes and goes.
    return 2 * sum(kept.values()) + 5 * weights


def _history_bytes(recipe: Recipe, num_instances: int, *, draws: bool) -> int:
    """Return what one model's history takes at the end of training; a growing one is copied once."""
    if recipe.window is not None:
        return 4 * num_instances * (recipe.window + 2)
    # A method that draws may come back to an instance several times an epoch.
    entries = (recipe.epochs + 1) * (8 if draws else 1)
    return 4 * num_instances * (2 * entries + 2)
