"""The number of models at once: as many as fit into RAM and save time."""

import os
from pathlib import Path

import torch

from activebias.lab.data import Dataset
from activebias.lab.experiment.prepared import Prepared
from activebias.lab.experiment.recipe import Recipe
from activebias.lab.side_by_side.stacking import Stack
from activebias.training.randomness import derived_generator

# The share of the free RAM to plan with: the rest is for evaluation and fragmentation.
_SHARE = 0.6
# Side by side saves the overhead of Python and of launches. On a CPU, large models have so much arithmetic
# that this overhead does not matter (measured: benchmarks/trials.py).
_LARGEST_ON_CPU, _MOST_ON_CPU = 8 << 20, 128 << 20
_MEMINFO = Path("/proc/meminfo")


def most_models(recipe: Recipe, data: Prepared, device: torch.device) -> int:
    """Return the number of models to train at once on the device, at least 1."""
    training = _training_bytes(recipe, data.dataset, data, device)
    if device.type == "cpu":
        if training > _LARGEST_ON_CPU:
            return 1
        return max(1, min(_MOST_ON_CPU // training, _fitting(recipe, data, training, device)))
    return _fitting(recipe, data, training, device)


def _fitting(recipe: Recipe, data: Prepared, training: int, device: torch.device) -> int:
    needed = training + _history_bytes(recipe, data.num_instances)
    return max(1, int(_SHARE * free_bytes(device)) // needed)


def free_bytes(device: torch.device) -> int:
    """Return the free RAM of the device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        # MemAvailable includes the file cache, which the system frees on demand.
        fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):  # not Linux: half of the installed RAM
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _training_bytes(recipe: Recipe, dataset: Dataset, data: Prepared, device: torch.device) -> int:
    """Return the bytes of one model in an iteration: tensors saved by autograd, and all forms of weights."""
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
    # Weights, gradient, two moments, a half-precision copy. Saved tensors twice, for temporary tensors.
    return 2 * sum(kept.values()) + 5 * weights


def _history_bytes(recipe: Recipe, num_instances: int) -> int:
    """Return the bytes of one model's history at the end of training; a growing history is copied once."""
    if recipe.window is not None:
        return 4 * num_instances * (recipe.window + 2)
    # A visit per instance and epoch on average, whether a method scans or draws. The copy has half as much
    # room again. The rest is for tables of rows.
    return 2 * num_instances * (5 * (recipe.epochs + 1) + 16)
