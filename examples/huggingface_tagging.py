"""Hugging Face's Trainer on token classification: every word with a label is an instance of its own.

The sentences are made up: a word's tag depends on this word and the word before it, and one tag in ten is
wrong. As with a tokeniser, long words come in two parts, and only the first part has a label.
"""

import argparse
import os
import random
import sys
import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertForTokenClassification, TrainingArguments, set_seed

import activebias as ab
from activebias.integrations.huggingface import ActiveBiasTrainer
from digits import report

NUM_WORDS, NUM_TAGS, SECOND_PART, PADDING = 20, 4, 20, 21


def sentences(number: int, seed: int, noise: float) -> list[dict]:
    """Return made-up sentences of 3 to 12 words."""
    rng = random.Random(seed)
    made = []
    for _ in range(number):
        pieces, labels, before = [], [], 0
        for _ in range(rng.randint(3, 12)):
            word = rng.randrange(NUM_WORDS)
            tag = (word // 5 + (before >= 10)) % NUM_TAGS
            pieces.append(word)
            labels.append(rng.randrange(NUM_TAGS) if rng.random() < noise else tag)
            if word % 7 == 0:
                pieces.append(SECOND_PART)
                labels.append(-100)
            before = word
        made.append({"input_ids": pieces, "labels": labels})
    return made


def collate(samples: list[dict]) -> dict[str, torch.Tensor]:
    words = [torch.tensor(sample["input_ids"]) for sample in samples]
    labels = [torch.tensor(sample["labels"]) for sample in samples]
    input_ids = pad_sequence(words, batch_first=True, padding_value=PADDING)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != PADDING).long(),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
    }


def accuracy(result) -> dict[str, float]:
    labelled = result.label_ids != -100
    return {"accuracy": float((result.predictions.argmax(-1) == result.label_ids)[labelled].mean())}


def main(method: str, epochs: int) -> float:
    torch.set_num_threads(1)
    set_seed(0)
    train, test = sentences(1000, seed=0, noise=0.1), sentences(200, seed=1, noise=0.0)
    tokens = ab.TokenIndex(sum(label != -100 for label in sample["labels"]) for sample in train)
    config = BertConfig(
        vocab_size=22,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        num_labels=NUM_TAGS,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = ActiveBiasTrainer(
            model=BertForTokenClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=16 // int(os.environ.get("WORLD_SIZE", 1)),
                learning_rate=5e-3,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=train,
            eval_dataset=test,
            data_collator=collate,
            compute_metrics=accuracy,
            bias=ab.ActiveBias(
                method, num_instances=tokens.num_instances, num_classes=NUM_TAGS, burn_in=1, window=5
            ),
            token_index=tokens,
        )
        trainer.train()
        result = trainer.evaluate()["eval_accuracy"]
    if trainer.is_world_process_zero():
        report(result)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="wtc", help="scan is the same without Active Bias")
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    main(arguments.method, arguments.epochs)
    sys.stdout.flush()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit, after correct results
