"""The training batches: the index of every label, checked on the CPU, and an order for all ranks."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler

from activebias import TokenIndex, collate_with_index
from activebias.internal import IGNORED
from activebias.sampling import EmphasisSampler

PLACE = "active_bias_place"  # a name in a batch that no model has


def words_of(dataset: Any, *, shift: bool) -> TokenIndex | None:
    """Number the words of a prepared training set; None if every example has one label.

    If a collator makes the labels, it is not known which words get one: words are numbered by position.
    """
    first = dataset[0]
    if "labels" in first and "seq_lengths" in first:
        return TokenIndex(map(_num_labels, dataset))
    if "labels" in first:
        labels = torch.as_tensor(first["labels"])
        is_sequence = labels.dim() > 0 and not labels.is_floating_point()  # or several labels of one example
        return TokenIndex.from_dataset(dataset, shift=shift) if is_sequence else None
    if "input_ids" not in first or "label" in first or "label_ids" in first:
        return None
    return TokenIndex.from_dataset(dataset, "input_ids", shift=shift, by_position=True)


def _num_labels(row: dict[str, Any]) -> int:
    """Return the number of labels in a row that TRL has packed with texts; a text's first word has none."""
    labels, lengths = torch.tensor(row["labels"]), torch.tensor(row["seq_lengths"])
    labels[lengths.cumsum(0) - lengths] = IGNORED
    return int((labels != IGNORED).sum())


