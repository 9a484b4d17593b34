"""Files and folders appear whole or not at all."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
import torch

import activebias as ab
from activebias.files import remove_leftovers, replacing, until_written
from activebias.training.checkpoints import Checkpoint


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_takes_the_place_of_another(tmp_path):
    path = tmp_path / "around" / "folder"
    for text in ("old", "new"):
        with replacing(path, folder=True) as temporary:
            (temporary / text).touch()
    assert [entry.name for entry in path.iterdir()] == ["new"]
    assert list(path.parent.iterdir()) == [path]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path):
    with pytest.raises(ValueError, match="name a file in it"), replacing(tmp_path):
        pass


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    for name in ("file", ".file.12ab", ".files.12ab"):
        (tmp_path / name).touch()
    (tmp_path / ".file.34cd").mkdir()
    remove_leftovers(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".files.12ab", "file"]


@pytest.mark.parametrize("folder", [False, True])
def test_a_place_that_cannot_be_written_is_named(tmp_path, folder):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "new"
    with pytest.raises(OSError) as caught, replacing(path, folder=folder):
        pass
    assert str(caught.value).startswith(f"{path} cannot be written (")
    assert str(caught.value).endswith("): choose another place.")


def a_bias(path):
    return ab.ActiveBias("wtc", num_instances=3, num_classes=2, burn_in=1).save(path)


def a_training(path):
    return Checkpoint(path).write({"epoch": 1})


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("write", [a_bias, a_training])
def test_ctrl_c_waits_until_a_checkpoint_is_written(tmp_path, monkeypatch, write):
    path = tmp_path / "state.pt"
    save = torch.save

    def save_at_ctrl_c(state, file):
        os.kill(os.getpid(), signal.SIGINT)
        save(state, file)

    monkeypatch.setattr(torch, "save", save_at_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        write(path)
    assert torch.load(path, weights_only=True)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyboardInterrupt):  # as before
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_an_error_of_a_write_is_not_hidden_by_ctrl_c():
    @until_written()
    def fail():
        os.kill(os.getpid(), signal.SIGINT)
        raise OSError("no space left on device")

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, OSError)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("moment", [1, 2])
def test_ctrl_c_waits_until_a_folder_is_in_the_place_of_another_one(tmp_path, monkeypatch, moment):
    """Between the two renamings there is no folder, and the new one would be removed."""
    path, rename, renamed = tmp_path / "folder", pathlib.Path.rename, []

    def rename_at_ctrl_c(self, target):
        rename(self, target)
        renamed.append(target)
        if len(renamed) == moment:
            os.kill(os.getpid(), signal.SIGINT)

    def write(text):
        with replacing(path, folder=True) as temporary:
            (temporary / "file").write_text(text)

    write("old")
    monkeypatch.setattr(pathlib.Path, "rename", rename_at_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        write("new")
    assert (path / "file").read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_second_ctrl_c_is_not_lost():
    """Programs count them: the first one stops after the epoch, the second one at once."""
    came = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        with until_written():
            with until_written():
                os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert not came
    finally:
        signal.signal(signal.SIGINT, before)
    assert came == [signal.SIGINT] * 2


def test_a_second_ctrl_c_goes_to_the_handler_that_the_first_one_put_in_place():
    """A usual way to stop: the first one asks, and hands the second one to Python's own handler."""
    came = []

    def ask(*_):
        came.append("asked")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def write():
        with until_written():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert not came

    before = signal.signal(signal.SIGINT, ask)
    try:
        with pytest.raises(KeyboardInterrupt):
            write()
    finally:
        signal.signal(signal.SIGINT, before)
    assert came == ["asked"]


@pytest.mark.parametrize("second", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_second_ctrl_c_may_be_ignored_or_end_the_process(second):
    program = f"""
import os, signal, sys
from activebias.files import until_written

def ask(*_):
    print("asked", flush=True)
    signal.signal(signal.SIGINT, signal.Handlers({int(second)}))

signal.signal(signal.SIGINT, ask)
with until_written():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
print("goes on")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    if second == signal.SIG_DFL:
        assert (done.stdout.split("\n"), done.returncode) == (["asked", ""], -signal.SIGINT)
    else:
        assert (done.stdout.split("\n"), done.returncode) == (["asked", "goes on", ""], 0)


@pytest.mark.usefixtures("ctrl_c")
def test_another_thread_writes_as_it_did():
    found = []

    def write():
        with until_written():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]
