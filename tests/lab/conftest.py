"""What the tests of the lab share."""

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small tensors: several threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
