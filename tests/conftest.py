"""What every test shares: one thread, and real data whose absence is said, not hidden."""

import gc
import importlib
import os
import signal

# Before torch and NumPy are imported, and for the programs that tests start: see `one_thread`.
os.environ["OMP_NUM_THREADS"] = "1"

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from fresh import FreshPython
from pretend_gpu import pretend_gpu
from programs import Programs

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


def pytest_collection_finish():
    """Garbage is looked for among what the tests make, not among all that was imported.

    Hugging Face's Trainer looks for garbage after every training, which took longer than the training.
    Hypothesis comes first: it looks for what refers to the random generators it finds.
    """
    if find_spec("hypothesis") is not None:
        importlib.import_module("hypothesis")
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small tensors: several threads only wait for each other, the more so beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def fresh_python():
    """Return a function that runs code where torch is imported, but nothing of this package."""
    python = FreshPython()
    yield python
    python.close()


@pytest.fixture(scope="session")
def programs():
    """Return what starts programs without importing the frameworks again."""
    programs = Programs()
    yield programs
    programs.close()


@pytest.fixture(params=["cpu", "gpu"])
def both_devices(request, monkeypatch):
    """Run the test with the code of a CPU, and with the code of a GPU."""
    if request.param == "gpu":
        pretend_gpu(monkeypatch)


@pytest.fixture
def ctrl_c():
    """Let SIGINT raise KeyboardInterrupt: the children of a shell's background job ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
