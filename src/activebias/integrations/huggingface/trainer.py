"""The Trainer that follows a bias."""

import contextlib
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, Any, cast

import torch
import transformers
from torch.utils.data import Dataset, Sampler
from transformers import Trainer

from activebias import ActiveBias, TokenIndex, with_index
from activebias.indexing import IndexedDataset
from activebias.integrations.huggingface.batches import (
    PLACE,
    DealtOrder,
    TrainingCollator,
    ignore_padding,
    words_of,
)
from activebias.integrations.huggingface.own_loss import (
    base_model,
    check_own_loss,
    predicts_the_next_word,
    targets_of,
)
from activebias.integrations.huggingface.state import STATE_NAME, StateCallback, checkpoint_to_resume
from activebias.internal import IGNORED, cross_entropy
from activebias.sampling import EmphasisSampler

VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))

if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object


class ActiveBiasMixin(_Base):
    """Makes any Trainer follow a bias: `class MyTrainer(ActiveBiasMixin, SomeTrainer)`.

    The mixin adds the index to the batch, orders the training set, weighs the loss, and saves the bias's
    state in the Trainer's checkpoints. The metrics are logged once per epoch, as `active_bias_…`.
    """

    def __init__(
        self,
        *args: Any,
        bias: ActiveBias | Callable[..., ActiveBias],
        token_index: TokenIndex | None = None,
        shift_labels: bool | None = None,
        class_weight: Any = None,
        validation_error: str | None = None,
        learn_from: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the bias and, if words have labels, the numbering of these words.

        All other arguments are the Trainer's. `compute_loss_func` must return one loss for every label.

        Args:
            *args: the Trainer's.
            bias: its `num_instances` is the length of the training set, or `token_index.num_instances`. If
                the Trainer prepares the training set (TRL), pass a function that makes the bias, such as
                `functools.partial(ActiveBias, "wtc", num_classes=…)`. It is called with `num_instances`, and
                the words of the prepared set are numbered.
            token_index: for tagging and language models, `TokenIndex.from_dataset(train_dataset)`; for causal
                models with `shift=True`.
            shift_labels: whether the logits of a position predict the label of the next position. None
                decides by the model's class, and checks it: the model's own loss of the first batch must be
                the cross-entropy of its logits.
            class_weight: as `weight` in torch's cross-entropy. None uses the class weights of the model's own
                loss, if it has any.
            validation_error: the name of a metric of `compute_metrics`, such as "eval_error": the share of
                wrong examples. The bias receives it after an evaluation, which `burn_in="auto"` needs.
            learn_from: the name of the evaluation set that the method `auto` learns from, where
                `eval_dataset` is a dict of several.
            **kwargs: the Trainer's.
        """
        super().__init__(*args, **kwargs)
        self.shift_labels = predicts_the_next_word(self.model) if shift_labels is None else bool(shift_labels)
        if not isinstance(bias, ActiveBias):
            if token_index is None:
                token_index = words_of(self.train_dataset, shift=self.shift_labels)
            items = cast(Sized, self.train_dataset)
            bias = bias(num_instances=len(items) if token_index is None else token_index.num_instances)
        if self.train_dataset is not None and not isinstance(self.train_dataset, IndexedDataset):
            self.train_dataset = with_index(self.train_dataset)
        self.bias = bias
        self.token_index = token_index
        self.validation_error = validation_error
        self.learn_from = learn_from
        self.class_weight = None if class_weight is None else torch.as_tensor(class_weight)
        self._loss_is_checked = shift_labels is not None
        self._own_loss_func = self.compute_loss_func
        # The Trainer, and trainers built on it, call this function with the model's outputs and the labels.
        # They know that its loss is divided by the number of labels of the whole step.
        self.compute_loss_func = self._weighed_loss
        self._index: torch.Tensor | None = None  # of the batch whose loss is computed now
        self._place: torch.Tensor | None = None  # its words in the one row of a collator without padding
        self._step_labels: list[torch.Tensor] = []  # of the step under way, on this rank
        self._step_weight: torch.Tensor | None = None  # the sum of their class weights, over all ranks
        self._sampler: EmphasisSampler | None = None
        self.order: DealtOrder | None = None
        self._refuse_arguments()
        self.add_callback(StateCallback(self))

    def _refuse_arguments(self) -> None:
        if self.class_weight is not None and self._own_loss_func is not None:
            raise ValueError(
                "Expected `class_weight` or `compute_loss_func`, but got both: weigh the classes there."
            )
        if self.args.auto_find_batch_size:
            raise ValueError(
                "`auto_find_batch_size` restarts the training within one run, and the first visits would "
                "count twice: set per_device_train_batch_size instead."
            )
        if self.args.gradient_accumulation_steps > 1 and VERSION < (4, 52):
            raise ValueError(
                "Before 4.52 transformers miscounts the steps of an epoch with gradient accumulation, and "
                "resumes in the wrong place: install transformers 4.52 or later, or set "
                "gradient_accumulation_steps=1."
            )
        if self.args.world_size > 1 and not self.accelerator.even_batches:
            raise ValueError(
                "Expected accelerator_config's `even_batches` to be True: ranks take equal steps."
            )
        strategy = getattr(self.args, "train_sampling_strategy", "random")
        if getattr(self.args, "group_by_length", False):  # before transformers 5
            strategy = "group_by_length"
        if strategy != "random":
            raise ValueError(
                f"Expected `train_sampling_strategy` to be 'random', but got {strategy!r}: the bias orders "
                "the training set."
            )
        if (loss_type := getattr(self.args, "loss_type", "nll")) not in ("nll", "chunked_nll"):  # TRL's
            raise ValueError(
                f"Expected `loss_type` to be 'nll', which the bias weighs, but got {loss_type!r}."
            )

    @property
    def has_weighed(self) -> bool:
        """Whether a batch of this epoch was weighed."""
        return self._sampler is None or self._sampler.order.recorded

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int]:
        self._sampler = self.bias.sampler(
            batch_size=self.args.train_batch_size * self.args.gradient_accumulation_steps,
            dataset=cast(IndexedDataset, self.train_dataset),
            num_sequences=None if self.token_index is None else self.token_index.num_sequences,
            shard=False,  # Accelerate distributes the batches to the ranks
        )
        filled = self.args.world_size > 1 and not self.args.dataloader_drop_last
        self.order = DealtOrder(
            self._sampler,
            skips=not self.args.ignore_data_skip,
            round_size=self.args.train_batch_size * self.args.world_size if filled else 1,
        )
        return self.order

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[..., Any], description: str | None = None
    ) -> Callable[..., Any]:
        # Wraps the collator that drops the columns which the model does not accept.
        collator = super()._get_collator_with_removed_columns(data_collator, description)
        return TrainingCollator(
            collator, tuple(self.label_names), self.token_index, self.shift_labels, self.bias.multi_label
        )

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, *device: Any
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """Return the batches of one optimiser step and their number of labels, over all ranks.

        The padding of an epoch's last batches loses its labels here. The Trainer counts the labels.
        """
        batches = list(itertools.islice(epoch_iterator, num_batches))
        if not batches:
            return batches, None
        if self._sampler is None:
            raise RuntimeError(
                "The training loader must come from `get_train_dataloader`, which has the bias's sampler."
            )
        if "index" not in batches[0]:
            raise RuntimeError(
                "The batch has no 'index': pass `train_dataset` to the Trainer's constructor, or wrap it in "
                "`activebias.with_index`."
            )
        position = self.accelerator.process_index * len(batches[0]["index"])
        for batch in batches if self.args.world_size > 1 else []:
            ignore_padding(batch, max(self._sampler.num_remaining - position, 0))
            position += self.args.world_size * len(batch["index"])
        self._step_labels, self._step_weight = [batch["labels"] for batch in batches], None
        _, num_items = super().get_batch_samples(iter(batches), len(batches), *device)
        if self.args.world_size > 1 and not self.args.average_tokens_across_devices:
            # This rank's number may be 0, where all its examples are padding.
            num_items = torch.as_tensor(num_items, device=self.args.device)
            num_items = self.accelerator.reduce(num_items, reduction="sum")
        return batches, num_items

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Return the weighted loss and record p(y|x); in evaluation, return the Trainer's loss."""
        inputs = dict(inputs)
        index, place = inputs.pop("index", None), inputs.pop(PLACE, None)
        if not model.training:
            if self.label_smoother is not None or self._own_loss_func is not None:
                self._add_decoder_inputs(inputs)  # the Trainer takes the labels out
            with self._unweighed():
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if index is None:
            raise RuntimeError("The batch has no 'index': the Trainer must fetch it by `get_batch_samples`.")
        if not self._loss_is_checked and self._own_loss_func is None:
            label = "labels" if "labels" in self.label_names else (self.label_names or ["labels"])[0]
            self.class_weight = check_own_loss(
                model, self.model, inputs, label, self.shift_labels, self.class_weight
            )
        self._loss_is_checked = True
        self._add_decoder_inputs(inputs)
        self._index, self._place = index, place
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self._index is not None:
            raise RuntimeError(
                f"`compute_loss` of {type(self).__name__}'s base class computes its own loss, which cannot "
                "be weighed: let it call `Trainer.compute_loss`. Pass class weights as `class_weight=…`, "
                "another loss as `compute_loss_func=…`, a function that returns one loss for every label."
            )
        return loss

    @contextlib.contextmanager
    def _unweighed(self) -> Iterator[None]:
        weighed = self.compute_loss_func
        self.compute_loss_func = None if self._own_loss_func is None else self._mean_own_loss
        try:
            yield
        finally:
            self.compute_loss_func = weighed

    def _add_decoder_inputs(self, inputs: dict[str, Any]) -> None:
        """Shift the labels into the decoder's inputs, as a model does if it is given labels."""
        model = base_model(self.model)
        if not getattr(getattr(model, "config", None), "is_encoder_decoder", False) or any(
            name in inputs for name in ("decoder_input_ids", "decoder_inputs_embeds")
        ):
            return
        if inputs["labels"].dim() == 1:
            return  # a classifier makes the decoder's inputs from its own inputs
        prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
        if prepare is None:
            raise ValueError(
                f"{type(model).__name__} does not say how it makes `decoder_input_ids` of the labels: let "
                "the collator add them to the batch."
            )
        inputs["decoder_input_ids"] = prepare(labels=inputs["labels"])

    def _weighed_loss(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Return the weighted loss of the batch: the Trainer's `compute_loss_func`."""
        if self._index is None:
            raise RuntimeError("The bias weighs every batch once, in `compute_loss` of a training step.")
        index, place, targets = self._index, self._place, targets_of(labels, shift=self.shift_labels)
        self._index = self._place = None
        if place is None:
            index = targets_of(index, shift=self.shift_labels, padding=-1)
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        options: dict[str, Any] = {
            "ignore_index": IGNORED,
            # For several labels an example the Trainer has no smoother, and warns.
            "label_smoothing": 0.0 if self.label_smoother is None else self.args.label_smoothing_factor,
            "class_weight": self.class_weight,
        }
        reduction = "mean" if num_items_in_batch is None else "sum"
        if self._own_loss_func is None and place is None:
            loss = self.bias.loss(logits, targets, index, reduction=reduction, **options)
        else:
            with torch.set_grad_enabled(self._own_loss_func is None):
                num_classes, multi_label = self.bias.num_classes, self.bias.multi_label
                found = cross_entropy(
                    logits, targets, num_classes=num_classes, multi_label=multi_label, **options
                )
            losses, prob, mask, _ = found
            if self._own_loss_func is not None:
                losses = self._own_losses(outputs, labels, num_items_in_batch)
            if place is not None:
                losses, prob = losses.flatten()[place], prob.flatten()[place]
                mask = index >= 0 if mask is None else (index >= 0) & mask.flatten()[place]
            loss = self.bias.weigh(losses, prob, index, mask=mask, reduction=reduction)
        if num_items_in_batch is None:
            return loss
        number = num_items_in_batch
        weighs = self.class_weight is not None and not self.bias.multi_label
        # The Trainer counts a first word, which is never predicted, unless it knows that the model shifts.
        if weighs or (self.shift_labels and not self.model_accepts_loss_kwargs):
            number = self._weight_of_step()
        return loss * self._scale() / torch.as_tensor(number, device=loss.device).flatten()[0]

    def _weight_of_step(self) -> torch.Tensor:
        """Return the sum of the class weights of the step's labels: the weighted mean divides by it."""
        if self._step_weight is None:
            targets = [targets_of(labels, shift=self.shift_labels).flatten() for labels in self._step_labels]
            labels = torch.cat(targets).to(self.args.device)
            weights = (labels != IGNORED).float()
            if self.class_weight is not None:  # in half precision the sum would be rounded
                weights *= self.class_weight.to(weights)[labels.clamp(min=0)]
            total = weights.sum().clamp(min=1e-30)
            self._step_weight = self.accelerator.reduce(total, reduction="sum")
        return self._step_weight

    def _own_losses(self, outputs: Any, labels: torch.Tensor, num_items: Any) -> torch.Tensor:
        """Call the user's `compute_loss_func`, and return its loss of every target."""
        assert self._own_loss_func is not None
        losses: torch.Tensor = self._own_loss_func(outputs, labels, num_items_in_batch=num_items)
        shape = tuple(getattr(losses, "shape", ()))
        if self.shift_labels and shape == (len(labels), labels[0].numel() - 1):
            return torch.nn.functional.pad(losses, (0, 1))
        if shape != tuple(labels.shape):
            raise ValueError(
                f"Expected `compute_loss_func` to return one loss for every label, shape "
                f"{tuple(labels.shape)}, but got {shape}: compute it with `reduction='none'`; the bias "
                "weighs it and takes the mean."
            )
        return losses

    def _mean_own_loss(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Return the mean of the user's losses, for evaluation: without padding, which has no label."""
        counts = targets_of(labels, shift=self.shift_labels) != IGNORED
        return self._own_losses(outputs, labels, num_items_in_batch)[counts].mean()

    def _scale(self) -> float:
        """Return the factor of a sum of losses, divided by the labels of all ranks, for the Trainer.

        DistributedDataParallel divides the sum of the gradients by the number of ranks. The Trainer makes up
        for it only with `average_tokens_across_devices`.
        """
        if not self.args.average_tokens_across_devices:
            return float(self.args.world_size)
        return 1.0 if self.args.n_gpu <= 1 else 1 / self.args.n_gpu

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train; when the Trainer resumes from a checkpoint, the bias does too."""
        checkpoint = checkpoint_to_resume(resume_from_checkpoint, str(self.args.output_dir))
        if checkpoint is None and self.bias.epoch == 0 and self.bias._order.position:
            raise ValueError(
                "The Trainer would begin with epoch 0, but the bias has trained in epoch 0 already: pass "
                "`resume_from_checkpoint=…` to go on, or make a new bias and a new Trainer to begin anew."
            )
        if checkpoint is None and self.bias.epoch:
            warnings.warn(
                f"The Trainer begins with epoch 0 again, and the bias keeps its history up to epoch "
                f"{self.bias.epoch}: pass `resume_from_checkpoint=…` to go on, or make a new bias and a new "
                "Trainer to begin anew.",
                stacklevel=2,
            )
        if checkpoint is not None:
            self.bias.load(os.path.join(checkpoint, STATE_NAME))
            resume_from_checkpoint = checkpoint
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: every trial has a new model, but the bias would keep the history of the last trial."""
        raise NotImplementedError(
            "`hyperparameter_search` trains new models with one bias, whose history is the last model's: "
            "make a Trainer and a bias in every trial."
        )


class ActiveBiasTrainer(ActiveBiasMixin, Trainer):
    """Hugging Face's Trainer with Active Bias.

    For sequence classification pass `bias=ActiveBias(method, num_instances=len(train_dataset), …)`. For
    token classification and for language models every word with a label is an instance, numbered by
    `token_index`.
    """
