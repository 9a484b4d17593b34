"""Language models under the Trainer: the loss of the plain Trainer, word by word."""

import inspect

import pytest
import torch

import activebias as ab

pytest.importorskip("transformers", reason="not installed: pip install 'activebias[huggingface]'")
pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")

from accelerate.state import AcceleratorState
from transformers import GPT2LMHeadModel, Trainer
from transformers.trainer_pt_utils import LabelSmoother

from activebias.integrations.huggingface import ActiveBiasMixin, ActiveBiasTrainer
from language_run import (
    ACCUMULATES,
    NUM_TEXTS,
    VOCABULARY,
    bias_of,
    make_language_model,
    make_language_trainer,
    make_words,
    pad_texts,
    per_word,
    texts,
)
from scanned import AsScanned, assert_equal_weights

KINDS = ["gpt2", "llama", "bert", "t5"]


def plain(kind, tmp_path, **options):
    """Return the model that the plain Trainer trains in the bias's order."""
    trainer = make_language_trainer(kind, None, folder=tmp_path, **options)
    order = AsScanned(NUM_TEXTS)
    trainer._get_train_sampler = lambda train_dataset=None: order
    trainer.train()
    return trainer.model


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_scan_trains_like_the_plain_trainer(kind, accumulate, tmp_path):
    """With accumulation the mean is over the words of the whole step.

    BERT and T5 compute their losses themselves, as the mean of a part: accumulated, they train otherwise.
    """
    ours = make_language_trainer(kind, folder=tmp_path, accumulate=accumulate)
    ours.train()
    accumulate = accumulate if kind in ("gpt2", "llama") else 1
    assert_equal_weights(ours.model, plain(kind, tmp_path, accumulate=accumulate))


@pytest.mark.skipif(
    "num_items_in_batch" not in inspect.signature(LabelSmoother.__call__).parameters,
    reason="before 5.15 transformers smoothed without regard to the labels of the whole step",
)
@pytest.mark.parametrize("accumulate", [1, 4])
def test_label_smoothing_of_a_causal_model(accumulate, tmp_path):
    options = {"accumulate": accumulate, "label_smoothing_factor": 0.2}
    ours = make_language_trainer("llama", folder=tmp_path, **options)
    ours.train()
    assert_equal_weights(ours.model, plain("llama", tmp_path, **options))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_words_are_recorded_under_their_own_index(accumulate, tmp_path):
    """The first step of a causal model: p of every word given the words before it."""
    trainer = make_language_trainer("gpt2", "wtc", folder=tmp_path, max_steps=1, accumulate=accumulate)
    with torch.no_grad():
        expected = []
        for text in texts():
            probabilities = trainer.model(text["input_ids"].unsqueeze(0)).logits[0].softmax(-1)
            labels = text["labels"][1:]
            expected += [p[y].item() for p, y in zip(probabilities, labels, strict=False) if y != -100]
    trainer.train()
    values, valid = trainer.bias.history.values()
    visited = valid.sum(-1) == 2
    assert 0 < visited.sum() < len(visited)
    assert torch.allclose(values[visited, 1], torch.tensor(expected)[visited], atol=1e-5)


