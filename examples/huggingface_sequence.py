"""Hugging Face's Trainer: a small transformer reads a digit row by row, as a sentence of eight words.

Nothing is downloaded: the transformer starts with random weights. `torchrun --nproc-per-node 2` trains it on
two processes.
"""

import argparse
import os
import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

import activebias as ab
import digits
from activebias.integrations.huggingface import ActiveBiasTrainer

HIDDEN_SIZE = 64


def samples(which: torch.Tensor) -> list[dict]:
    """Return every row of pixels as a word, whose embedding is a fixed random projection."""
    projection = torch.randn(8, HIDDEN_SIZE, generator=torch.Generator().manual_seed(0))
    words = digits.IMAGES[which].view(-1, 8, 8) @ projection
    return [
        {"inputs_embeds": embeddings, "labels": int(label)}
        for embeddings, label in zip(words, digits.LABELS[which], strict=True)
    ]


def main(method: str, accumulate: int, epochs: int) -> float:
    torch.set_num_threads(1)
    set_seed(0)
    config = BertConfig(
        vocab_size=1,  # unused: the words come as embeddings
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=8,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=digits.NUM_CLASSES,
    )
    train, test = samples(digits.TRAIN), samples(digits.TEST)
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    with tempfile.TemporaryDirectory() as folder:
        trainer = ActiveBiasTrainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=digits.BATCH_SIZE // (world_size * accumulate),
                gradient_accumulation_steps=accumulate,
                learning_rate=3e-3,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=train,
            eval_dataset=test,
            bias=ab.ActiveBias(
                method, num_instances=len(train), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
            ),
            compute_metrics=lambda result: {
                "accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())
            },
        )
        trainer.train()
        accuracy = trainer.evaluate()["eval_accuracy"]
    if trainer.is_world_process_zero():
        digits.report(accuracy)
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="wtc", help="scan is the same without Active Bias")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2 * digits.EPOCHS)
    arguments = parser.parse_args()
    main(arguments.method, arguments.accumulate, arguments.epochs)
    sys.stdout.flush()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit, after correct results
