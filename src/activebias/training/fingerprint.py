"""Fingerprints of models, data and settings: they keep results and checkpoints of different runs apart."""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from activebias.training.examples import Examples
from activebias.training.randomness import derived_seed

# Enough examples to detect a changed activation function, few enough for a fast probe.
_NUM_EXAMPLES: Final = 8
# Machines differ by about 1e-6. A changed activation function changes much more than this.
_DECIMALS: Final = 3
_WAVES: Final = (0.0, 1.0, 2.0)
_INFINITE, _NOT_A_NUMBER = 1000.0, 2000.0  # above any logarithm
_NUDGE: Final = 0.1


def build_seeded(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a user's model with a seeded global random state, then restore the caller's state."""
    if isinstance(model, nn.Module):
        raise TypeError(
            "Expected `model` to be a function that builds a new model for every trial, such as `lambda: "
            f"Net()`, but got a {type(model).__name__} itself."
        )
    # A user's model draws from the global generators: seed them, and restore their states afterwards.
    of_numpy, of_python = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            built = model()
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)
    if not isinstance(built, nn.Module):
        raise TypeError(
            f"Expected `model` to build a torch.nn.Module when called, but got {type(built).__name__}."
        )
    return built


def first_few(examples: Examples) -> Examples:
    """Return the first examples, which models are probed with."""
    return examples.select(torch.arange(min(_NUM_EXAMPLES, len(examples))))


def probe(model: Callable[[], nn.Module], inputs: Sequence[Tensor], device: str) -> list[Tensor]:
    """Return a seeded model's outputs for a few inputs: as built, perturbed, and perturbed in training mode.

    The perturbation is needed because a layer that begins at zero hides all layers before it. Training mode
    is needed because a function such as `F.dropout` does nothing in evaluation mode. The regulariser, if the
    model has one, comes last.
    """
    try:
        return _probe(model, inputs, "cpu")
    except Exception:
        # Some models run on a GPU only. An error on both devices is the user's, and is raised.
        if torch.device(device).type == "cpu":
            raise
        return _probe(model, inputs, device)


def _probe(model: Callable[[], nn.Module], inputs: Sequence[Tensor], device: str) -> list[Tensor]:
    seed = derived_seed(0, "description")
    built = build_seeded(model, seed).to(device)
    inputs = [tensor.to(device) for tensor in inputs]
    used = [device] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=used), torch.no_grad():
        torch.manual_seed(seed)
        outputs = [built.eval()(*inputs)]
        for parameter in built.parameters():
            # Drawn on the CPU, because every device has other random numbers.
            parameter.add_((_NUDGE * torch.randn(parameter.shape)).to(parameter))
        with suppress(Exception):  # a perturbed model may fail, for example if a scale becomes negative
            outputs += [built(*inputs), built.train()(*inputs)]
        regulariser = getattr(built, "regulariser", None)
        if regulariser is not None:
            outputs.append(torch.as_tensor(regulariser()))
    return outputs


def digest_of_outputs(outputs: Sequence[Tensor]) -> str:
    """Return a short digest of outputs: a few weighted means of each, rounded to be equal on all machines.

    The means are few and coarse, because each may be close to a rounding boundary. If machines disagree
    nevertheless, the model is trained again. Logarithms keep a masked class from hiding the other classes.

    >>> values = torch.tensor([[1.0, -2.0]])
    >>> digest_of_outputs([values]) == digest_of_outputs([values * (1 + 1e-7)])
    True
    >>> digest_of_outputs([values]) == digest_of_outputs([values + 0.1])
    False
    """
    digest = hashlib.sha256()
    for tensor in outputs:
        values = tensor.detach().cpu().double().flatten()
        tamed = torch.nan_to_num(
            values.sign() * values.abs().log1p(), nan=_NOT_A_NUMBER, posinf=_INFINITE, neginf=-_INFINITE
        )
        places = torch.arange(1, 1 + len(tamed), dtype=torch.float64)
        means = [(torch.cos(wave * places) * tamed).sum() / len(tamed) ** 0.5 for wave in _WAVES]
        # Adding 0 turns -0.0 into 0.0.
        rounded = " ".join(f"{round(float(mean), _DECIMALS) + 0.0:.{_DECIMALS}f}" for mean in means)
        digest.update(f"{tuple(tensor.shape)} {rounded};".encode())
    return digest.hexdigest()[:16]


def digest_of(parts: Sequence[Examples]) -> str:
    """Return a digest of the tensors of several `Examples`."""
    digest = hashlib.sha256()
    for part in parts:
        for tensor in (*part.inputs, part.targets):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def digest_of_settings(settings: Mapping[str, Any]) -> str:
    """Return a digest of settings that can be written as JSON."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
