"""The order of a bias with the method scan, for a trainer without one; and whether two models are equal."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

import activebias as ab


class AsScanned(Sampler[int]):
    """Yields the order of epoch after epoch."""

    def __init__(self, num_items: int) -> None:
        self._bias = ab.ActiveBias("scan", num_instances=num_items, num_classes=2)
        self._sampler = self._bias.sampler(batch_size=num_items)
        self._epoch = 0

    def __iter__(self) -> Iterator[int]:
        self._bias.set_epoch(self._epoch)
        self._epoch += 1
        return iter(list(self._sampler))

    def __len__(self) -> int:
        return self._bias.num_instances


def assert_equal_weights(one, other) -> None:
    """Compare the weights of two models."""
    for (name, value), theirs in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.allclose(value, theirs, atol=1e-5), name
