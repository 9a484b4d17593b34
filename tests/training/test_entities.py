"""Entities are counted as seqeval counts them, on valid and invalid sequences."""

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from activebias.training.entities import EntityScore, EntityScorer

TYPES = ("PER", "LOC", "A-B", "MISC")
SCHEMES = {
    "BIO": ["O", *(f"{letter}-{kind}" for kind in TYPES for letter in "BI")],
    "BIOES": ["O", *(f"{letter}-{kind}" for kind in TYPES for letter in "BIES")],
    "BILOU": ["O", *(f"{letter}-{kind}" for kind in TYPES for letter in "BILU")],
}
CONLL = ["O", *(f"{letter}-{kind}" for kind in ("PER", "LOC", "ORG", "MISC") for letter in "BILU")]


def as_seqeval(tag: str) -> str:
    return {"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:]


def entities_of(sentence):
    names = sorted(set(sentence))
    return EntityScorer(names).entities([names.index(tag) for tag in sentence])


def random_sentences(tags, rng, number):
    # Few tags a sentence, so that the same type meets itself often.
    for _ in range(number):
        some = rng.choice(len(tags), size=rng.integers(1, 6))
        yield [tags[k] for k in rng.choice(some, size=rng.integers(1, 15))]


def valid_sentence(rng, length):
    sentence = []
    while len(sentence) < length:
        kind, size = rng.choice(TYPES), int(rng.integers(0, 4))
        if size == 0:
            sentence.append("O")
        elif size == 1:
            sentence.append(f"U-{kind}")
        else:
            sentence += [f"B-{kind}", *[f"I-{kind}"] * (size - 2), f"L-{kind}"]
    return sentence


@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_are_seqevals_on_random_sequences(scheme):
    rng = np.random.default_rng(0)
    for sentence in random_sentences(SCHEMES[scheme], rng, 1000):
        assert entities_of(sentence) == get_entities([as_seqeval(tag) for tag in sentence]), sentence


def test_entities_are_seqevals_on_valid_sequences():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        sentence = valid_sentence(rng, 12)
        assert entities_of(sentence) == get_entities([as_seqeval(tag) for tag in sentence]), sentence


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scores_are_seqevals(scheme):
    tags = SCHEMES[scheme]
    scorer, rng = EntityScorer(tags), np.random.default_rng(2)
    for _ in range(20):
        lengths = rng.integers(1, 12, size=20)
        true = np.full((20, 12), -100)
        predicted = rng.integers(0, len(tags), size=(20, 12))
        for row, length in enumerate(lengths):
            true[row, :length] = rng.integers(0, len(tags), size=length)
            right = rng.random(length) < 0.8
            predicted[row, :length][right] = true[row, :length][right]
        as_names = [
            [[tags[k] for k in row[:length]] for row, length in zip(array, lengths, strict=True)]
            for array in (true, predicted)
        ]
        as_seqevals = [[[as_seqeval(tag) for tag in row] for row in rows] for rows in as_names]
        score = scorer.score(true, predicted)
        assert score.f1 == pytest.approx(f1_score(*as_seqevals), abs=1e-12)
        assert score.precision == pytest.approx(precision_score(*as_seqevals), abs=1e-12)
        assert score.recall == pytest.approx(recall_score(*as_seqevals), abs=1e-12)


def test_an_entity_does_not_cross_sentences():
    scorer = EntityScorer(CONLL)
    begin, inside = CONLL.index("B-PER"), CONLL.index("I-PER")
    two = scorer.score([[begin, inside], [inside, inside]], [[begin, inside], [inside, inside]])
    assert two == EntityScore(2, 2, 2)
    assert scorer.score([begin, inside, inside, inside], [begin, inside, inside, inside]).num_true == 1


def test_tensors_are_accepted_and_padding_does_not_count():
    scorer = EntityScorer(CONLL)
    true = torch.tensor([[4, 0, -100], [4, -100, -100]])
    assert scorer.score(true, torch.full((2, 3), 4)) == EntityScore(2, 3, 2)


def test_ignored_tokens_inside_a_sentence_are_left_out():
    scorer = EntityScorer(CONLL)
    begin, last = CONLL.index("B-PER"), CONLL.index("L-PER")
    assert scorer.score([begin, -100, last], [begin, 0, last]) == EntityScore(1, 1, 1)


def test_no_entities_at_all():
    scorer = EntityScorer(CONLL)
    nothing = scorer.score([[0, 0]], [[0, 0]])
    assert (nothing.f1, nothing.precision, nothing.recall) == (0.0, 0.0, 0.0)
    assert scorer.score([[0, 0]], [[0, 4]]) == EntityScore(0, 1, 0)
    assert scorer.score([[0, 4]], [[0, 0]]) == EntityScore(1, 0, 0)
    assert scorer.score(np.zeros((0, 5), int), np.zeros((0, 5), int)) == EntityScore(0, 0, 0)
    assert scorer.entities([]) == []


def test_many_models_are_scored_as_each_alone():
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 26, size=300)
    padding = np.arange(26) >= lengths[:, None]
    true = rng.integers(0, len(CONLL), size=(4, 300, 26))
    predicted = np.where(rng.random(true.shape) < 0.2, rng.integers(0, len(CONLL), size=true.shape), true)
    true[:, padding] = -100
    scorer = EntityScorer(CONLL)
    alone = [scorer.score(wanted, given) for wanted, given in zip(true, predicted, strict=True)]
    assert scorer.score_many(true, torch.from_numpy(predicted)) == alone
    one_truth = [scorer.score(true[0], given) for given in predicted]
    assert scorer.score_many(true[0], torch.from_numpy(predicted).short()) == one_truth
    assert len({score.f1 for score in alone}) == 4
    assert all(0.3 < score.f1 < 0.9 for score in alone)


@pytest.mark.parametrize("tag", ["X-PER", "B", "B-", "PER", "", "BPER"])
def test_an_unknown_tag_is_refused(tag):
    with pytest.raises(ValueError, match=r"`tags`.*but got"):
        EntityScorer(["O", tag])


def test_wrong_inputs_are_refused():
    scorer = EntityScorer(["O", "B-A"])
    with pytest.raises(ValueError, match=r"one shape.*\(2,\) and \(3,\)"):
        scorer.score([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="`predicted` to hold tag numbers from 0 to 1, but got 2"):
        scorer.score([0, 1], [0, 2])
    with pytest.raises(ValueError, match="`true` to hold tag numbers from 0 to 1, but got -1"):
        scorer.score([0, -1], [0, 1])
    with pytest.raises(TypeError, match="integer tag numbers, but got float64"):
        scorer.score([0.0, 1.0], [0, 1])
    with pytest.raises(ValueError, match=r"`sequence` of shape \(L,\), but got \(1, 2\)"):
        scorer.entities([[0, 1]])
