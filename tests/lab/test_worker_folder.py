"""The temporary folders of Ray's workers, without Ray: those of killed processes are deleted."""

import os
import subprocess
import sys
import tempfile

import pytest

from activebias.lab.on_ray import worker_folder

KILLED = """
import os, signal
from activebias.lab.on_ray import worker_folder

with worker_folder() as folder:
    (folder / "store").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # read TMPDIR again
    return tmp_path


def test_a_folder_is_deleted_at_the_end_and_after_an_error(place):
    with worker_folder() as folder:
        (folder / "models").mkdir()
        assert list(place.iterdir()) == [folder]
    with pytest.raises(KeyError), worker_folder():
        raise KeyError
    assert not list(place.iterdir())


def test_the_folder_of_a_killed_worker_is_deleted_by_the_next_one(place):
    assert subprocess.run([sys.executable, "-c", KILLED], env=os.environ).returncode == -9
    (left,) = place.iterdir()
    assert (left / "store").exists()
    with worker_folder() as first, worker_folder() as second:
        assert {*place.iterdir()} == {first, second}, "a folder in use stays"
    assert not list(place.iterdir())


def test_folders_of_others_and_links_stay(place):
    (place / "activebias-run").mkdir()
    (place / "elsewhere").mkdir()
    (place / "activebias-ray-link").symlink_to(place / "elsewhere")
    with worker_folder():
        pass
    assert len(list(place.iterdir())) == 3
