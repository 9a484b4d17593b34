"""Active Bias under Hugging Face's Trainer, for sequence and for token classification."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils.data import Dataset, Sampler

from activebias import ActiveBias, TokenIndex, collate_with_index, with_index
from activebias.indexing import IndexedDataset
from activebias.sampling import EmphasisSampler

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise ImportError(
        "activebias.integrations.huggingface needs transformers and accelerate: "
        "pip install 'activebias[huggingface]'"
    ) from error

if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object

STATE_NAME = "active_bias.pt"
IGNORE_INDEX = -100  # the label of padding in transformers' collators


class ActiveBiasMixin(_Base):
    """Makes any Trainer follow a bias: `class MyTrainer(ActiveBiasMixin, SomeTrainer)`.

    The mixin adds the index to the batch, orders the training set, weighs the loss, and saves the bias's
    state in the Trainer's checkpoints. The metrics are logged once per epoch, as `active_bias_…`.
    """

    def __init__(
        self,
        *args: Any,
        bias: ActiveBias,
        token_index: TokenIndex | None = None,
        validation_error: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the bias, and for tagging the numbering of the words that have a label.

        All other arguments are the Trainer's. `token_index` is a `TokenIndex` of the number of labels other
        than -100 in every training sentence; the bias's `num_instances` is then `token_index.num_instances`.
        `validation_error` is the name of a metric of `compute_metrics`, such as "eval_error": the share of
        wrong examples. The bias receives it after every evaluation, which `burn_in="auto"` needs.
        """
        super().__init__(*args, **kwargs)
        if self.train_dataset is not None and not isinstance(self.train_dataset, IndexedDataset):
            self.train_dataset = with_index(self.train_dataset)
        if self.args.auto_find_batch_size:
            raise ValueError(
                "`auto_find_batch_size` restarts the training within one run, and the first visits would "
                "count twice: set per_device_train_batch_size instead."
            )
        if self.args.world_size > 1 and not self.accelerator.even_batches:
            raise ValueError(
                "Expected accelerator_config's `even_batches` to be True: ranks take equal steps."
            )
        self.bias = bias
        self.token_index = token_index
        self.validation_error = validation_error
        # `compute_loss` divides by the number of items in the whole step, over all ranks and micro-batches.
        self.loss_is_scaled_for_ga = True
        self._sampler: EmphasisSampler | None = None
        self.add_callback(_StateCallback(self))

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int]:
        self._sampler = self.bias.sampler(
            batch_size=self.args.train_batch_size * self.args.gradient_accumulation_steps,
            dataset=cast(IndexedDataset, self.train_dataset),
            num_sequences=None if self.token_index is None else self.token_index.num_sequences,
            shard=False,  # Accelerate distributes the batches to the ranks
        )
        return _SkippedFirst(self._sampler, skips=not self.args.ignore_data_skip)

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[..., Any], description: str | None = None
    ) -> Callable[..., Any]:
        # Wraps the collator that drops the columns which the model does not accept.
        return _KeepIndex(super()._get_collator_with_removed_columns(data_collator, description))

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """Return the batches of one optimiser step and their number of labels, over all ranks.

        Accelerate pads the last batches of an epoch; the labels of the padding are removed here.
        """
        batches = list(itertools.islice(epoch_iterator, num_batches))
        if not batches:
            return batches, None
        if self._sampler is None:
            raise RuntimeError(
                "The training loader must come from `get_train_dataloader`, which has the bias's sampler."
            )
        position = self.accelerator.process_index * len(batches[0]["labels"])
        for batch in batches if self.args.world_size > 1 else []:
            size = len(batch["labels"])
            batch["labels"][max(self._sampler.num_remaining - position, 0) :] = IGNORE_INDEX
            position += self.args.world_size * size
        num_items = torch.stack([(batch["labels"] != IGNORE_INDEX).sum() for batch in batches]).sum()
        return batches, self.accelerator.reduce(num_items.to(device), reduction="sum")

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Return the weighted loss and record p(y|x); in evaluation, return the Trainer's loss."""
        inputs = dict(inputs)
        index = inputs.pop("index", None)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if index is None:
            raise RuntimeError("The batch has no 'index': pass `train_dataset` to the Trainer's constructor.")
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        if labels.dim() > 1:
            index = self._word_index(index, labels)
        loss = self.bias.loss(
            logits,
            labels,
            index,
            ignore_index=IGNORE_INDEX,
            label_smoothing=self.args.label_smoothing_factor,
            reduction="mean" if num_items_in_batch is None else "sum",
        )
        if num_items_in_batch is not None:
            # DistributedDataParallel divides the sum of the gradients by the number of ranks.
            loss = loss * self.args.world_size / num_items_in_batch
        return (loss, outputs) if return_outputs else loss

    def _word_index(self, index: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Number the words that have a label; later parts of words and padding have no label."""
        if self.token_index is None:
            raise ValueError(
                "Labels with two dimensions are tags of words: pass `token_index=TokenIndex(lengths)`, with "
                "the number of labels other than -100 of every training sentence."
            )
        labelled = labels != IGNORE_INDEX
        number = (labelled.cumsum(-1) - 1).clamp(min=0)
        words = self.token_index(index, width=labels.shape[1]).gather(-1, number)
        return torch.where(labelled, words, -1)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train; when the Trainer resumes from a checkpoint, the bias does too."""
        checkpoint = resume_from_checkpoint
        if checkpoint is True:
            checkpoint = get_last_checkpoint(str(self.args.output_dir))  # type: ignore[no-untyped-call]
        if checkpoint:
            self.bias.load(os.path.join(str(checkpoint), STATE_NAME))
        return super().train(resume_from_checkpoint, *args, **kwargs)


class ActiveBiasTrainer(ActiveBiasMixin, Trainer):
    """Hugging Face's Trainer with Active Bias.

    For sequence classification pass `bias=ActiveBias(method, num_instances=len(train_dataset), …)`. For
    token classification every word with a label is an instance, numbered by `token_index`.
    """


class _StateCallback(TrainerCallback):
    """Writes the bias's state into every checkpoint, and logs its metrics at the end of every epoch."""

    def __init__(self, trainer: ActiveBiasMixin) -> None:
        self._trainer = trainer

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.should_save:
            folder = os.path.join(str(args.output_dir), f"checkpoint-{state.global_step}")
            self._trainer.bias.save(os.path.join(folder, STATE_NAME))

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        name = self._trainer.validation_error
        if name is None or self._trainer.bias.epoch is None:
            return
        if metrics is None or name not in metrics:
            raise RuntimeError(
                f"The evaluation gave no {name!r}: return it from `compute_metrics`, without the 'eval_', "
                "as the share of wrong examples, or give another `validation_error`."
            )
        self._trainer.bias.report_validation_error(metrics[name])

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        metrics = self._trainer.bias.metrics()
        self._trainer.log({f"active_bias_{name}": value for name, value in metrics.items()})


class _SkippedFirst(Sampler[int]):
    """Yields a dummy index for every example that was already trained: a resuming Trainer skips them."""

    def __init__(self, sampler: EmphasisSampler, *, skips: bool) -> None:
        self._sampler, self._skips = sampler, skips

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        if self._skips:
            yield from itertools.repeat(0, self._sampler.num_items - self._sampler.num_remaining)
        yield from self._sampler

    def set_epoch(self, epoch: int) -> None:
        self._sampler.set_epoch(epoch)


@dataclasses.dataclass(frozen=True)
class _KeepIndex:
    """Removes the index from the samples, calls the inner collator, and adds the index to the batch."""

    collate_fn: Callable[[list[Any]], Any]

    def __call__(self, samples: list[Any]) -> Any:
        has_index = isinstance(samples[0], dict) and "index" in samples[0]
        return (collate_with_index(self.collate_fn) if has_index else self.collate_fn)(samples)
