"""Texts of a batch in one row without padding, under the Trainer: every word keeps its history."""

import pytest
import torch

pytest.importorskip("transformers", reason="not installed: pip install 'activebias[huggingface]'")
pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")

import activebias as ab
from language_run import (
    KEEPS_TEXTS_APART,
    bias_of,
    flatten_texts,
    make_language_trainer,
    pad_texts,
    per_word,
    texts,
)
from scanned import assert_equal_weights


def flatten(batch):
    """Put the texts of a batch into one row; transformers' collator also takes the first labels away."""
    row = {key: torch.cat([sample[key] for sample in batch]).unsqueeze(0) for key in batch[0]}
    return {**row, "position_ids": torch.cat([torch.arange(len(text["input_ids"])) for text in batch])[None]}


needs_texts_apart = pytest.mark.skipif(
    not KEEPS_TEXTS_APART, reason="before 4.53 transformers mixes the texts of a row without padding"
)


@needs_texts_apart
@pytest.mark.parametrize("collate", [flatten_texts, flatten], ids=["transformers", "own"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_texts_without_padding_train_like_padded_ones(collate, accumulate, tmp_path):
    """Under `wtc` the history of every word shows in the weights of the model."""
    padded, free = (
        make_language_trainer("llama", "wtc", folder=tmp_path, accumulate=accumulate, options=options)
        for options in ({}, {"data_collator": collate})
    )
    padded.train()
    free.train()
    assert_equal_weights(free.model, padded.model)
    assert torch.allclose(free.bias.scores, padded.bias.scores, atol=1e-6)


@needs_texts_apart
def test_the_label_smoothing_of_texts_without_padding(tmp_path):
    options = {"accumulate": 2, "label_smoothing_factor": 0.2}
    padded, free = (
        make_language_trainer("llama", "wtc", folder=tmp_path, options=more, **options)
        for more in ({}, {"data_collator": flatten})
    )
    padded.train()
    free.train()
    assert_equal_weights(free.model, padded.model)


@needs_texts_apart
def test_a_loss_of_ones_own_of_texts_without_padding(tmp_path):
    padded, free = (
        make_language_trainer(
            "llama", "wtc", folder=tmp_path, options={"compute_loss_func": per_word, **options}
        )
        for options in ({}, {"data_collator": flatten})
    )
    padded.train()
    free.train()
    assert_equal_weights(free.model, padded.model)


def test_rows_that_fit_no_sequences_are_refused(tmp_path):
    def halve(batch):
        return {name: value[:4] for name, value in pad_texts(batch).items()}

    trainer = make_language_trainer("gpt2", folder=tmp_path, options={"data_collator": halve})
    with pytest.raises(ValueError, match=r"8 sequences of \d+ words came as labels of shape \(4, "):
        trainer.train()


@pytest.mark.parametrize("end", [[9], [9, 9], -1])
def test_a_row_of_texts_that_the_collator_changes_is_refused(end, tmp_path):
    """The row has enough labels, but not where the words are looked for."""

    def change(batch):
        if end == -1:
            row = flatten([{key: value[:-1] for key, value in sample.items()} for sample in batch])
            return {key: torch.cat([value, value[:, :9]], 1) for key, value in row.items()}
        return flatten([{k: torch.cat([v, torch.tensor(end)]) for k, v in each.items()} for each in batch])

    dataset = [{**text, "labels": text["input_ids"]} for text in texts()]
    words = ab.TokenIndex.from_dataset(dataset, shift=True)
    options = {"train_dataset": dataset, "token_index": words, "bias": bias_of(words)}
    trainer = make_language_trainer("llama", folder=tmp_path, options={**options, "data_collator": change})
    with pytest.raises(ValueError, match="each as long as its `input_ids` in the data set, but 8 sequences"):
        trainer.train()
