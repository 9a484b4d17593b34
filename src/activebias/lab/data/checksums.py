"""Checksums of data files."""

import hashlib
from pathlib import Path

from activebias.training.reading import DataError, read_bytes


def digest(path: Path, algorithm: str) -> str:
    """Return the hexadecimal checksum of a file."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    try:
        with path.open("rb") as file:
            while part := file.read(2**20):
                found.update(part)
        return found.hexdigest()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror or error}): check that the file exists."
        ) from error


def checksum_matches(path: Path, checksum: str, unpacked: str | None = None) -> bool:
    """Return whether a file has the checksum (``md5:…`` or ``sha256:…``), or its content has ``unpacked``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "empty"
    ...     path.touch()
    ...     checksum_matches(path, "md5:d41d8cd98f00b204e9800998ecf8427e")
    True
    """
    algorithm, _, expected = checksum.partition(":")
    if digest(path, algorithm) == expected:
        return True
    if unpacked is None:
        return False
    algorithm, _, expected = unpacked.partition(":")
    try:
        content = read_bytes(path)
    except DataError:  # a damaged file
        return False
    return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() == expected
