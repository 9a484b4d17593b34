"""TRL's SFTTrainer and PEFT's adapters by the mixin. No extra has them: install trl and peft to run this."""

from functools import partial

import pytest
import torch

import activebias as ab

pytest.importorskip("trl", reason="not installed: pip install trl peft")
pytest.importorskip("peft", reason="not installed: pip install trl peft")

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForSequenceClassification, PreTrainedTokenizerFast
from trl import RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

from activebias.integrations.huggingface import ActiveBiasMixin
from language_run import NUM_TEXTS, VOCABULARY, make_language_model, texts
from scanned import AsScanned

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and its dependencies warn of their own plans


class Tuner(ActiveBiasMixin, SFTTrainer):
    pass


class RewardTuner(ActiveBiasMixin, RewardTrainer):
    pass


def tokenizer():
    vocabulary = {"<pad>": 0, **{str(number): number for number in range(1, 10)}, "<eos>": 10}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def words_of(text, part):
    return " ".join(map(str, text["input_ids"][part].tolist()))


def dataset(kind: str) -> Dataset:
    if kind == "text":
        return Dataset.from_list([{"text": words_of(text, slice(None))} for text in texts()])
    return Dataset.from_list(
        [
            {"prompt": words_of(text, slice(1)), "completion": " " + words_of(text, slice(1, None))}
            for text in texts()
        ]
    )


def make_tuner(method, folder, kind="text", accumulate=4, **options):
    model = make_language_model("llama")
    arguments = {
        "output_dir": str(folder),
        "num_train_epochs": 2,
        "per_device_train_batch_size": 8 // accumulate,
        "gradient_accumulation_steps": accumulate,
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "gradient_checkpointing": False,
        **options.pop("arguments", {}),
    }
    if method is not None:
        options["bias"] = partial(ab.ActiveBias, method, num_classes=VOCABULARY)
    return (SFTTrainer if method is None else Tuner)(
        model=model,
        args=SFTConfig(**arguments),
        train_dataset=dataset(kind),
        processing_class=tokenizer(),
        **options,
    )


def train_both(folder, **options):
    """Return the weights after the plain SFTTrainer and after ours, in one order."""
    torch.manual_seed(0)
    ours = make_tuner("scan", folder, **options)
    ours.train()
    torch.manual_seed(0)
    plain = make_tuner(None, folder, **options)
    order = AsScanned(len(plain.train_dataset))
    plain._get_train_sampler = lambda train_dataset=None: order
    plain.train()
    return plain.model.state_dict(), ours.model.state_dict()


@pytest.mark.parametrize("kind", ["text", "completions"])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_scan_trains_like_the_plain_trainer(kind, accumulate, tmp_path):
    plain, ours = train_both(tmp_path, kind=kind, accumulate=accumulate)
    for name, value in plain.items():
        assert torch.allclose(ours[name], value, atol=1e-5), name


def test_lora_trains_like_the_plain_trainer(tmp_path):
    config = LoraConfig(r=2, lora_alpha=4, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    plain, ours = train_both(tmp_path, peft_config=config, arguments={"seed": 0})
    assert any("lora" in name for name in plain)
    for name, value in plain.items():
        assert torch.allclose(ours[name], value, atol=1e-5), name
    assert any(value.abs().sum() > 0 for name, value in ours.items() if "lora_B" in name)


def test_rows_of_a_fixed_length(tmp_path):
    arguments = {"packing": True, "packing_strategy": "wrapped", "max_length": 8}
    plain, ours = train_both(tmp_path, accumulate=2, arguments=arguments)
    for name, value in plain.items():
        assert torch.allclose(ours[name], value, atol=1e-5), name


WITHOUT_PADDING = {
    "packed": {"packing": True, "max_length": 14},
    "padding-free": {"padding_free": True, "max_length": None},
}


@pytest.mark.parametrize("kind", ["text", "completions"])
@pytest.mark.parametrize("arguments", WITHOUT_PADDING.values(), ids=WITHOUT_PADDING)
@pytest.mark.parametrize("accumulate", [1, 4])
def test_rows_without_padding(kind, arguments, accumulate, tmp_path):
    plain, ours = train_both(tmp_path, kind=kind, accumulate=accumulate, arguments=arguments)
    for name, value in plain.items():
        assert torch.allclose(ours[name], value, atol=1e-5), name


@pytest.mark.parametrize("accumulate", [1, 2])
def test_words_without_padding_have_the_histories_of_padded_words(accumulate, tmp_path):
    """Under `wtc` weights and histories tell which word is which."""
    padded = make_tuner("wtc", tmp_path, "completions", accumulate, arguments={"max_length": None})
    free = make_tuner("wtc", tmp_path, "completions", accumulate, arguments=WITHOUT_PADDING["padding-free"])
    for trainer in (padded, free):
        trainer.train()
    for mine, expected in zip(free.bias.history.values(), padded.bias.history.values(), strict=True):
        assert torch.allclose(mine, expected, atol=1e-5)
    for name, value in padded.model.state_dict().items():
        assert torch.allclose(free.model.state_dict()[name], value, atol=1e-5), name


def test_every_word_of_a_packed_text_is_an_instance(tmp_path):
    trainer = make_tuner("wtc", tmp_path, arguments=WITHOUT_PADDING["packed"])
    assert len(trainer.train_dataset) < NUM_TEXTS
    trainer.train()
    assert trainer.bias.num_instances == sum(len(text["input_ids"]) for text in texts())  # + end - first
    assert trainer.bias.metrics()["share_unvisited"] == 0


def test_every_word_of_a_completion_is_an_instance(tmp_path):
    trainer = make_tuner("wtc", tmp_path, "completions")
    trainer.train()
    num_words = sum(len(text["input_ids"]) - 1 for text in texts())
    assert trainer.bias.num_instances == num_words + NUM_TEXTS  # and the end of every text
    assert trainer.bias.metrics()["share_unvisited"] == 0


def test_resume_with_an_adapter(tmp_path):
    config = LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.1)
    arguments = {"save_strategy": "steps", "save_steps": 2}
    options = {"peft_config": config, "arguments": arguments}
    torch.manual_seed(0)
    whole = make_tuner("wtc", tmp_path, **options)
    whole.train()
    resumed = make_tuner("wtc", tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert torch.allclose(whole.bias.scores, resumed.bias.scores, atol=1e-6)


def test_losses_of_trl_that_cannot_be_weighed_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`loss_type` to be 'nll', which the bias weighs, but got 'dft'"):
        make_tuner("wtc", tmp_path, arguments={"loss_type": "dft"})


def test_rewards_are_refused(tmp_path):
    """They have no labels: what is learned is which of two texts is better."""
    data = Dataset.from_list([{"chosen": "1 2 3", "rejected": "1 2 4"}] * 4)
    arguments = {"output_dir": str(tmp_path), "report_to": "none", "use_cpu": True, "bf16": False}
    config = make_language_model("llama").config
    config.num_labels = 1
    trainer = RewardTuner(
        model=LlamaForSequenceClassification(config),
        args=RewardConfig(**arguments, disable_tqdm=True, gradient_checkpointing=False),
        train_dataset=data,
        processing_class=tokenizer(),
        bias=ab.ActiveBias("wtc", num_instances=4, num_classes=2),
    )
    with pytest.raises(ValueError, match=r"found none among .*without labels \(rewards, preferences\)"):
        trainer.train()
