"""MNIST, Fashion-MNIST (IDX files) and scikit-learn's digits."""

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from activebias.lab.data.dataset import Dataset
from activebias.lab.data.sources import require
from activebias.training.examples import Examples
from activebias.training.reading import DataError, read_bytes

DIGIT_NAMES = tuple(str(digit) for digit in range(10))
FASHION_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_UNSIGNED_BYTE = 8
_NUM_DIGITS = 1797


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read an IDX file of unsigned bytes, plain or gzipped, with the given number of dimensions.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels"
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    ...     read_idx(path, 1)
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    raw = read_bytes(path)
    expected = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    if raw[:4] != expected:
        raise DataError(
            f"{path}, offset 0: the first bytes are {raw[:4].hex()} where an IDX file of {dimensions} "
            f"dimensions has {expected.hex()}: it is another kind of file, get it again."
        )
    start = 4 + 4 * dimensions
    if len(raw) < start:
        raise DataError(f"{path}, offset {len(raw)}: the file ends inside its header: get it again.")
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    size = int(np.prod(shape, dtype=np.uint64))
    if len(raw) - start != size:
        raise DataError(
            f"{path}, offset {start}: {len(raw) - start} bytes follow where the header announces {size}: "
            "the file is truncated or damaged, get it again."
        )
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy())


def load_mnist(root: str | Path | None = None, *, verify: bool = True) -> Dataset:
    """Load MNIST: uint8 pixels (N, 1, 28, 28)."""
    return _load("mnist", DIGIT_NAMES, root, verify)


def load_fashion_mnist(root: str | Path | None = None, *, verify: bool = True) -> Dataset:
    """Load Fashion-MNIST: uint8 pixels (N, 1, 28, 28)."""
    return _load("fashion-mnist", FASHION_NAMES, root, verify)


def load_digits(root: str | Path | None = None, *, num_test: int = 500, split_seed: int = 0) -> Dataset:
    """Load scikit-learn's digits: uint8 pixels (N, 1, 8, 8) from 0 to 16, split by seed; ``root`` is unused.

    >>> dataset = load_digits()
    >>> len(dataset.train), len(dataset.test), tuple(dataset.train.inputs[0].shape[1:])
    (1297, 500, (1, 8, 8))
    """
    from sklearn import datasets  # here, because the import is slow and other data sets do not need it

    if not 0 < num_test < _NUM_DIGITS:
        raise ValueError(f"`num_test` must lie in 1 to {_NUM_DIGITS - 1}, but got {num_test}.")
    images, labels = datasets.load_digits(return_X_y=True)
    pixels = torch.from_numpy(images.astype(np.uint8)).view(-1, 1, 8, 8)
    targets = torch.from_numpy(labels.astype(np.int64))
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(split_seed))
    both = Examples((pixels,), targets)
    return Dataset("digits", both.select(order[num_test:]), both.select(order[:num_test]), 10, DIGIT_NAMES)


def _load(name: str, class_names: tuple[str, ...], root: str | Path | None, verify: bool) -> Dataset:
    found = require(name, root, verify=verify)
    paths = [found.path(file.name) for file in found.form.files]
    return Dataset(name, _examples(paths[0], paths[1]), _examples(paths[2], paths[3]), 10, class_names)


def _examples(image_path: Path, label_path: Path) -> Examples:
    images, labels = read_idx(image_path, 3), read_idx(label_path, 1)
    if len(images) != len(labels):
        raise DataError(
            f"{label_path} has {len(labels)} labels for the {len(images)} images of {image_path.name}: get "
            "both again."
        )
    wrong = (labels > 9).nonzero()
    if len(wrong):
        position = int(wrong[0])
        raise DataError(
            f"{label_path}, offset {8 + position}: the label {int(labels[position])} is not in 0 to 9: get "
            "the file again."
        )
    return Examples((images.unsqueeze(1),), labels.long())
