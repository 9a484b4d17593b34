"""A small run under Hugging Face's Trainer; as a program, on the ranks that torchrun started."""

import os
import sys
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
)

import activebias as ab
from activebias.integrations.huggingface import ActiveBiasTrainer
from language_run import (
    ACCUMULATES,
    KEEPS_TEXTS_APART,
    flatten_texts,
    make_language_trainer,
    training_arguments,
)

# Method, task, and over how many parts of a step the gradients are accumulated.
RANK_CASES = [
    ("wpv", "sequence", 1),
    ("wtc", "tagging", 2),
    ("we", "language", 2),
    ("auto", "tagging", 1),
    ("wtc", "weighted", 2),
    ("wtc", "several", 1),
    *([("wtc", "packed", 2)] if KEEPS_TEXTS_APART else []),
]
CLASS_WEIGHT = torch.tensor([0.5, 1.0, 3.0])
NUM_SAMPLES, NUM_CLASSES = 50, 3  # the last step of an epoch has two samples


def samples(tagging: bool) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(NUM_SAMPLES):
        length = int(torch.randint(2, 7, (1,), generator=generator)) if tagging else 4
        words = torch.randint(1, 10, (length,), generator=generator)
        # The second word has no label, like the second part of a word.
        labels = torch.where(torch.arange(length) == 1, -100, words % NUM_CLASSES)
        made.append(
            {"input_ids": words, "labels": labels if tagging else labels[0], "text": "not for the model"}
        )
    return made


def several_labels() -> list[dict]:
    """Return samples with three labels of 0 and 1 each."""
    classes = torch.arange(NUM_CLASSES)
    return [
        {**sample, "labels": (sample["input_ids"] % NUM_CLASSES == classes[:, None]).any(1).float()}
        for sample in samples(False)
    ]


def collate(batch: list[dict]) -> dict[str, torch.Tensor]:
    assert all("text" not in sample for sample in batch), "remove_unused_columns must go on working"
    labels = [sample["labels"] for sample in batch]
    input_ids = pad_sequence([sample["input_ids"] for sample in batch], batch_first=True)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids > 0).long(),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100)
        if labels[0].dim() and not labels[0].is_floating_point()
        else torch.stack(labels),
    }


def make_model(tagging: bool, dropout: float = 0.0, **options) -> torch.nn.Module:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=10,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        num_labels=NUM_CLASSES,
        **options,
    )
    return (BertForTokenClassification if tagging else BertForSequenceClassification)(config)


def make_tokens() -> ab.TokenIndex:
    return ab.TokenIndex((sample["labels"] != -100).sum() for sample in samples(True))


def make_bias(method: str, tagging: bool, seed: int = 0) -> ab.ActiveBias:
    num_instances = make_tokens().num_instances if tagging else NUM_SAMPLES
    return ab.ActiveBias(method, num_instances=num_instances, num_classes=NUM_CLASSES, burn_in=1, seed=seed)


def make_trainer(
    method: str = "wpv",
    *,
    folder: Path,
    tagging: bool = False,
    accumulate: int = 1,
    world_size: int = 1,
    dropout: float = 0.0,
    trainer_class: type = ActiveBiasTrainer,
    options: dict | None = None,
    **arguments,
) -> ActiveBiasTrainer:
    given = options or {}
    model = given.get("model") or make_model(tagging, dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return trainer_class(
        args=training_arguments(folder, 3, accumulate, world_size, **arguments),
        **{
            "model": model,
            "train_dataset": samples(tagging),
            "eval_dataset": samples(tagging),
            "data_collator": collate,
            "optimizers": (optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
            "bias": make_bias(method, tagging),
            "token_index": make_tokens() if tagging else None,
            **given,
        },
    )


def make_case(method: str, task: str, *, folder: Path, **options) -> ActiveBiasTrainer:
    if task == "packed":
        collator = {"data_collator": flatten_texts}
        return make_language_trainer("llama", method, folder=folder, options=collator, **options)
    if task == "several":
        bias = ab.ActiveBias(method, num_instances=NUM_SAMPLES, num_classes=NUM_CLASSES, multi_label=True)
        model = make_model(False, problem_type="multi_label_classification")
        several = {"model": model, "train_dataset": several_labels(), "bias": bias}
        return make_trainer(method, folder=folder, options=several, **options)
    if task == "weighted":
        return make_trainer(method, folder=folder, options={"class_weight": CLASS_WEIGHT}, **options)
    if task == "language":
        return make_language_trainer("gpt2", method, folder=folder, **options)
    return make_trainer(method, folder=folder, tagging=task == "tagging", **options)


def train_and_resume(out: Path) -> None:
    """Train with dropout, and again from a checkpoint in the last epoch, whose last batch is not full.

    With this seed the last sentences have at most 4 words, the epoch's first two 5, and sentence 0 has 6:
    filled up with another sentence, the last batch has another width, and draws another dropout.
    """
    options = {"save_strategy": "steps", "save_steps": 16, "dropout": 0.3}
    for name, checkpoint in {"whole": None, "resumed": str(out.parent / "saved" / "checkpoint-16")}.items():
        trainer = make_trainer("wtc", folder=out.parent / "saved", tagging=True, world_size=2, **options)
        trainer.bias = make_bias("wtc", tagging=True, seed=3)
        trainer.train(resume_from_checkpoint=checkpoint)
        save(trainer, out.parent / name)


def train_on_a_rank(out: Path, method: str, task: str, accumulate: int) -> None:
    options = {"accumulate": accumulate if ACCUMULATES else 1, "world_size": int(os.environ["WORLD_SIZE"])}
    trainer = make_case(method, task, folder=out.parent / "unused", **options)
    trainer.train()
    assert not trainer.bias._memory._waiting, "every step is complete, the last one too"
    save(trainer, out)


def save(trainer: ActiveBiasTrainer, out: Path) -> None:
    torch.save(
        {
            "bias": trainer.bias.state_dict(),
            "model": trainer.accelerator.unwrap_model(trainer.model).state_dict(),
        },
        f"{out}.{trainer.args.process_index}",
    )


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for case in RANK_CASES:  # one after the other: to start takes far longer than to train
        train_on_a_rank(folder / f"{case[0]}-{case[1]}", *case)
    train_and_resume(folder / "resume")
    sys.stdout.flush()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit


if __name__ == "__main__":
    main()
