"""Random numbers of a trial: every purpose has its own generator, independent of the others."""

import hashlib

import torch


def derived_seed(seed: int, purpose: str) -> int:
    """Return a different seed for every (seed, purpose).

    >>> derived_seed(0, "weights") == derived_seed(0, "weights")
    True
    >>> derived_seed(0, "weights") in (derived_seed(0, "noise"), derived_seed(1, "weights"))
    False
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2  # below 2⁶², which every generator accepts


def derived_generator(seed: int, purpose: str) -> torch.Generator:
    """Return a different generator for every (seed, purpose)."""
    return torch.Generator().manual_seed(derived_seed(seed, purpose))
