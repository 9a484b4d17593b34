"""Small language models under Hugging Face's Trainer: causal, masked, and with an encoder."""

from collections import Counter
from pathlib import Path

import pytest
import torch
import transformers
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorWithFlattening,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
)

import activebias as ab
from activebias.integrations.huggingface import ActiveBiasTrainer

VOCABULARY, NUM_TEXTS, STEP_SIZE = 11, 22, 8  # the last step of an epoch has six texts
MASK = 10
VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))
KEEPS_TEXTS_APART = VERSION >= (4, 53)  # before, words of a row without padding attend to earlier texts
ACCUMULATES = VERSION >= (4, 52)  # before, steps are miscounted, and the adapter refuses


def texts() -> list[dict[str, torch.Tensor]]:
    """Return texts of 3 to 7 words whose first words, a prompt, have no labels."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for number in range(NUM_TEXTS):
        words = torch.randint(1, 10, (3 + number % 5,), generator=generator)
        prompt = torch.arange(len(words)) < number % 3
        made.append({"input_ids": words, "labels": words.masked_fill(prompt, -100)})
    return made


def pad_texts(batch: list[dict], *, left: bool = False) -> dict[str, torch.Tensor]:
    side = "left" if left else "right"
    words = [sample["input_ids"] for sample in batch]
    return {
        "input_ids": pad_sequence(words, batch_first=True, padding_side=side),
        "attention_mask": pad_sequence([torch.ones_like(text) for text in words], True, 0, side),
        "labels": pad_sequence([sample["labels"] for sample in batch], True, -100, side),
    }


def flatten_texts(batch: list[dict]) -> dict[str, torch.Tensor]:
    """Put the texts of a batch into one row, as transformers does it."""
    lists = [{name: value.tolist() for name, value in sample.items()} for sample in batch]
    return DataCollatorWithFlattening()(lists)


class MaskTexts:
    """Masks other words of a text in every epoch, as transformers' collator does, but by the text alone."""

    def __init__(self) -> None:
        self._visits: Counter[tuple[int, ...]] = Counter()

    def _chosen(self, words: torch.Tensor) -> torch.Tensor:
        text = tuple(words.tolist())
        self._visits[text] += 1
        generator = torch.Generator().manual_seed(hash((*text, self._visits[text])) % 2**31)
        chosen = torch.rand(len(words), generator=generator) < 0.5
        return chosen if chosen.any() else ~chosen

    def __call__(self, batch: list[dict]) -> dict[str, torch.Tensor]:
        masked = []
        for sample in batch:
            words = sample["input_ids"]
            chosen = self._chosen(words)
            masked.append(
                {"input_ids": words.masked_fill(chosen, MASK), "labels": words.masked_fill(~chosen, -100)}
            )
        return pad_texts(masked)


def make_language_model(kind: str, dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY, n_positions=16, n_embd=8, n_layer=1, n_head=2, initializer_range=0.3,
                resid_pdrop=dropout, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1,
            )
        )  # fmt: skip
    if kind == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                intermediate_size=8, max_position_embeddings=16, initializer_range=0.3, pad_token_id=0,
            )
        )  # fmt: skip
    if kind == "bert":
        return BertForMaskedLM(
            BertConfig(
                vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                intermediate_size=8, max_position_embeddings=16, initializer_range=0.3,
                hidden_dropout_prob=dropout, attention_probs_dropout_prob=0.0,
            )
        )  # fmt: skip
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, dropout_rate=dropout,
            decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def make_words(kind: str) -> ab.TokenIndex:
    if kind == "bert":
        return ab.TokenIndex.from_dataset(texts(), "input_ids", by_position=True)
    return ab.TokenIndex.from_dataset(texts(), shift=kind in ("gpt2", "llama"))


def training_arguments(
    folder: Path, num_epochs: int, accumulate: int, world_size: int, **arguments
) -> TrainingArguments:
    """Return arguments of a small run on a CPU whose optimiser steps take `STEP_SIZE` samples."""
    if accumulate > 1 and not ACCUMULATES:
        pytest.skip("before 4.52 transformers miscounts steps with gradient accumulation")
    usual = {
        "output_dir": str(folder),
        "num_train_epochs": num_epochs,
        "per_device_train_batch_size": STEP_SIZE // (accumulate * world_size),
        "gradient_accumulation_steps": accumulate,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**usual, **arguments})


def make_language_trainer(
    kind: str,
    method: str | None = "scan",
    *,
    folder: Path,
    accumulate: int = 1,
    world_size: int = 1,
    dropout: float = 0.0,
    trainer_class: type = ActiveBiasTrainer,
    options: dict | None = None,
    **arguments,
) -> Trainer:
    """Return a trainer of one kind of model; with `method=None` the plain Trainer."""
    model = make_language_model(kind, dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ours = {}
    if method is not None:
        words = make_words(kind)
        ours["token_index"] = words
        ours["bias"] = ab.ActiveBias(
            method, num_instances=words.num_instances, num_classes=VOCABULARY, window=2
        )
    return (Trainer if method is None else trainer_class)(
        args=training_arguments(folder, 2, accumulate, world_size, **arguments),
        **{
            "model": model,
            "train_dataset": texts(),
            "data_collator": MaskTexts() if kind == "bert" else pad_texts,
            "optimizers": (optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
            **ours,
            **(options or {}),
        },
    )


def bias_of(words, method="wtc"):
    """Return a bias of the words."""
    return ab.ActiveBias(method, num_instances=words.num_instances, num_classes=VOCABULARY)


def per_word(outputs, labels, num_items_in_batch=None):
    """Return the loss of every word of a causal model, as a `compute_loss_func` of the user's own."""
    targets = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    return torch.nn.functional.cross_entropy(outputs["logits"].transpose(1, 2), targets, reduction="none")
