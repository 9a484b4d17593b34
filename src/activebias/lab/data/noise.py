"""Label noise: seeded noisy labels, with the true labels kept.

Targets may have any shape; entries equal to -100 (padding of sentences) do not change. Every function draws
from its own generator and does not use the global random state.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from activebias.internal import IGNORED
from activebias.lab.data.dataset import Dataset

NOISE_KINDS = ("uniform", "uniform_other", "class_dependent", "human")

# Typical human confusions, by class number, as in much of the noisy-label literature.
COMMON_FLIPS: dict[str, dict[int, int]] = {
    "mnist": {2: 7, 3: 8, 5: 6, 6: 5, 7: 1},
    "cifar10": {2: 0, 3: 5, 4: 7, 5: 3, 9: 1},
}


def uniform(labels: Tensor, num_classes: int, fraction: float, *, seed: int | torch.Generator) -> Tensor:
    """Redraw a fraction of the labels uniformly over all classes, as the paper does.

    Exactly ``round(fraction * count)`` labels, chosen without replacement, are redrawn. About one in
    ``num_classes`` of them gets its old value, so that 10 % noise on ten classes gives about 9 % wrong
    labels.

    >>> labels = torch.zeros(1000, dtype=torch.int64)
    >>> int((uniform(labels, 10, 0.1, seed=0) != labels).sum())
    93
    """
    chosen, generator = _choose(labels, num_classes, fraction, seed)
    drawn = torch.randint(num_classes, (len(chosen),), generator=generator)
    return _replace(labels, chosen, drawn)


def uniform_other(
    labels: Tensor, num_classes: int, fraction: float, *, seed: int | torch.Generator
) -> Tensor:
    """Redraw a fraction of the labels uniformly over the other classes: every redrawn label is wrong.

    >>> labels = torch.zeros(1000, dtype=torch.int64)
    >>> int((uniform_other(labels, 10, 0.1, seed=0) != labels).sum())
    100
    """
    chosen, generator = _choose(labels, num_classes, fraction, seed)
    if num_classes < 2 and len(chosen):
        raise ValueError(
            "Expected `num_classes` to be at least 2 for noise over the other classes, but got 1."
        )
    shift = torch.randint(1, max(num_classes, 2), (len(chosen),), generator=generator)
    return _replace(labels, chosen, (labels.flatten()[chosen] + shift) % num_classes)


def class_dependent(
    labels: Tensor,
    num_classes: int,
    *,
    transition: Tensor | None = None,
    pairs: Mapping[int, int] | None = None,
    fraction: float | None = None,
    seed: int | torch.Generator,
) -> Tensor:
    """Draw each label from the distribution of its true class.

    Give either ``transition`` (C, C), whose row k is the distribution of labels for the true class k, or
    ``pairs`` with ``fraction``: a label of class k becomes ``pairs[k]`` with this probability, and classes
    without a pair do not change.

    >>> labels = torch.tensor([0, 1, 2, 2])
    >>> class_dependent(labels, 3, pairs={2: 0}, fraction=1.0, seed=0).tolist()
    [0, 1, 0, 0]
    >>> class_dependent(labels, 3, transition=torch.eye(3), seed=0).tolist()
    [0, 1, 2, 2]
    """
    if (transition is None) == (pairs is None):
        raise ValueError("Give exactly one of `transition` and `pairs`.")
    if transition is None:
        if pairs is None or fraction is None:
            raise ValueError("`pairs` needs `fraction`, the probability of a flip in [0, 1].")
        transition = flip_matrix(num_classes, pairs, fraction)
    elif fraction is not None:
        raise ValueError(
            "`fraction` belongs to `pairs`; a `transition` matrix already holds the probabilities."
        )
    matrix = torch.as_tensor(transition, dtype=torch.float64)
    if matrix.shape != (num_classes, num_classes):
        raise ValueError(
            f"Expected `transition` to be ({num_classes}, {num_classes}), but got {tuple(matrix.shape)}."
        )
    if bool((matrix < 0).any()) or not torch.allclose(
        matrix.sum(1), torch.ones(num_classes, dtype=torch.float64)
    ):
        raise ValueError(
            "Expected `transition` to hold probabilities: no negative values, and every row sums to 1."
        )
    valid = _valid_positions(labels, num_classes)
    generator = _generator(seed)
    # Inverse of the cumulative distribution: one uniform number per label, for any number of classes.
    points = torch.rand(len(valid), 1, generator=generator, dtype=torch.float64)
    reached = matrix.cumsum(1)[labels.flatten()[valid]] <= points
    # Rounding may leave the last sum below 1: then the last class with a probability above 0 is chosen.
    last = torch.where(matrix > 0, torch.arange(num_classes), -1).amax(1)[labels.flatten()[valid]]
    return _replace(labels, valid, torch.minimum(reached.sum(1), last))


def flip_matrix(num_classes: int, pairs: Mapping[int, int], fraction: float) -> Tensor:
    """Return the transition matrix in which class k becomes ``pairs[k]`` with probability ``fraction``.

    >>> flip_matrix(2, {0: 1}, 0.25).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    _check_fraction(fraction)
    matrix = torch.eye(num_classes, dtype=torch.float64)
    for source, target in pairs.items():
        if not (0 <= source < num_classes and 0 <= target < num_classes):
            raise ValueError(
                f"Expected `pairs` to name classes 0 to {num_classes - 1}, but got {source} → {target}."
            )
        matrix[source, source] -= fraction
        matrix[source, target] += fraction
    return matrix


