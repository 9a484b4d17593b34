"""The method `auto` under Hugging Face's Trainer: it learns from the evaluation set after every epoch."""

import warnings

import pytest
import torch

import activebias as ab
from activebias import learning

pytest.importorskip("transformers", reason="not installed: pip install 'activebias[huggingface]'")
pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")

from torch.utils.data import IterableDataset

from activebias.integrations.huggingface.learning import evaluation_set
from huggingface_run import collate, make_bias, make_model, make_tokens, make_trainer, samples
from language_run import STEP_SIZE, make_language_trainer, texts


@pytest.fixture(autouse=True)
def learning_in_every_epoch(monkeypatch):
    """On 50 samples it would learn in every hundredth epoch only."""
    monkeypatch.setattr(learning, "PART", 100.0)


def curve(trainer):
    return trainer.bias._memory.curve


@pytest.mark.parametrize("tagging", [False, True])
def test_same_as_a_plain_loop_that_learns(tagging, tmp_path):
    trainer = make_trainer("auto", folder=tmp_path, tagging=tagging)
    trainer.train()
    bias, model, tokens = make_bias("auto", tagging), make_model(tagging), make_tokens()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [{key: value for key, value in sample.items() if key != "text"} for sample in samples(tagging)]
    options = {"num_sequences": len(data)} if tagging else {}
    loader = bias.loader(data, STEP_SIZE, collate_fn=collate, **options)
    for epoch in range(3):
        bias.set_epoch(epoch)
        for batch in loader:
            index, labels = batch.pop("index"), batch.pop("labels")
            index = tokens.of_labels(index, labels) if tagging else index
            loss = bias.loss(model(**batch).logits, labels, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        bias.learn(model, loader, torch.utils.data.DataLoader(list(data), STEP_SIZE, collate_fn=collate),
                   tokens=tokens if tagging else None)  # fmt: skip
    assert curve(trainer).num_learnt == bias._memory.curve.num_learnt == learning.FIRST_ROUNDS + 2
    torch.testing.assert_close(trainer.bias.curve(), bias.curve(), rtol=1e-3, atol=1e-4)
    assert trainer.bias.weights().std() > 0.001


@pytest.mark.parametrize(("method", "step"), [("auto", 4), ("auto", 7), ("sauto", 10)])
def test_resume_gives_the_same_bits(method, step, tmp_path):
    """Seven steps are an epoch: the checkpoint of its last step holds what was learnt after it."""
    options = {"save_strategy": "steps", "save_steps": step, "dropout": 0.1}
    whole = make_trainer(method, folder=tmp_path, **options)
    whole.train()
    resumed = make_trainer(method, folder=tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert curve(resumed).num_learnt == curve(whole).num_learnt > learning.FIRST_ROUNDS
    assert torch.equal(whole.bias.curve()[1], resumed.bias.curve()[1])
    assert torch.equal(whole.bias.weights(), resumed.bias.weights())
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


@pytest.mark.parametrize("kind", ["gpt2", "bert", "t5"])
def test_language_models_learn(kind, tmp_path):
    """BERT's words are numbered by position, and its collator makes the labels."""
    trainer = make_language_trainer(kind, "auto", folder=tmp_path, options={"eval_dataset": texts()})
    seen = []
    trainer.model.register_forward_pre_hook(
        lambda module, args, inputs: seen.append(module.training), with_kwargs=True
    )
    trainer.train()
    assert curve(trainer).num_learnt == learning.FIRST_ROUNDS + 1
    assert False in seen
    assert trainer.model.training


def test_causal_models_align_words_with_their_predictions(tmp_path):
    """The loss of a word that a causal model learns from is the loss that its history has."""
    trainer = make_language_trainer(
        "gpt2", "auto", folder=tmp_path, options={"eval_dataset": texts()}, max_steps=3
    )
    trainer.lr_scheduler.base_lrs[:], trainer.optimizer.param_groups[0]["lr"] = [0.0], 0.0  # nothing moves
    found = {}

    def keep(bias, sources):
        losses, words = sources.training(torch.arange(sources.num_training))
        found.update(zip(words[words >= 0].tolist(), losses[words >= 0].detach().neg().exp(), strict=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("activebias.integrations.huggingface.learning.learn_from", keep)
        trainer.train()
    assert len(found) == trainer.bias.num_instances
    values, _ = trainer.bias.history.values()
    for word, prob in found.items():
        assert float(values[word, 1]) == pytest.approx(float(prob), rel=1e-4)


def test_one_of_several_evaluation_sets(tmp_path):
    trainer = make_trainer("auto", folder=tmp_path, num_train_epochs=1)
    trainer.eval_dataset = {"valid": samples(False)[:10], "test": samples(False)}
    with pytest.raises(ValueError, match=r"has 'valid', 'test': say which one, `learn_from='valid'`"):
        trainer.train()
    trainer.learn_from = "vald"
    with pytest.raises(ValueError, match=r"name one of the sets .*'valid', 'test'.* but got 'vald'"):
        trainer.train()
    trainer.learn_from = "valid"
    trainer.train()
    assert curve(trainer).num_learnt == learning.FIRST_ROUNDS


class Stream(IterableDataset):
    def __iter__(self):
        yield from samples(False)


def test_data_that_it_cannot_learn_from_is_refused_at_the_start(tmp_path):
    trainer = make_trainer("auto", folder=tmp_path)
    trainer.eval_dataset = Stream()
    with pytest.raises(TypeError, match="map-style data set, but got Stream"):
        trainer.train()
    assert trainer.state.global_step == 0
    trainer.is_fsdp_enabled = True
    with pytest.raises(NotImplementedError, match="needs whole parameters, but FSDP"):
        evaluation_set(trainer)


def test_without_an_evaluation_set_it_is_wtc_and_says_so(tmp_path):
    trainer = make_trainer("auto", folder=tmp_path)
    trainer.eval_dataset = None
    with pytest.warns(UserWarning, match="emphasises by the rule"):
        trainer.train()
    assert curve(trainer).num_learnt == 0


def test_other_methods_do_not_look_at_the_evaluation_set(tmp_path):
    trainer = make_trainer("wtc", folder=tmp_path, num_train_epochs=1)
    trainer.eval_dataset = {"valid": Stream(), "test": Stream()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trainer.train()
    assert isinstance(trainer.bias, ab.ActiveBias)


def test_labels_of_another_name_and_an_indexed_evaluation_set(tmp_path):
    def renamed(batch):
        collated = collate(batch)
        return {"input_ids": collated["input_ids"], "label_ids": collated["labels"]}

    trainer = make_trainer("auto", folder=tmp_path, num_train_epochs=1)
    trainer.data_collator, trainer.label_names = renamed, ["label_ids"]
    trainer._loss_is_checked = True
    trainer.eval_dataset = ab.with_index(samples(False))
    trainer.train()
    assert curve(trainer).num_learnt == learning.FIRST_ROUNDS
