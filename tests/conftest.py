"""What every test shares: where the real data lies, and that a missing one is said, not hidden."""

import os
from pathlib import Path

import pytest


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
