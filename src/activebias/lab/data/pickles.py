"""Reads the two kinds of pickles in official data sets, without running code from them."""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from activebias.training.reading import DataError

# The functions that NumPy names in a pickled array, by their public names.
_RECONSTRUCT: Any = np.empty(0, np.uint8).__reduce__()[0]

_NUMERIC_KINDS = "buif"


def _empty_array(_subtype: object, shape: tuple[int, ...], _typecode: object) -> np.ndarray[Any, Any]:
    """Replace NumPy's constructor: return an empty array to fill, so that a pickle cannot allocate RAM."""
    if shape != (0,):
        raise pickle.UnpicklingError(f"an array that starts with the shape {shape} is not allowed")
    return np.empty(0, np.uint8)


def _numeric_dtype(name: str | bytes, *_flags: object) -> np.dtype[Any]:
    """Replace ``numpy.dtype``: only plain numbers, with the flags of any Python version."""
    dtype = np.dtype(name.decode("ascii") if isinstance(name, bytes) else name)
    if dtype.kind not in _NUMERIC_KINDS:
        raise pickle.UnpicklingError(f"arrays of {dtype} are not allowed")
    # A copy, because unpickling sets its state.
    return np.dtype(dtype, False, True)


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """Replace ``_codecs.encode``, which protocol 2 uses to write bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding} are not allowed")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    # Only an argument of the constructor above; a call with numbers would allocate RAM.
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _numeric_dtype,
    ("_codecs", "encode"): _latin1_bytes,
}


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that allows arrays of numbers, and no other names."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed object; never import anything."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which is not allowed") from None


def read_array_pickle(raw: bytes, where: str) -> dict[bytes, Any]:
    """Read a pickled dictionary of arrays, lists and strings, such as CIFAR's python form.

    >>> read_array_pickle(pickle.dumps({b"labels": [3, 1]}), "data_batch_1")
    {b'labels': [3, 1]}
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged or hostile pickle may raise any exception
        raise DataError(f"{where} is not a CIFAR file ({error}): delete it and get it again.") from error
    if not isinstance(content, dict):
        raise DataError(
            f"{where} holds a {type(content).__name__} where a CIFAR file holds a dictionary: get it again."
        )
    return content


def read_torch_arrays(path: Path) -> dict[str, Any]:
    """Read a dictionary of integer arrays saved by ``torch.save``, such as the CIFAR-N files."""
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
    except Exception as error:  # a damaged or hostile pickle may raise any exception
        asked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {asked[1]}" if asked else "it is damaged, or holds more than whole numbers"
        raise DataError(f"{path} cannot be read safely ({reason}): delete it and get it again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__} where a dictionary of labels is expected.")
    return content
