"""CIFAR-10N and CIFAR-100N: human labels of CIFAR's training images (Wei et al., 2022).

CIFAR-10N: three labels per image (``random1``, ``random2``, ``random3``), their majority (``aggregate``), and
a wrong label if there is one (``worst``). CIFAR-100N: one label per image (``noisy``), fine or coarse.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from activebias.lab.data.checksums import checksum_matches
from activebias.lab.data.dataset import Dataset
from activebias.lab.data.pickles import read_torch_arrays
from activebias.lab.data.sources import data_root, find, get_source, how_to_get
from activebias.training.reading import DataError

_KEYS = {
    "cifar10": {
        "aggregate": "aggre_label",
        "random1": "random_label1",
        "random2": "random_label2",
        "random3": "random_label3",
        "worst": "worse_label",
    },
    "cifar100": {"noisy": "noisy_label"},
    "cifar100 coarse": {"noisy": "noisy_coarse_label"},
}
_FILES = {"cifar10": "CIFAR-10_human.pt", "cifar100": "CIFAR-100_human.pt"}
_OFFICIAL_CIFAR100_TRAIN = "md5:6172c7755cfe09b2fe270c85cebc1b15"


@dataclass(frozen=True)
class HumanLabels:
    """The human labels and the true labels, in the official order of the training images."""

    labels: Tensor
    clean: Tensor


def read_human_labels(path: Path, key: str, num_classes: int) -> HumanLabels:
    """Read the human labels with the given key, and the true labels of the same granularity."""
    content = read_torch_arrays(path)
    clean_key = "clean_coarse_label" if "coarse" in key else "clean_label"
    return HumanLabels(
        _labels(content, key, num_classes, path), _labels(content, clean_key, num_classes, path)
    )


def annotation_key(name: str, annotation: str | None = None, *, coarse: bool = False) -> str:
    """Return the key of a data set's human labels in their file; raise if they do not exist.

    >>> annotation_key("cifar10", "worst")
    'worse_label'
    """
    if name not in _FILES:
        raise DataError(f"Human labels exist for cifar10 and cifar100, not for {name}.")
    keys = _KEYS[f"{name} coarse" if coarse else name]
    annotation = next(iter(keys)) if annotation is None else annotation
    if annotation not in keys:
        raise DataError(f"{name} has the human labels {', '.join(keys)}, but got {annotation!r}.")
    return keys[annotation]


def with_human_labels(
    dataset: Dataset, annotation: str | None = None, *, root: str | Path | None = None, verify: bool = True
) -> Dataset:
    """Return CIFAR with human training labels, and the true labels in ``clean_targets``.

    ``annotation``: see the top of this module; the default is ``aggregate`` for CIFAR-10 and ``noisy`` for
    CIFAR-100. ``cifar100/labels.npz`` may mark images that are not at their official position (its entry
    ``train_order_tier`` is 0). These images are left out, because their human labels belong to other images.
    """
    coarse = dataset.name == "cifar100" and dataset.num_classes == 20
    key = annotation_key(dataset.name, annotation, coarse=coarse)
    folder = data_root(root)
    path = _find_file(dataset.name, folder, verify)
    human = read_human_labels(path, key, dataset.num_classes)
    true = dataset.train.targets if dataset.clean_targets is None else dataset.clean_targets
    if human.clean.shape != true.shape or not torch.equal(human.clean, true):
        raise DataError(
            f"{path} does not belong to these training images: its true labels differ from their labels; "
            f"use {dataset.name} in its official order."
        )
    train = replace(dataset.train, targets=human.labels)
    noisy = replace(dataset, train=train, clean_targets=true)
    return _in_official_order(noisy, folder) if dataset.name == "cifar100" else noisy


def _find_file(name: str, root: Path, verify: bool) -> Path:
    source = get_source("cifar-n")
    file = next(file for file in source.forms[0].files if file.name == _FILES[name])
    path = root / source.folder / file.name
    if not path.exists():
        raise DataError(f"{path} is missing: {how_to_get(source, root)}.")
    if verify and file.checksum is not None and not checksum_matches(path, file.checksum):
        raise DataError(
            f"{path} has the wrong SHA-256 checksum: delete it and run `activebias data get cifar-n`."
        )
    return path


def _in_official_order(dataset: Dataset, root: Path) -> Dataset:
    path = root / "cifar100" / "labels.npz"
    if path.exists():
        try:
            with np.load(path, allow_pickle=False) as content:
                tier = torch.from_numpy(content["train_order_tier"].astype(np.int64))
        except (OSError, KeyError, ValueError, EOFError) as error:
            raise DataError(
                f"{path} does not hold `train_order_tier` ({error}): get it again or remove it."
            ) from error
        if len(tier) != len(dataset.train):
            raise DataError(
                f"{path} has {len(tier)} entries for {len(dataset.train)} training images: get it again."
            )
        kept = (tier > 0).nonzero().squeeze(1)
        note = f"CIFAR-100N: only the {len(kept)} training images known to stand in official order are used."
        clean = dataset.clean_targets
        return replace(
            dataset,
            train=dataset.train.select(kept),
            clean_targets=None if clean is None else clean[kept],
            notes=(*dataset.notes, note),
        )
    found = find(get_source("cifar100"), root)
    if (
        found
        and found.form.files[0].name == "train.bin"
        and not checksum_matches(found.path("train.bin"), _OFFICIAL_CIFAR100_TRAIN)
    ):
        note = (
            "CIFAR-100N: train.bin is not the official file, so the order of its images could not be checked."
        )
        return replace(dataset, notes=(*dataset.notes, note))
    return dataset


def _labels(content: dict[str, object], key: str, num_classes: int, path: Path) -> Tensor:
    if key not in content:
        raise DataError(f"{path} does not hold {key}: delete it and run `activebias data get cifar-n`.")
    values = np.asarray(content[key])
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(
            f"{path}: {key} is not a list of whole numbers: delete it and run `activebias data get cifar-n`."
        )
    wrong = ((values < 0) | (values >= num_classes)).nonzero()[0]
    if len(wrong):
        raise DataError(
            f"{path}: entry {wrong[0]} of {key} is {values[wrong[0]]}, not in 0 to {num_classes - 1}: get "
            "the file again."
        )
    return torch.from_numpy(values.astype(np.int64))
