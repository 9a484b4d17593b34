"""What older releases of skorch cannot do beside a newer torch."""

import pytest
import skorch
import torch


def _version(package) -> tuple[int, ...]:
    return tuple(map(int, package.__version__.split(".")[:2]))


needs_unpickling = pytest.mark.skipif(
    _version(skorch) < (1, 2) and _version(torch) >= (2, 6),
    reason="skorch before 1.2 does not unpickle a net beside torch 2.6 or later",
)
