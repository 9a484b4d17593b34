"""`bias.loader`: index, order and batch sizes agree by construction."""

from dataclasses import dataclass

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

import activebias as ab
from training import digits


def data(number=24):
    return TensorDataset(*digits(number))


def trained(bias, loader, num_epochs=2):
    """Record a probability that tells the instance, for every batch; return the indices."""
    seen = []
    for epoch in range(num_epochs):
        bias.set_epoch(epoch)
        for index, _ in loader:
            bias.record(index, (1 + index) / 100)
            seen.append(index.tolist())
    return seen


@pytest.mark.parametrize("method", ["wtc", "spv"])
def test_it_is_the_longer_way(method):
    short, long = (ab.ActiveBias(method, num_instances=24, num_classes=10, seed=3) for _ in range(2))
    loader = DataLoader(ab.with_index(data()), batch_size=8, sampler=long.sampler(batch_size=8))
    assert trained(short, short.loader(data(), 8)) == trained(long, loader)
    assert torch.equal(short.scores, long.scores)


def test_options_that_say_nothing():
    bias = ab.ActiveBias("scan", num_instances=24, num_classes=10)
    loader = bias.loader(data(), 8, sampler=None, shuffle=False, collate_fn=None, generator=torch.Generator())
    assert len(trained(bias, loader)) == 6


def test_batches_bring_the_samples_of_their_index():
    inputs, targets = digits(24)
    bias = ab.ActiveBias("scan", num_instances=24, num_classes=10)
    bias.set_epoch(0)
    for index, (x, y) in bias.loader(data(), batch_size=5, num_workers=2):
        assert torch.equal(x, inputs[index])
        assert torch.equal(y, targets[index])


def test_a_step_of_several_batches():
    bias = ab.ActiveBias("wpv", num_instances=24, num_classes=10)
    loader = bias.loader(data(), 4, accumulate=3)
    bias.set_epoch(0)
    for number, (index, _) in enumerate(loader, 1):
        bias.record(index, torch.full((4,), 0.9))
        assert (bias.scores > 0).sum() == number // 3 * 12  # scores change with whole steps


@pytest.mark.parametrize("method", ["wtc", "spv"])
def test_a_pass_after_an_epoch_is_refused_with_drop_last_too(method):
    """The batch that is left would be dropped: the training accuracy would be that of no batch at all."""
    bias = ab.ActiveBias(method, num_instances=24, num_classes=10)
    loader = bias.loader(data(), 10, drop_last=True)
    for epoch in range(2):
        bias.set_epoch(epoch)
        assert len(list(loader)) == 2  # looking is free
        for number, (index, _) in enumerate(loader, 1):
            bias.record(index, torch.full((10,), 0.9))
            if number == 1:
                assert len(list(loader)) == 1  # a new loop goes on behind the first batch
        with pytest.raises(RuntimeError, match=r"Epoch \d is over.* needs a loader of its own"):
            list(loader)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda dataset: Subset(dataset, torch.randperm(30)[:24].tolist()),
        lambda dataset: ConcatDataset([Subset(dataset, range(10)), Subset(dataset, range(14))]),
        lambda dataset: ab.with_index(Subset(dataset, range(24))),
    ],
    ids=["subset", "concatenated", "indexed already"],
)
def test_wrapped_data_sets(wrap):
    bias = ab.ActiveBias("spv", num_instances=24, num_classes=10)
    trained(bias, bias.loader(wrap(data(30)), 8))
    assert bias.history.values()[1].sum() == 24 * 3


@dataclass
class Sample:
    x: torch.Tensor
    label: int


def test_samples_of_other_kinds():
    bias = ab.ActiveBias("scan", num_instances=6, num_classes=2)
    bias.set_epoch(0)
    index, batch = next(iter(bias.loader([Sample(torch.full((2,), i), i % 2) for i in range(6)], 3)))
    assert torch.equal(batch.x[:, 0], index)
    bias = ab.ActiveBias("scan", num_instances=6, num_classes=2)
    bias.set_epoch(0)
    batch = next(iter(bias.loader([{"x": torch.tensor(i)} for i in range(6)], 3)))
    assert torch.equal(batch["x"], batch["index"])


def test_a_collation_of_ones_own_sees_no_index_and_sentences_are_ordered():
    sentences = [torch.arange(length) for length in (3, 1, 2)]
    tokens = ab.TokenIndex([3, 1, 2])
    bias = ab.ActiveBias("wtc", num_instances=tokens.num_instances, num_classes=5)
    pad = torch.nn.utils.rnn.pad_sequence
    loader = bias.loader(
        sentences,
        2,
        num_sequences=3,
        collate_fn=lambda batch: pad(batch, batch_first=True, padding_value=-100),
    )
    bias.set_epoch(0)
    for sentence, words in loader:
        bias.loss(torch.zeros(*words.shape, 5), words, tokens(sentence, width=words.shape[1]))
    assert bias.history.values()[1].sum() == 12


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": 8, "shuffle": True}, TypeError, "`shuffle` is the bias's own"),
        ({"batch_size": 8, "sampler": [0, 1]}, TypeError, "`sampler` is the bias's own"),
        ({"batch_size": 8, "sampler": torch.arange(24)}, TypeError, "`sampler` is the bias's own"),
        ({"batch_size": 8, "sampler": []}, TypeError, "`sampler` is the bias's own"),
        ({"batch_size": 0}, ValueError, "`batch_size` to be at least 1"),
        ({"batch_size": 8, "accumulate": 0}, ValueError, "`accumulate` to be at least 1"),
        ({"batch_size": 8, "dataset": data(23)}, ValueError, "has 23 samples, but the bias was made for 24"),
        ({"batch_size": 8, "dataset": Subset(ab.with_index(data()), range(24))}, TypeError, "the outermost"),
        ({"batch_size": 8, "dataset": ConcatDataset([ab.with_index(data())])}, TypeError, "the outermost"),
        ({"batch_size": 8, "dataset": Stream()}, TypeError, "let the stream bring an index"),
    ],
)
def test_mistakes(arguments, error, message):
    bias = ab.ActiveBias("scan", num_instances=24, num_classes=10)
    with pytest.raises(error, match=message):
        bias.loader(**{"dataset": data(), **arguments})


def test_a_bias_says_what_it_is():
    bias = ab.ActiveBias("spv", num_instances=24, num_classes=10, burn_in=1)
    assert (
        repr(bias)
        == "ActiveBias('spv', num_instances=24, num_classes=10, epoch=None: does not emphasise yet)"
    )
    trained(bias, bias.loader(data(), 8))
    assert repr(bias).endswith("epoch=1: emphasises by draws)")
    assert repr(ab.ActiveBias("scan", num_instances=2, num_classes=2)).endswith("emphasises nothing)")
