"""The method `auto` under the Trainer: it learns from the evaluation set, after every epoch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from activebias.indexing import IndexedDataset
from activebias.integrations.huggingface.batches import PLACE, TrainingCollator
from activebias.integrations.huggingface.own_loss import targets_of
from activebias.internal import (
    IGNORED,
    Sources,
    counted,
    cross_entropy,
    evaluating,
    labelled,
    learn_from,
    whole_parameters,
)
from activebias.losses import PerInstance

if TYPE_CHECKING:
    from activebias.integrations.huggingface.trainer import ActiveBiasMixin


def evaluation_set(trainer: "ActiveBiasMixin") -> Any:
    """Return the data set that the bias learns from; None if its method does not learn, or without one."""
    sets, name = trainer.eval_dataset, trainer.learn_from
    if not trainer.bias.method.learns or sets is None:
        return None
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise NotImplementedError(
            f"Method {trainer.bias.method.name!r} needs whole parameters, but FSDP and DeepSpeed shard them: "
            "use 'wtc'."
        )
    # datasets.DatasetDict and a plain dict name their sets.
    names = list(sets) if isinstance(sets, Mapping) else []
    if names and name is None and len(names) > 1:
        raise ValueError(
            f"Method {trainer.bias.method.name!r} learns from one evaluation set, but `eval_dataset` has "
            f"{', '.join(map(repr, names))}: say which one, `learn_from={names[0]!r}`. It should not be the "
            "set that you report."
        )
    if name is not None and name not in names:
        raise ValueError(
            f"Expected `learn_from` to name one of the sets in `eval_dataset` "
            f"({', '.join(map(repr, names)) or 'one set without a name'}), but got {name!r}."
        )
    found = sets[name or names[0]] if isinstance(sets, Mapping) else sets
    if isinstance(found, IterableDataset) or not hasattr(found, "__getitem__"):
        raise TypeError(
            f"Expected `eval_dataset` to be a map-style data set, but got {type(found).__name__}: method "
            f"{trainer.bias.method.name!r} reads examples by their number."
        )
    return found.dataset if isinstance(found, IndexedDataset) else found


def learn_from_evaluation_set(trainer: "ActiveBiasMixin") -> None:
    """Let the bias learn, with the Trainer's collator, precision and pairs of logits and labels."""
    validation, training = evaluation_set(trainer), trainer.train_dataset
    if validation is None or not isinstance(training, IndexedDataset) or trainer.model is None:
        return
    collate = trainer._get_collator_with_removed_columns(trainer.data_collator, "training")
    assert isinstance(collate, TrainingCollator)

    def of_training(examples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch = collate([training[number] for number in examples.tolist()])
        index, place = batch.pop("index"), batch.pop(PLACE, None)
        found, _ = _losses(trainer, batch)
        if place is None:
            return counted(found, targets_of(index, shift=trainer.shift_labels, padding=-1))
        losses, counts = counted(found, torch.zeros_like(found.loss, dtype=torch.int64))
        place, index = place.to(losses.device), index.to(losses.device)
        return losses.flatten()[place], torch.where(counts.flatten()[place] == 0, index, -1)

    def of_validation(examples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch = collate.unnumbered([validation[number] for number in examples.tolist()])
        return labelled(*_losses(trainer, batch), trainer.bias.num_classes)

    sources = Sources(
        whole_parameters(trainer.model),
        of_training,
        len(training),
        of_validation,
        len(validation),
        min(trainer.args.train_batch_size, trainer.args.eval_batch_size),
        trainer.token_index,
    )
    with evaluating(trainer.model):
        learn_from(trainer.bias, sources)


def _losses(trainer: "ActiveBiasMixin", batch: Any) -> tuple[PerInstance, torch.Tensor]:
    """Return the losses of a batch with `labels`, and the labels."""
    assert trainer.model is not None
    inputs = dict(trainer._prepare_inputs(batch))
    trainer._add_decoder_inputs(inputs)
    targets = targets_of(inputs.pop("labels"), shift=trainer.shift_labels)
    with trainer.compute_loss_context_manager():
        outputs = trainer.model(**inputs)
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    found = cross_entropy(logits, targets, num_classes=trainer.bias.num_classes, ignore_index=IGNORED)
    return found, targets
