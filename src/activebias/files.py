"""Files and folders that appear at their place whole or not at all: the one atomic write."""

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which replaces `path` when the block ends.

    An error in the block leaves `path` as it was, and no temporary file. After a power cut a file is the
    old one or the whole new one. With `folder` the temporary path is an empty folder. The folders around
    `path` are made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with replacing(Path(root) / "new" / "file") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     (Path(root) / "new" / "file").read_text()
    'whole'
    """
    if not folder and path.is_dir():
        raise ValueError(f"{path} is a folder, but a file is to be written: name a file in it.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir() if folder else temporary.touch()
    except OSError as error:  # its own message would name the temporary path
        raise type(error)(
            f"{path} cannot be written ({error.strerror or error}): choose another place."
        ) from error
    try:
        yield temporary
        if folder:
            with until_written():  # between two renamings there is neither the old nor the new folder
                _swap(temporary, path)
        else:
            _flush(temporary)
            os.replace(temporary, path)
            _flush(path.parent)
    except BaseException:
        _discard(temporary)
        raise


@contextmanager
def until_written() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, each time that it is pressed.

    `torch.save` into an open file does not expect an exception in the file's `write`: it raises an error of
    its own in place of KeyboardInterrupt, or ends the whole process.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield  # no exception can come
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *caught: came.append(caught))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for each in came:
            now = signal.getsignal(signal.SIGINT)  # a first Ctrl-C may put another handler in its place
            now(*each) if callable(now) else signal.raise_signal(signal.SIGINT)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of killed writers of `path`."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        _discard(leftover)


def _swap(temporary: Path, path: Path) -> None:
    """Put a folder in the place of another one: no system replaces a folder that is not empty."""
    old = temporary.with_name(temporary.name + ".old")
    if path.exists():
        path.rename(old)
    temporary.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
