"""Reading files, plain or gzipped, with errors that name the file."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from activebias.lab.data.errors import DataError


def read_bytes(path: Path) -> bytes:
    """Return the whole file, unpacked if it is gzipped (told by its first bytes, not by its name)."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror or error}): check that the file is there."
        ) from error
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): delete it and get it again.") from error


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    r"""Yield (line number from 1, text) of a plain or gzipped text file.

    Only ``\n`` ends a line: tweets hold characters that ``str.splitlines`` would take for line ends.
    """
    for number, raw in enumerate(read_bytes(path).split(b"\n"), start=1):
        try:
            yield number, raw.removesuffix(b"\r").decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}: byte {error.start} is not {encoding} text: convert the file to "
                f"{encoding}."
            ) from error


def digest(path: Path, algorithm: str) -> str:
    """Return the hexadecimal checksum of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(
                file, lambda: hashlib.new(algorithm, usedforsecurity=False)
            ).hexdigest()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror or error}): check that the file is there."
        ) from error


def checksum_matches(path: Path, checksum: str) -> bool:
    """Tell whether a file has the checksum, written as ``md5:…`` or ``sha256:…``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "empty"
    ...     path.touch()
    ...     checksum_matches(path, "md5:d41d8cd98f00b204e9800998ecf8427e")
    True
    """
    algorithm, _, expected = checksum.partition(":")
    return digest(path, algorithm) == expected
