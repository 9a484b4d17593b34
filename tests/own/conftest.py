"""What tests of the command share: a folder to work in, and one thread."""

import pytest
import torch


@pytest.fixture
def own_place(tmp_path, monkeypatch):
    """Work in an empty folder; the nets are so small that a second thread only costs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    torch.set_num_threads(before)
