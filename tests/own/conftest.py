"""Tables that several files of tests read."""

import pytest

from own_tables import frame_of


@pytest.fixture
def wine():
    datasets = pytest.importorskip("sklearn.datasets")
    return frame_of(datasets.load_wine)
