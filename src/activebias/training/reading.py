"""Reading files, plain or gzipped, with errors that name the file."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path


class DataError(ValueError):
    """A data file is missing, damaged or of a wrong format; the message is one sentence with the fix.

    >>> raise DataError("train.bin has 3 bytes")
    Traceback (most recent call last):
    activebias.training.reading.DataError: train.bin has 3 bytes
    """


def read_bytes(path: Path) -> bytes:
    """Return the whole file, unpacked if it is gzipped (according to its first bytes, not its name)."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror or error}): check that the file exists."
        ) from error
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): delete it and get it again.") from error


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    r"""Yield (line number from 1, text) of a plain or gzipped text file.

    Only ``\n`` ends a line: tweets contain characters that ``str.splitlines`` treats as line ends.
    """
    for number, raw in enumerate(read_bytes(path).split(b"\n"), start=1):
        try:
            yield number, raw.removesuffix(b"\r").decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}: byte {error.start} is not {encoding} text: convert the file to "
                f"{encoding}."
            ) from error
