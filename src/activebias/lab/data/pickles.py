"""Reading the two kinds of pickles that official data comes in, without running what they may ask for."""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from activebias.training.reading import DataError

# What NumPy itself names when an array is pickled: the public way to its private constructor.
_RECONSTRUCT: Any = np.empty(0, np.uint8).__reduce__()[0]

_NUMERIC_KINDS = "buif"


def _empty_array(_subtype: object, shape: tuple[int, ...], _typecode: object) -> np.ndarray[Any, Any]:
    """Stand in for NumPy's constructor: an empty array, to be filled; nothing else may take memory."""
    if shape != (0,):
        raise pickle.UnpicklingError(f"an array that starts with the shape {shape} is not allowed")
    return np.empty(0, np.uint8)


def _numeric_dtype(name: str | bytes, *_flags: object) -> np.dtype[Any]:
    """Stand in for ``numpy.dtype``: plain numbers only, whatever way old Pythons wrote the flags."""
    dtype = np.dtype(name.decode("ascii") if isinstance(name, bytes) else name)
    if dtype.kind not in _NUMERIC_KINDS:
        raise pickle.UnpicklingError(f"arrays of {dtype} are not allowed")
    # A copy, since unpickling then sets its state.
    return np.dtype(dtype, False, True)


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """Stand in for ``_codecs.encode``, by which protocol 2 writes bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding} are not allowed")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    # Only ever handed to the constructor above; calling it with numbers would take memory.
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _numeric_dtype,
    ("_codecs", "encode"): _latin1_bytes,
}


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that knows arrays of numbers, and nothing else by name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed object, and import nothing."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which is not allowed") from None


def read_array_pickle(raw: bytes, where: str) -> dict[bytes, Any]:
    """Read a pickled dictionary of arrays, lists and strings, as CIFAR's python form is.

    >>> read_array_pickle(pickle.dumps({b"labels": [3, 1]}), "data_batch_1")
    {b'labels': [3, 1]}
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged or hostile pickle raises nearly anything
        raise DataError(f"{where} is no CIFAR file ({error}): delete it and get it again.") from error
    if not isinstance(content, dict):
        raise DataError(
            f"{where} holds a {type(content).__name__} where a CIFAR file holds a dictionary: get it again."
        )
    return content


def read_torch_arrays(path: Path) -> dict[str, Any]:
    """Read a dictionary of integer arrays saved by ``torch.save``, as the CIFAR-N files are."""
    names = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
    allowed: list[Any] = [
        np.ndarray,
        np.dtype,
        type(np.dtype(np.int64)),
        *((_RECONSTRUCT, name) for name in names),
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile pickle raises nearly anything
        asked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {asked[1]}" if asked else "it is damaged, or holds more than whole numbers"
        raise DataError(f"{path} cannot be read safely ({reason}): delete it and get it again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__} where a dictionary of labels is expected.")
    return content