def with_noise(
    dataset: Dataset,
    kind: str,
    *,
    fraction: float | None = None,
    seed: int | torch.Generator = 0,
    annotation: str | None = None,
    root: str | Path | None = None,
) -> Dataset:
    """Return the data set with noisy training labels, and the true labels in ``clean_targets``.

    ``kind`` is one of ``NOISE_KINDS``. All but ``human`` take ``fraction``, the share of labels to redraw.
    ``class_dependent`` draws typical confusions of the data set, or the next class. ``human`` takes
    ``annotation`` (see `activebias.lab.data.human_labels`) and the data folder ``root``.

    >>> from activebias.lab.data import load
    >>> noisy = with_noise(load("digits"), "uniform_other", fraction=0.2, seed=1)
    >>> round(float((noisy.train.targets != noisy.clean_targets).float().mean()), 3)
    0.2
    """
    if kind not in NOISE_KINDS:
        raise ValueError(f"Expected `kind` to be one of {', '.join(NOISE_KINDS)}, but got {kind!r}.")
    if kind == "human":
        from activebias.lab.data.human_labels import with_human_labels

        return with_human_labels(dataset, annotation, root=root)
    true = dataset.train.targets if dataset.clean_targets is None else dataset.clean_targets
    if kind == "class_dependent":
        next_class = {k: (k + 1) % dataset.num_classes for k in range(dataset.num_classes)}
        pairs = COMMON_FLIPS.get(dataset.name, next_class)
        noisy = class_dependent(true, dataset.num_classes, pairs=pairs, fraction=fraction, seed=seed)
    else:
        if fraction is None:
            raise ValueError(
                f"`fraction` is needed for {kind} noise: the share of labels to redraw, in [0, 1]."
            )
        draw = uniform if kind == "uniform" else uniform_other
        noisy = draw(true, dataset.num_classes, fraction, seed=seed)
    return replace(dataset, train=replace(dataset.train, targets=noisy), clean_targets=true)


def _generator(seed: int | torch.Generator) -> torch.Generator:
    return seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"Expected `fraction` to lie in [0, 1], but got {fraction}.")


def _valid_positions(labels: Tensor, num_classes: int) -> Tensor:
    flat = labels.flatten()
    valid = (flat != IGNORED).nonzero().squeeze(1)
    values = flat[valid]
    if len(values) and (int(values.min()) < 0 or int(values.max()) >= num_classes):
        raise ValueError(
            f"Expected `labels` to lie in 0 to {num_classes - 1} (or be {IGNORED}), "
            f"but got {int(values.min())} to {int(values.max())}."
        )
    return valid


def _choose(
    labels: Tensor, num_classes: int, fraction: float, seed: int | torch.Generator
) -> tuple[Tensor, torch.Generator]:
    _check_fraction(fraction)
    valid = _valid_positions(labels, num_classes)
    generator = _generator(seed)
    count = round(fraction * len(valid))
    return valid[torch.randperm(len(valid), generator=generator)[:count]], generator


def _replace(labels: Tensor, positions: Tensor, values: Tensor) -> Tensor:
    changed = labels.flatten().clone()
    changed[positions] = values
    return changed.view(labels.shape)