@dataclasses.dataclass(frozen=True)
class TrainingCollator:
    """Calls the Trainer's collator, adds the index of every label, and renames the labels to `labels`.

    Here the labels are still on the CPU, so checking them waits for no GPU. A batch without an index, as in
    evaluation, stays as it is.
    """

    collate_fn: Callable[[list[Any]], Any]
    label_names: tuple[str, ...]
    token_index: TokenIndex | None
    shift: bool
    multi_label: bool = False

    def __call__(self, samples: list[Any]) -> Any:
        """Return the batch, with the index of every label."""
        if not isinstance(samples[0], dict) or "index" not in samples[0]:
            return self.collate_fn(samples)
        batch = self._with_labels(collate_with_index(self.collate_fn)(samples))
        labels = batch["labels"]
        self._check_kind(labels)
        if labels.is_floating_point() or labels.dim() == 1:
            return batch
        if self.token_index is None:
            raise ValueError(
                "Labels with two dimensions are labels of words: pass `token_index=TokenIndex.from_dataset("
                f"train_dataset{', shift=True' if self.shift else ''})`."
            )
        if len(labels) == len(samples):
            batch["index"] = self._word_index(batch["index"], labels, batch.get("attention_mask"))
            return batch
        lengths = [len(sample.get("input_ids", ())) for sample in samples]
        starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        if len(labels) != 1 or 0 in lengths or not self._fits(batch, starts, sum(lengths)):
            raise ValueError(
                "Expected one row of labels for every sequence, or all in one row, each as long as its "
                f"`input_ids` in the data set, but {len(samples)} sequences of {sum(lengths)} words came as "
                f"labels of shape {tuple(labels.shape)}: pad the sequences, or change them in the data set."
            )
        # One row without padding holds all sequences. PLACE says where in the row an entry of `index` is.
        rows = pad_sequence(labels[0, : sum(lengths)].split(lengths), True, IGNORED)
        if self.shift:
            rows, labels[0, starts] = rows[:, 1:], IGNORED  # a first word is never predicted
        batch["index"] = self.token_index.of_labels(batch["index"], rows)
        batch[PLACE] = (starts[:, None] + torch.arange(rows.shape[1])).clamp(max=labels.shape[1] - 1)
        return batch

    @staticmethod
    def _fits(batch: Any, starts: torch.Tensor, num_words: int) -> bool:
        """Return whether sequences begin at `starts` of the one row; after them only padding may come."""
        labels, positions = batch["labels"], batch.get("position_ids")
        if labels.shape[1] < num_words or bool((labels[0, num_words:] != IGNORED).any()):
            return False
        if positions is None or positions.shape != labels.shape:
            return True
        return bool((positions[0, starts] == 0).all())

    def _check_kind(self, labels: torch.Tensor) -> None:
        """Refuse labels that are not of the bias's kind."""
        several = labels.is_floating_point() and labels.dim() == 2
        if self.multi_label != several:
            got = f"but got {labels.dtype} of shape {tuple(labels.shape)}"
            if self.multi_label:
                raise ValueError(f"With `multi_label=True` expected float labels (examples, classes), {got}.")
            raise ValueError(
                f"Expected labels that are classes, {got}: for several labels an example make the bias with "
                "`multi_label=True`."
            )
        if labels.is_floating_point() and not several:
            raise ValueError(
                f"Expected labels that are classes, but got {labels.dtype} of shape {tuple(labels.shape)} "
                "(regression), which has no p(y|x): in a loop of your own use `bias.weigh`."
            )
        if labels.dim() == 1 and self.token_index is not None:
            raise ValueError(
                f"Expected labels of words, (sequences, words), but got labels of shape "
                f"{tuple(labels.shape)}: where every example has one label, leave `token_index` out."
            )

    def unnumbered(self, samples: list[Any]) -> Any:
        """Return a batch of examples that are not in the training set, and so have no index."""
        return self._with_labels(self.collate_fn(samples))

    def _with_labels(self, batch: Any) -> Any:
        batch["labels"] = batch.pop(self._label_name(batch))
        return batch

    def _label_name(self, batch: dict[str, Any]) -> str:
        names = ["labels"] if "labels" in batch else [name for name in self.label_names if name in batch]
        if len(names) == 1 and isinstance(batch[names[0]], torch.Tensor):
            return names[0]
        found = f"{' and '.join(names)}" if names else "none"
        raise ValueError(
            f"Expected one tensor of class labels in a batch, 'labels' or one of `label_names`, but found "
            f"{found} among {', '.join(batch)}: tasks with several answers (question answering) or without "
            "labels (rewards, preferences) need a loop of your own with `bias.weigh`."
        )

    def _word_index(
        self, index: torch.Tensor, labels: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Number the words that have a label; later parts of words and padding have no label."""
        assert self.token_index is not None
        if attention_mask is not None and attention_mask.shape != labels.shape:
            attention_mask = None  # it is the encoder's, and the labels are the decoder's
        if not self.shift:
            return self.token_index.of_labels(index, labels, attention_mask=attention_mask)
        labels = labels[:, 1:]
        if attention_mask is not None:
            # The first word of a sequence is never predicted: not after padding on its left either.
            first = (attention_mask.long().cumsum(-1) == 1)[:, 1:]
            is_word = attention_mask[:, 1:].bool()
            labels.masked_fill_(first & is_word & (attention_mask[:, :-1] == 0), IGNORED)
            attention_mask = is_word & (attention_mask[:, :1].bool() | ~first)
        words = self.token_index.of_labels(index, labels, attention_mask=attention_mask)
        return functional.pad(words, (1, 0), value=-1)


def ignore_padding(batch: dict[str, Any], num_real: int) -> None:
    """Remove the labels of the examples after the first `num_real`."""
    if PLACE not in batch:
        batch["labels"][num_real:] = IGNORED
        return
    # If the sequences of a batch follow each other in one row, padding is at the end of the row.
    if num_real < len(batch[PLACE]):
        batch["labels"][0, int(batch[PLACE][num_real, 0]) :] = IGNORED


class DealtOrder(Sampler[int]):
    """The bias's order as Accelerate deals it out to the ranks, batch by batch.

    A resuming Trainer skips the examples that were already trained on, so dummy indices stand for them. The
    last round of batches is padded with its own first examples. Accelerate would pad it with the epoch's
    first examples, which a resumed run does not know.
    """

    def __init__(self, sampler: EmphasisSampler, *, skips: bool, round_size: int) -> None:
        """`round_size` is the number of examples in one batch on every rank; 1 pads nothing."""
        self._sampler, self._skips, self._round_size = sampler, skips, round_size
        self._epoch = 0

    def __len__(self) -> int:
        """Return the number of examples, with padding."""
        return -(-len(self._sampler) // self._round_size) * self._round_size

    def __iter__(self) -> Iterator[int]:
        """Iterate over the epoch, which may begin with dummies."""
        trained = self._sampler.order.position
        if self._skips:
            yield from itertools.repeat(0, -(-trained // self._round_size) * self._round_size)
        last_round: list[int] = []
        for item in self._sampler:
            if len(last_round) == self._round_size:
                last_round.clear()
            last_round.append(item)
            yield item
        yield from itertools.islice(itertools.cycle(last_round), self._round_size - len(last_round))

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; ignore an earlier epoch.

        Before transformers 5, Accelerate's loader of a resumed epoch counts from 0 once more.
        """
        if epoch >= self._epoch:
            self._epoch = epoch
            self._sampler.set_epoch(epoch)
