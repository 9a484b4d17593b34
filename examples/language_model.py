"""A small causal language model under Hugging Face's Trainer, trained on partly wrong answers.

A text is a prompt of letters and an answer: the same letters in reverse. In training most answers are random
letters. Every word of an answer is an instance. `dft` (Dynamic Fine-Tuning) weighs a word by its present
probability. It is a `compute_loss_func` under `scan`, and begins after the burn-in, as the methods do.

    python examples/language_model.py --seeds 5
"""

import argparse
import tempfile
from functools import partial

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, TrainingArguments

import activebias as ab
from activebias.integrations.huggingface import ActiveBiasTrainer

LETTERS, LENGTH = 10, 5
EQUALS = LETTERS  # the word between prompt and answer
NUM_TRAIN, NUM_TEST = 500, 500


def make_texts(number: int, corrupted: float, generator: torch.Generator) -> torch.Tensor:
    prompts = torch.randint(LETTERS, (number, LENGTH), generator=generator)
    answers = prompts.flip(-1)
    is_corrupted = torch.rand(number, generator=generator) < corrupted
    answers[is_corrupted] = torch.randint(LETTERS, (int(is_corrupted.sum()), LENGTH), generator=generator)
    return torch.cat([prompts, torch.full((number, 1), EQUALS), answers], dim=1)


def make_model(seed: int) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=LETTERS + 1,
        n_positions=2 * LENGTH + 1,
        n_embd=64,
        n_layer=2,
        n_head=4,
        bos_token_id=EQUALS,
        eos_token_id=EQUALS,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def dft_loss(bias: ab.ActiveBias, outputs, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
    """Return p · loss of every word, with p as a constant; in the burn-in the loss alone."""
    targets = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    losses = torch.nn.functional.cross_entropy(outputs.logits.transpose(1, 2), targets, reduction="none")
    return losses if bias.epoch < bias.burn_in else torch.exp(-losses.detach()) * losses


@torch.no_grad()
def accuracy(model: GPT2LMHeadModel, texts: torch.Tensor) -> float:
    """Return the share of test prompts whose answer is right in every letter, given the letters before it."""
    model.eval()
    predicted = model(texts).logits[:, LENGTH:-1].argmax(-1)
    return (predicted == texts[:, LENGTH + 1 :]).all(-1).float().mean().item()


def train(name: str, seed: int, arguments: argparse.Namespace) -> float:
    generator = torch.Generator().manual_seed(seed)
    texts = make_texts(NUM_TRAIN, arguments.corrupted, generator)
    test = make_texts(NUM_TEST, 0.0, generator)
    labels = texts.masked_fill(torch.arange(texts.shape[1]) <= LENGTH, -100)
    model = make_model(seed)
    dataset = [{"input_ids": words, "labels": targets} for words, targets in zip(texts, labels, strict=True)]
    tokens = ab.TokenIndex.from_dataset(dataset, shift=True)
    bias = ab.ActiveBias(
        "scan" if name == "dft" else name,
        num_instances=tokens.num_instances,
        num_classes=LETTERS + 1,
        burn_in=arguments.burn_in,
        window=5,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = ActiveBiasTrainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=arguments.epochs,
                per_device_train_batch_size=16,
                gradient_accumulation_steps=2,
                learning_rate=3e-3,
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=dataset,
            token_index=tokens,
            bias=bias,
            compute_loss_func=partial(dft_loss, bias) if name == "dft" else None,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return accuracy(model, test)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--methods", nargs="+", default=["scan", "dft", "wtc"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--burn-in", type=int, default=5)
    parser.add_argument("--corrupted", type=float, default=0.6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    accuracies = {}
    for name in arguments.methods:
        values = torch.tensor([train(name, seed, arguments) for seed in range(arguments.seeds)])
        accuracies[name] = values
        error = f" ± {100 * values.std() / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
        print(f"{name}: {100 * values.mean():.1f}{error} % of the answers are right", flush=True)
    print(f"final accuracy: {accuracies[arguments.methods[-1]].mean():.4f}")


if __name__ == "__main__":
    main()