def test_dynamic_masking_keeps_the_history_of_a_word(tmp_path):
    """Numbered by their rank among the masked words, words would share histories."""
    trainer = make_language_trainer("bert", "wtc", folder=tmp_path, num_train_epochs=3)
    visits = {}
    collate = trainer.data_collator
    position = {tuple(text["input_ids"].tolist()): number for number, text in enumerate(texts())}
    assert len(position) == NUM_TEXTS

    def count(batch):
        padded = collate(batch)
        for sample, labels in zip(batch, padded["labels"], strict=True):
            for place in (labels != -100).nonzero().flatten().tolist():
                key = (position[tuple(sample["input_ids"].tolist())], place)
                visits[key] = visits.get(key, 0) + 1
        return padded

    trainer.data_collator = count
    trainer.bias = ab.ActiveBias("wtc", num_instances=trainer.bias.num_instances, num_classes=VOCABULARY)
    trainer.train()
    counts = trainer.bias.history.values()[1].sum(-1) - 1
    first = make_words("bert")._first
    expected = torch.zeros_like(counts)
    for (text, place), number in visits.items():
        expected[first[text] + place] = number
    assert torch.equal(counts, expected)
    assert len(set(counts.tolist())) > 2


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_resume_in_the_middle_of_an_epoch(kind, tmp_path):
    """Three steps are an epoch."""
    options = {"save_strategy": "steps", "save_steps": 2, "dropout": 0.1, "num_train_epochs": 2}
    if kind == "bert":
        options["options"] = {"data_collator": pad_texts}  # `MaskTexts` counts the epochs
    whole = make_language_trainer(kind, "wtc", folder=tmp_path, **options)
    whole.train()
    resumed = make_language_trainer(kind, "wtc", folder=tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert torch.equal(whole.bias.history.values()[0], resumed.bias.history.values()[0])


def test_padding_on_the_left(tmp_path):
    """A causal model is not trained to predict a text's first word from the padding."""
    options = {"data_collator": lambda batch: pad_texts(batch, left=True)}
    trainer = make_language_trainer("llama", "wtc", folder=tmp_path, num_train_epochs=1, options=options)
    trainer.train()
    assert (trainer.bias.history.values()[1].sum(-1) == 2).all()


def test_half_precision_is_that_of_the_plain_trainer(tmp_path, monkeypatch):
    # Older releases set it, and keep it for the trainers that follow.
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    trainer = make_language_trainer("gpt2", folder=tmp_path, bf16=True)
    trainer.train()
    theirs = plain("gpt2", tmp_path, bf16=True)
    AcceleratorState._reset_state()
    assert_equal_weights(trainer.model, theirs)
    assert trainer.bias.metrics()["share_unvisited"] == 0


class OwnCausal(GPT2LMHeadModel):
    pass


class WithAnotherLoss(GPT2LMHeadModel):
    def forward(self, **kwargs):
        outputs = super().forward(**kwargs)
        if outputs.loss is not None:
            outputs.loss = outputs.loss + 0.5
        return outputs


class OnlyLogits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return {"logits": self.model(input_ids, attention_mask=attention_mask).logits}


class WithLoss(OnlyLogits):
    """A model of one's own whose loss shifts, which its name does not say."""

    def forward(self, input_ids, attention_mask, labels=None):
        return dict(self.model(input_ids, attention_mask=attention_mask, labels=labels))


def with_model(trainer_folder, wrap, **options):
    model = wrap(make_language_model("gpt2"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    options = {"model": model, "optimizers": (optimizer, scheduler), **options}
    return make_language_trainer("gpt2", folder=trainer_folder, options=options, remove_unused_columns=False)


def test_a_subclass_of_a_causal_model_is_causal(tmp_path):
    trainer = with_model(tmp_path, lambda model: OwnCausal(model.config))
    assert trainer.shift_labels
    trainer.train()


def test_a_model_that_adds_to_the_cross_entropy_is_refused(tmp_path):
    def wrap(model):
        return WithAnotherLoss(model.config)

    with pytest.raises(ValueError, match="the model weighs the classes or adds another loss"):
        with_model(tmp_path, wrap).train()
    with_model(tmp_path, wrap, shift_labels=True).train()


def test_a_shift_that_the_name_does_not_tell_is_asked_for(tmp_path):
    with pytest.raises(ValueError, match="logits predict the next word; pass `shift_labels=True`"):
        with_model(tmp_path, WithLoss, token_index=make_words("t5"), bias=bias_of(make_words("t5"))).train()
    with_model(tmp_path, WithLoss, shift_labels=True).train()


def test_the_first_word_of_a_model_of_ones_own_does_not_count(tmp_path):
    """The Trainer counts it, but such a model divides by the number of words that it predicts."""
    ours = with_model(tmp_path, WithLoss, shift_labels=True, bias=bias_of(make_words("gpt2"), "scan"))
    ours.train()
    model = WithLoss(make_language_model("gpt2"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    options = {"model": model, "optimizers": (optimizer, scheduler)}
    assert_equal_weights(ours.model, plain("gpt2", tmp_path, options=options, remove_unused_columns=False))


def test_a_model_that_takes_no_labels_must_be_explained(tmp_path):
    words = make_words("t5")
    with pytest.raises(ValueError, match=r"OnlyLogits takes no labels, .* `shift_labels=False` for the word"):
        with_model(tmp_path, OnlyLogits, token_index=words, bias=bias_of(words)).train()
    with_model(tmp_path, OnlyLogits, shift_labels=True).train()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (lambda: ab.TokenIndex.from_dataset(texts()), "came with . labels, but its length is ."),
        (lambda: ab.TokenIndex([7] * NUM_TEXTS), "came with . labels, but its length is 7"),
        (lambda: ab.TokenIndex([2] * NUM_TEXTS, by_position=True), "label at its position ., but it has 2"),
    ],
)
def test_words_that_do_not_fit_are_refused(words, message, tmp_path):
    """Also by the loader's workers, before a batch reaches any device."""
    words = words()
    options = {"token_index": words, "bias": bias_of(words)}
    with pytest.raises(ValueError, match=rf"Sequence \d+ .*{message}.*`shift=True`"):
        make_language_trainer("gpt2", folder=tmp_path, options=options).train()


def test_a_loss_function_of_ones_own_is_weighed(tmp_path):
    own, ours = (
        make_language_trainer("llama", "wtc", folder=tmp_path, accumulate=2, options=options)
        for options in ({"compute_loss_func": per_word}, {})
    )
    own.train()
    ours.train()
    assert_equal_weights(own.model, ours.model)
    assert torch.allclose(own.bias.scores, ours.bias.scores, atol=1e-6)
    losses = [trainer.evaluate(texts())["eval_loss"] for trainer in (own, ours)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # the mean is without padding


@pytest.mark.parametrize("smooths", [False, True])
def test_a_seq2seq_model_is_evaluated_as_it_is_trained(smooths, tmp_path):
    """The Trainer takes the labels out, which the model would make its decoder's inputs of."""

    def per_label(outputs, labels, num_items_in_batch=None):
        logits = outputs["logits"].transpose(1, 2)
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")

    arguments = {"label_smoothing_factor": 0.1} if smooths else {"options": {"compute_loss_func": per_label}}
    trainer = make_language_trainer("t5", folder=tmp_path, **arguments)
    plain_trainer = make_language_trainer("t5", None, folder=tmp_path)
    loss, expected = (each.evaluate(texts())["eval_loss"] for each in (trainer, plain_trainer))
    assert loss == pytest.approx(expected, rel=0.05 if smooths else 1e-5)


def test_half_of_a_loss_of_ones_own(tmp_path):
    def half(outputs, labels, num_items_in_batch=None):
        return 0.5 * per_word(outputs, labels)[:, :-1]  # the last position predicts nothing

    trainer = make_language_trainer("llama", folder=tmp_path, options={"compute_loss_func": half})
    plain_trainer = make_language_trainer("llama", folder=tmp_path)
    assert trainer.train().training_loss < 0.55 * plain_trainer.train().training_loss


def test_a_loss_function_that_returns_a_mean_is_refused(tmp_path):
    def mean(outputs, labels, num_items_in_batch=None):
        return per_word(outputs, labels).mean()

    trainer = make_language_trainer("llama", folder=tmp_path, options={"compute_loss_func": mean})
    with pytest.raises(ValueError, match=r"one loss for every label, shape .* but got .*reduction='none'"):
        trainer.train()


def test_what_a_base_class_does_with_the_loss_is_kept_or_refused(tmp_path):
    class Halves(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return 0.5 * super().compute_loss(model, inputs, False, num_items_in_batch)

    class Another(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs).loss

    def trainer_of(base):
        trainer_class = type("Own", (ActiveBiasMixin, base), {})
        return make_language_trainer("llama", folder=tmp_path, max_steps=1, trainer_class=trainer_class)

    halved, whole = trainer_of(Halves).train(), trainer_of(Trainer).train()
    assert halved.training_loss == pytest.approx(0.5 * whole.training_loss, rel=1e-5)
    with pytest.raises(RuntimeError, match="its own loss, which cannot be weighed"):
        trainer_of(Another).train()


def test_a_loss_that_never_asks_the_bias_is_refused(tmp_path):
    class Own(ActiveBiasTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            inputs.pop("index")
            return model(**inputs).loss

    with pytest.raises(RuntimeError, match=r"`compute_loss` of Own must call `super\(\)\.compute_loss"):
        make_language_trainer("llama", folder=tmp_path, trainer_class=Own).train()


@pytest.mark.skipif(not ACCUMULATES, reason="it accumulates, which needs transformers 4.52")
def test_example_of_corrupted_answers(run_example):
    """After nine of its twenty epochs; an answer of random letters is right with a probability of 1e-5."""
    assert (
        run_example("language_model.py", "--methods", "wtc", "--epochs", "9", framework="huggingface") > 0.2
    )
