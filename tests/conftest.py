"""What every test shares: one thread, and real data whose absence is said, not hidden."""

import os

# Before torch and NumPy are imported, and for the programs that tests start: see `one_thread`.
os.environ["OMP_NUM_THREADS"] = "1"

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

# Its tests are skipped with the reason; to look into it for doctests would be an error.
collect_ignore = [
    f"helpers/{helper}.py"
    for package, helpers in {
        "selenium": ["report_browser"],
        "transformers": ["huggingface_run", "language_run"],
    }.items()
    for helper in helpers
    if find_spec(package) is None
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small tensors: several threads only wait for each other, the more so beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def own_place(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def real_data():
    """Return a function that gives the folder of a real data set, or skips with the reason."""

    def folder(name: str) -> Path:
        root = os.environ.get("ACTIVEBIAS_DATA")
        if not root:
            pytest.skip(f"real data set {name!r} not tested: ACTIVEBIAS_DATA is not set")
        path = Path(root) / name
        if not path.exists():
            pytest.skip(f"real data set {name!r} not tested: it is not under ACTIVEBIAS_DATA")
        return path

    return folder
