"""Loads a data set by its name."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from activebias.lab.data.cifar import load_cifar10, load_cifar100
from activebias.lab.data.dataset import Dataset
from activebias.lab.data.images import load_digits, load_fashion_mnist, load_mnist
from activebias.lab.data.tagging import load_conll2003, load_ontonotes5, load_wnut17
from activebias.lab.data.trec import load_trec
from activebias.training.reading import DataError

LOADERS: dict[str, Callable[..., Dataset]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "trec": load_trec,
    "conll2003": load_conll2003,
    "wnut17": load_wnut17,
    "ontonotes5": load_ontonotes5,
}


def load(name: str, root: str | Path | None = None, **options: Any) -> Dataset:
    """Load a data set from the data folder (see `data_root`), with the options of its function.

    Files with a known checksum or size are checked; ``verify=False`` allows your own files in the same
    format.

    >>> dataset = load("digits", num_test=797)
    >>> len(dataset.train), len(dataset.test), dataset.num_classes
    (1000, 797, 10)
    """
    if name not in LOADERS:
        raise DataError(f"There is no data set {name!r} to train on: known are {', '.join(LOADERS)}.")
    loader = LOADERS[name]
    known = [option for option in inspect.signature(loader).parameters if option != "root"]
    for option in options:
        if option not in known:
            raise DataError(f"{name} has no option {option!r}: known are {', '.join(known)}.")
    return loader(root, **options)
