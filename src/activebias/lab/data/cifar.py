"""CIFAR-10 and CIFAR-100, in the official binary form, the python form, or as the official archive."""

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from activebias.lab.data.cifar_names import CIFAR10_NAMES, CIFAR100_COARSE_NAMES, CIFAR100_NAMES
from activebias.lab.data.dataset import Dataset
from activebias.lab.data.pickles import read_array_pickle
from activebias.lab.data.sources import Found, require
from activebias.training.examples import Examples
from activebias.training.reading import DataError, read_bytes

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Labels:
    """A kind of label: its byte in a record, its key in a pickle, and the names of its classes."""

    num_bytes: int
    byte: int
    key: str
    names: tuple[str, ...]


_LABELS = {
    ("cifar10", "fine"): _Labels(1, 0, "labels", CIFAR10_NAMES),
    ("cifar100", "fine"): _Labels(2, 1, "fine_labels", CIFAR100_NAMES),
    ("cifar100", "coarse"): _Labels(2, 0, "coarse_labels", CIFAR100_COARSE_NAMES),
}


def load_cifar10(root: str | Path | None = None, *, human: str | None = None, verify: bool = True) -> Dataset:
    """Load CIFAR-10: uint8 pixels (N, 3, 32, 32); ``human``: the CIFAR-10N labels to train on."""
    return _load("cifar10", "fine", root, human, verify)


def load_cifar100(
    root: str | Path | None = None, *, labels: str = "fine", human: str | None = None, verify: bool = True
) -> Dataset:
    """Load CIFAR-100: uint8 pixels (N, 3, 32, 32); ``labels``: "fine" (100 classes) or "coarse" (20)."""
    if labels not in ("fine", "coarse"):
        raise DataError(f"Expected `labels` to be fine or coarse, but got {labels!r}.")
    return _load("cifar100", labels, root, human, verify)


def _load(name: str, which: str, root: str | Path | None, human: str | None, verify: bool) -> Dataset:
    labels = _LABELS[name, which]
    found = require(name, root, verify=verify)
    parts = [parse(raw, labels, where) for parse, raw, where in _raw_parts(found, name)]
    pixels, targets = [pixels for pixels, _ in parts], [targets for _, targets in parts]
    train = Examples((torch.cat(pixels[:-1]),), torch.cat(targets[:-1]))
    test = Examples((pixels[-1],), targets[-1])
    dataset = Dataset(name, train, test, len(labels.names), labels.names)
    if human is None:
        return dataset
    from activebias.lab.data.human_labels import with_human_labels

    return with_human_labels(dataset, human, root=root, verify=verify)


_Parse = Callable[[bytes, _Labels, str], tuple[Tensor, Tensor]]


def _raw_parts(found: Found, name: str) -> list[tuple[_Parse, bytes, str]]:
    """Return the content of each file, training files first, with the function that parses it."""
    first = found.form.files[0].name
    if not first.endswith(".tar.gz"):
        parse = _parse_binary if first.endswith(".bin") else _parse_python
        paths = [found.path(file.name) for file in found.form.files]
        return [(parse, read_bytes(path), str(path)) for path in paths]
    binary = "binary" in first
    form = next(
        form for form in found.source.forms if form.folder and form.files[0].name.endswith(".bin") == binary
    )
    parse = _parse_binary if binary else _parse_python
    contents = _read_members(found.path(first), [f"{form.folder}/{file.name}" for file in form.files])
    return [(parse, raw, where) for where, raw in contents.items()]


def _read_members(path: Path, names: list[str]) -> dict[str, bytes]:
    """Read files of an archive into RAM; nothing is written, so that no path can leave a folder."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name in names and member.isfile():
                    file = archive.extractfile(member)
                    contents[member.name] = b"" if file is None else file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): delete it and get it again.") from error
    missing = [name for name in names if name not in contents]
    if missing:
        raise DataError(f"{path} does not hold {', '.join(missing)}: delete it and get it again.")
    return {f"{path}:{name}": contents[name] for name in names}


def _parse_binary(raw: bytes, labels: _Labels, where: str) -> tuple[Tensor, Tensor]:
    record = labels.num_bytes + _PIXELS
    if not raw or len(raw) % record:
        raise DataError(
            f"{where}, offset {len(raw) // record * record}: the file ends inside a record of {record} "
            "bytes: it is truncated or of another form, get it again."
        )
    table = torch.from_numpy(np.frombuffer(raw, np.uint8).reshape(-1, record).copy())
    targets = table[:, labels.byte].long()
    wrong = (targets >= len(labels.names)).nonzero()
    if len(wrong):
        position = int(wrong[0])
        raise DataError(
            f"{where}, offset {position * record + labels.byte}: the label {int(targets[position])} is not "
            f"in 0 to {len(labels.names) - 1}: get the file again."
        )
    return table[:, labels.num_bytes :].reshape(-1, 3, 32, 32), targets


def _parse_python(raw: bytes, labels: _Labels, where: str) -> tuple[Tensor, Tensor]:
    # Python 2 wrote the official files, so that their keys are bytes. A copy by Python 3 has text.
    content = {
        key.decode("latin1") if isinstance(key, bytes) else key: value
        for key, value in read_array_pickle(raw, where).items()
    }
    pixels, values = content.get("data"), content.get(labels.key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise DataError(f"{where}: `data` is not a uint8 array of {_PIXELS} columns: get the file again.")
    if not isinstance(values, list) or len(values) != len(pixels):
        raise DataError(f"{where}: `{labels.key}` is not a list of {len(pixels)} labels: get the file again.")
    for position, value in enumerate(values):
        if type(value) is not int or not 0 <= value < len(labels.names):
            raise DataError(
                f"{where}: entry {position} of `{labels.key}` is {value!r}, not in 0 to "
                f"{len(labels.names) - 1}: get the file again."
            )
    return torch.from_numpy(pixels.copy()).view(-1, 3, 32, 32), torch.tensor(values, dtype=torch.int64)
