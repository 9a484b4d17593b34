"""TRL's SFTTrainer with the mixin: packed rows, completions only, LoRA. Needs `pip install trl peft`.

A prompt has five letters, the completion is the same letters in reverse. A small Llama with random weights
trains on packed rows. Then an adapter (LoRA) of it trains on partly wrong completions. Every word of a
completion is an instance with a history of its own.
"""

import tempfile
from functools import partial

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import SFTConfig, SFTTrainer

import activebias as ab
from activebias.integrations.huggingface import ActiveBiasMixin

LETTERS, LENGTH, NUM_TEXTS = "abcdefgh", 5, 400
WORDS = ["<pad>", "<eos>", "=", *LETTERS]


class Tuner(ActiveBiasMixin, SFTTrainer):
    """SFTTrainer with Active Bias."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def make_texts(corrupted: float, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    texts = []
    for _ in range(NUM_TEXTS):
        prompt, other = torch.randint(len(LETTERS), (2, LENGTH), generator=generator)
        answer = other if torch.rand((), generator=generator) < corrupted else prompt.flip(0)
        prompt, answer = (" ".join(LETTERS[i] for i in part) for part in (prompt, answer))
        texts.append({"prompt": f"{prompt} =", "completion": f" {answer}"})
    return Dataset.from_list(texts)


def tune(model, tokenizer, texts: Dataset, epochs: int, folder: str, **options):
    config = SFTConfig(
        output_dir=folder,
        num_train_epochs=epochs,
        packing=True,
        max_length=48,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
    )
    # The Trainer prepares and packs the texts, so it gets a function that makes the bias.
    make_bias = partial(ab.ActiveBias, "wtc", num_classes=len(WORDS), burn_in=2, window=2, storage="float16")
    trainer = Tuner(
        model=model,
        args=config,
        train_dataset=texts,
        processing_class=tokenizer,
        bias=make_bias,
        **options,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print(f"{len(trainer.train_dataset)} packed rows, {trainer.bias}")
    return trainer.model


@torch.no_grad()
def accuracy(model, tokenizer) -> float:
    """Return the share of right letters in the completions of new prompts."""
    texts = make_texts(0.0, seed=1)
    words = tokenizer([text["prompt"] + text["completion"] for text in texts], return_tensors="pt").input_ids
    predicted = model.eval()(words).logits[:, LENGTH:-1].argmax(-1)
    return (predicted == words[:, LENGTH + 1 :]).float().mean().item()


def main() -> float:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        model = tune(LlamaForCausalLM(config), tokenizer, make_texts(0.0, seed=0), 12, folder)
        print(f"trained whole: {100 * accuracy(model, tokenizer):.1f} % of the letters are right")
        adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
        model = tune(model, tokenizer, make_texts(0.4, seed=2), 4, folder, peft_config=adapter)
    return accuracy(model, tokenizer)


if __name__ == "__main__":
    print(f"after LoRA on corrupted completions: {100 * main():.1f} % of the letters are right")
