"""Reads training and validation examples by their number, for `bias.learn`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
)

from activebias.indexing import IndexedDataset, has_index, uncollated, usual_collate

GIVE_FORWARD = "give `bias.learn(…, forward=lambda model, batch: (logits, targets))`"


class Part:
    """A data set or a DataLoader of the user's, read by the numbers of examples, without the index."""

    def __init__(self, name: str, data: Any) -> None:
        """Take the data set, the collation and the batch size from a DataLoader."""
        is_loader = isinstance(data, DataLoader)
        self.dataset = data.dataset if is_loader else data
        self.batch_size = data.batch_size if is_loader else None
        self._collate = uncollated(data.collate_fn) if is_loader else default_collate
        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__getitem__"):
            raise TypeError(
                f"Expected `{name}` to be a map-style data set or a DataLoader of one, but got "
                f"{type(self.dataset).__name__}: `bias.learn` reads examples by their number."
            )
        if is_loader and data.batch_sampler is None:
            raise TypeError(
                f"Expected `{name}` to be a DataLoader that makes batches, but its `batch_size` is None: "
                "give its data set, whose samples are single examples."
            )
        if isinstance(self.dataset, tuple) and all(hasattr(each, "shape") for each in self.dataset):
            raise TypeError(
                f"Expected `{name}` to be a data set, but got a tuple of arrays: give "
                "`TensorDataset(inputs, targets)`."
            )
        if isinstance(self.dataset, IndexedDataset):
            self.dataset = self.dataset.dataset
        if has_index(self.dataset):
            raise TypeError(
                f"Expected the samples of `{name}` to have no index, but got a {type(self.dataset).__name__} "
                "of a data set that was given to `with_index`: call `with_index` last, or leave it out."
            )
        # The training set is read by the index, which counts all of it.
        sampler = getattr(data.batch_sampler, "sampler", None) if is_loader else None
        if name == "validation" and isinstance(sampler, SubsetRandomSampler):
            self.dataset = Subset(self.dataset, sampler.indices)
        if len(self.dataset) == 0:
            raise ValueError(f"Expected `{name}` to have at least one example, but it is empty.")

    def batch(self, examples: torch.Tensor) -> Any:
        """Return the examples as a batch."""
        if type(self.dataset) is TensorDataset and self._collate in (default_collate, usual_collate):
            return list(self.dataset[examples])  # as the collation of single examples, in one read
        numbers = examples.tolist()
        if fetch := getattr(self.dataset, "__getitems__", None):  # as torch's DataLoader reads
            return self._collate(fetch(numbers))
        return self._collate([self.dataset[number] for number in numbers])


def share_examples(one: Any, other: Any) -> bool:
    """Return whether an example is in both data sets, as `Subset` tells.

    >>> data = TensorDataset(torch.arange(9))
    >>> share_examples(data, Subset(data, [3])), share_examples(Subset(data, [1, 2]), Subset(data, [3]))
    (True, False)
    """
    (data, rows), (other_data, other_rows) = _origin(one), _origin(other)
    if data is not other_data or rows is None or other_rows is None:
        return data is other_data
    return bool(np.isin(rows, other_rows).any())


def _origin(dataset: Any) -> tuple[Any, Any]:
    """Return the data set that a part of it is in, and the rows of the part; None for all rows."""
    if not isinstance(dataset, Subset):
        return dataset, None
    (data, rows), chosen = _origin(dataset.dataset), np.asarray(dataset.indices)
    return data, chosen if rows is None else rows[chosen]


def usual_forward(model: nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and targets of a batch in one of the usual forms."""
    inputs, options = [], {}
    if isinstance(batch, Mapping) and "labels" in batch:
        options = {name: value for name, value in batch.items() if name not in ("labels", "index")}
        targets = batch["labels"]
    elif isinstance(batch, list | tuple) and len(batch) > 1:
        *inputs, targets = batch
    else:
        raise TypeError(
            f"Expected a batch to be a tuple (*inputs, targets) or a dict with 'labels', but got "
            f"{type(batch).__name__}: {GIVE_FORWARD}."
        )
    if type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        raise TypeError(
            f"{type(model).__name__} predicts the next token, and shifts its labels itself: give "
            "`bias.learn(…, forward=…)` that returns logits[:, :-1] and labels[:, 1:]."
        )
    try:
        output = model(*inputs, **options)
    except (TypeError, RuntimeError) as error:
        if type(error) not in (TypeError, RuntimeError):  # out of memory
            raise
        raise type(error)(
            f"The model does not take a batch as the data set gives it ({error}). If your training changes a "
            f"batch before the model, by another dtype for example, {GIVE_FORWARD}."
        ) from error
    return getattr(output, "logits", output), targets


def moved(batch: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [moved(value, device) for value in batch]
    return batch
