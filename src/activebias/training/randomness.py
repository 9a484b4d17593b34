"""Random numbers of a trial: one generator for every purpose, so that no choice disturbs another."""

import hashlib

import torch


def derived_seed(seed: int, purpose: str) -> int:
    """Return a seed of its own for every (seed, purpose).

    >>> derived_seed(0, "weights") == derived_seed(0, "weights")
    True
    >>> derived_seed(0, "weights") in (derived_seed(0, "noise"), derived_seed(1, "weights"))
    False
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2  # below 2⁶², which every generator takes


def derived_generator(seed: int, purpose: str) -> torch.Generator:
    """Return a generator of its own for every (seed, purpose)."""
    return torch.Generator().manual_seed(derived_seed(seed, purpose))
