"""Files and folders that appear at their place whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Give the path of a temporary file (or an empty folder) that takes the place of `path` in the end.

    What fails on the way leaves nothing behind, and what was there before stays. A folder takes no place
    that is taken.
    """
    if folder and path.exists():
        raise ValueError(f"{path} exists already: choose another place, or remove it.")
    if not folder and path.is_dir():
        raise ValueError(f"{path} is a folder, but a file is to be written: name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    around = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    temporary = around / path.name
    try:
        if folder:
            temporary.mkdir()
        yield temporary
        os.replace(temporary, path)
    finally:
        shutil.rmtree(around, ignore_errors=True)
