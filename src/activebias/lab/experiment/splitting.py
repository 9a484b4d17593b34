"""Repeated splits of one data set into a training, a validation and a test part."""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from activebias.internal import IGNORED
from activebias.training.examples import Examples
from activebias.training.randomness import derived_seed


@final
@dataclass(frozen=True)
class Split:
    """The shares of the examples to validate and to test on; the training part has the others."""

    validation: float = 0.2
    test: float = 0.2

    def __post_init__(self) -> None:
        """Raise if a part would be empty."""
        for name, share in (("validation", self.validation), ("test", self.test)):
            if not 0 < share < 1:
                raise ValueError(f"Expected `{name}` to be a share above 0 and below 1, but got {share:g}.")
        if self.validation + self.test >= 1:
            raise ValueError(
                "Expected `validation` and `test` to leave a part for training, but got "
                f"{self.validation:g} and {self.test:g}: their sum must be below 1."
            )

    @property
    def overlap(self) -> float:
        """The test examples per other example: the term of Nadeau and Bengio's correction."""
        return self.test / (1 - self.test)


class Parts(NamedTuple):
    """The rows of the three parts of a split, each in the order of the data."""

    train: Tensor
    validation: Tensor
    test: Tensor


def split_rows(examples: Examples, split: Split, seed: int) -> Parts:
    """Return the parts of the split with number `seed`.

    Every class has the same share in all parts, as far as its number of examples allows. A class with one
    example is in the training part, a class with two in the training and the test part. Equal inputs stay
    in one part: with a copy in the training part, the test error would be too low. All splits of a data set
    have parts of the same sizes, unless large groups of equal inputs do not fit.

    >>> examples = Examples((torch.arange(20.0).view(10, 2),), torch.tensor([0, 1] * 5))
    >>> [part.tolist() for part in split_rows(examples, Split(0.2, 0.2), seed=0)]
    [[1, 2, 3, 4, 6, 7], [0, 5], [8, 9]]
    """
    random = np.random.default_rng(derived_seed(seed, "split"))
    group, stratum = equal_inputs(examples), _strata(examples)
    sizes = np.bincount(group)
    _, first = np.unique(group, return_index=True)
    part_of_group = np.zeros(len(sizes), dtype=np.int64)
    for value in sorted(set(stratum.tolist())):
        members = random.permutation(np.flatnonzero(stratum[first] == value))
        total = int(sizes[members].sum())
        # The quotas depend on the data only, so that all splits have parts of the same sizes.
        for number, share, least in ((2, split.test, 2), (1, split.validation, 3)):
            quota = max(round(share * total), 1) if len(members) >= least else 0
            free = members[part_of_group[members] == 0]
            part_of_group[_fill(free, sizes, quota)] = number
    part = part_of_group[group]
    parts = Parts(*(torch.from_numpy(np.flatnonzero(part == number)) for number in range(3)))
    _check(parts, examples)
    return parts


def _fill(groups: NDArray[np.int64], sizes: NDArray[np.int64], quota: int) -> list[int]:
    """Return groups in the given order that together have `quota` members; one group is always left."""
    chosen: list[int] = []
    for group in groups:
        if sizes[group] <= quota and len(chosen) < len(groups) - 1:
            chosen.append(int(group))
            quota -= int(sizes[group])
    return chosen


def equal_inputs(examples: Examples) -> NDArray[np.int64]:
    """Return a number for every example, the same for equal inputs.

    >>> equal_inputs(Examples((torch.tensor([[1.0], [2.0], [1.0]]),), torch.tensor([0, 1, 1]))).tolist()
    [0, 1, 0]
    """
    rows = [
        np.ascontiguousarray(tensor.cpu().numpy()).reshape(len(examples), -1).view(np.uint8)
        for tensor in examples.inputs
    ]
    numbers: dict[bytes, int] = {}
    return np.array(
        [
            numbers.setdefault(b"".join(row[k].tobytes() for row in rows), len(numbers))
            for k in range(len(examples))
        ]
    )


def _strata(examples: Examples) -> NDArray[np.int64]:
    """Return the classes; for sentences, whether they have a tag other than the most frequent tag."""
    targets = examples.targets.cpu().numpy()
    if examples.is_tagging:
        usual = np.bincount(targets[targets != IGNORED]).argmax()
        targets = np.any((targets != usual) & (targets != IGNORED), axis=1)
    return np.asarray(targets, dtype=np.int64)


def _check(parts: Parts, examples: Examples) -> None:
    """Raise if the data is too small to split."""
    targets = examples.targets[parts.train]
    if min(map(len, parts)) == 0 or len(set(targets[targets != IGNORED].tolist())) < 2:
        raise ValueError(
            f"{len(examples)} examples are too few for a training, a validation and a test part: at least "
            "two classes need three different examples each."
        )
