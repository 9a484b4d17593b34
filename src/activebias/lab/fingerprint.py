"""What tells a user's model from another one: its layers, and what it computes."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from activebias.lab.data import Examples
from activebias.lab.randomness import derived_seed

# Enough to see a changed activation function, few enough that the probe costs nothing.
_NUM_EXAMPLES: Final = 8
# Of the largest output: machines and numbers of threads differ by about 1e-7.
_DECIMALS: Final = 4
_NUDGE: Final = 0.1


def build_seeded(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a user's model under a random state of its own, and put the caller's back."""
    if isinstance(model, nn.Module):
        raise TypeError(
            "`model` must be a function that builds a new model for every trial, such as `lambda: Net()`, "
            f"but got a {type(model).__name__} itself."
        )
    # A model of the user's own draws from torch's global state: lend it one, and put the old one back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = model()
    if not isinstance(built, nn.Module):
        raise TypeError(f"`model` must build a torch.nn.Module when called, but gave {type(built).__name__}.")
    return built


def first_few(examples: Examples) -> Examples:
    """Return the few examples that models are probed with."""
    return examples.select(torch.arange(min(_NUM_EXAMPLES, len(examples))))


def probe(model: Callable[[], nn.Module], inputs: Sequence[Tensor], device: str) -> list[Tensor]:
    """Return what a seeded model gives for a few inputs: as it is built, nudged, and nudged in training.

    Nudged, because a layer that begins at zero hides all before it. In training, because a function such as
    `F.dropout` shows only there. The regulariser, if there is one, comes last.
    """
    try:
        return _probe(model, inputs, "cpu")
    except RuntimeError:
        # Some models run on a GPU only; what is wrong on both is the user's to see.
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
            # Drawn on the CPU, so that it is the same on every device.
            parameter.add_((_NUDGE * torch.randn(parameter.shape)).to(parameter))
        outputs += [built(*inputs), built.train()(*inputs)]
        regulariser = getattr(built, "regulariser", None)
        if regulariser is not None:
            outputs.append(torch.as_tensor(regulariser()))
    return outputs


def digest_of_outputs(outputs: Sequence[Tensor]) -> str:
    """Return a short digest of outputs, rounded so that machines agree about them.

    >>> values = torch.tensor([[1.0, -2.0]])
    >>> digest_of_outputs([values]) == digest_of_outputs([values * (1 + 1e-7)])
    True
    >>> digest_of_outputs([values]) == digest_of_outputs([values + 0.01])
    False
    """
    digest = hashlib.sha256()
    for tensor in outputs:
        values = tensor.detach().cpu().double().flatten()
        scale = float(values.abs().max()) or 1.0
        # Adding 0 turns -0.0 into 0.0.
        rounded = [f"{round(value, _DECIMALS) + 0.0:.{_DECIMALS}f}" for value in (values / scale).tolist()]
        digest.update(f"{tuple(tensor.shape)} {scale:.{_DECIMALS}g} {' '.join(rounded)};".encode())
    return digest.hexdigest()[:16]
