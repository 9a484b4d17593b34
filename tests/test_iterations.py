"""Iterations that are left, looked at, outdated or skipped; batches that cannot be compared."""

import time
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from training import make_bias, make_loader


def visits(bias):
    """How many visits the histories hold."""
    return int(bias.history.values()[1].sum()) - bias.num_instances


def record(bias, index):
    bias.record(index, torch.full((len(index),), 0.25))


def tagger(num_sequences, length=2):
    """Sentences of equal length: a bias, and a loader of two sentences at a time, eight a step."""
    tokens = ab.TokenIndex([length] * num_sequences)
    bias = ab.ActiveBias("wpv", num_instances=tokens.num_instances, num_classes=3)
    sampler = bias.sampler(batch_size=8, num_sequences=num_sequences)
    data = ab.with_index(TensorDataset(torch.zeros(num_sequences, length)))
    bias.set_epoch(0)
    return bias, tokens, DataLoader(data, batch_size=2, sampler=sampler)


def record_words(bias, words):
    bias.record(words, torch.full(words.shape, 0.25))


# Words do not tell their sentence, so a batch is taken for the next one.


@pytest.mark.parametrize("look", [lambda loader: next(iter(loader)), list])
def test_looking_in_the_middle_of_an_accumulated_step_of_words_drops_no_visits(look):
    bias, tokens, loader = tagger(16)
    for number, (sentence, _) in enumerate(loader):
        record_words(bias, tokens(sentence))
        if number % 4 == 1:
            look(loader)
        assert visits(bias) == (number + 1) // 4 * 16
    assert bias._order.position == 16


def test_a_step_of_words_that_is_left_comes_again_as_a_whole():
    bias, tokens, loader = tagger(16)
    for number, (sentence, _) in enumerate(loader):
        record_words(bias, tokens(sentence))
        if number == 5:
            break
    for sentence, _ in loader:
        record_words(bias, tokens(sentence))
    assert bias.history.values()[1].sum(1).tolist() == [2] * 32


# The iteration under way ends with its epoch.


def test_an_epoch_begun_inside_the_loop_is_refused():
    bias = make_bias("wpv", num_instances=64)
    loader = make_loader(bias, batch_size=8)
    bias.set_epoch(0)
    batches = iter(loader)
    record(bias, next(batches)[0])
    bias.set_epoch(1)
    with pytest.raises(RuntimeError, match=r"`bias\.set_epoch` before the loop"):
        next(batches)


def test_a_state_loaded_inside_the_loop_is_refused():
    bias = make_bias("spv", num_instances=64)
    loader = make_loader(bias, batch_size=8)
    bias.set_epoch(0)
    state = bias.state_dict()
    batches = iter(loader)
    record(bias, next(batches)[0])
    bias.load_state_dict(state)
    with pytest.raises(RuntimeError, match="begin a new loop after `load`"):
        next(batches)


def test_a_sampler_of_another_number_of_items_is_refused():
    bias = ab.ActiveBias("wpv", num_instances=50, num_classes=3)
    words = bias.sampler(batch_size=5)
    sentences = bias.sampler(batch_size=5, num_sequences=20)
    bias.set_epoch(0)
    assert sorted(sentences) == list(range(20))
    with pytest.raises(RuntimeError, match="This sampler orders 50 items, but a later one 20"):
        list(words)


def test_another_number_of_items_in_the_middle_of_an_epoch_is_refused():
    bias, tokens, loader = tagger(16)
    for sentence, _ in loader:
        record_words(bias, tokens(sentence))
    with pytest.raises(ValueError, match=r"orders 16 items.*the same `num_sequences`"):
        bias.sampler(batch_size=8, num_sequences=15)
    assert sorted(bias.history.values()[1].sum(1).tolist()) == [2] * 32
    bias.set_epoch(1)
    assert sorted(bias.sampler(batch_size=8, num_sequences=15)) == list(range(15))


@pytest.mark.parametrize("wrong", [{"rank": 5, "num_replicas": 2}, {"rank": 9}, {"batch_size": 0}])
def test_a_refused_sampler_changes_nothing(wrong):
    bias = make_bias("wpv", num_instances=64)
    bias.set_epoch(0)
    with pytest.raises(ValueError, match=r"rank|batch_size"):
        bias.sampler(**{"batch_size": 8, "num_sequences": 7, **wrong})
    record(bias, torch.arange(3))
    assert visits(bias) == 3
    assert sorted(bias.sampler(batch_size=8)) == list(range(64))


# Batches that were skipped, and batches with padding.


@pytest.mark.parametrize(("trained", "warns"), [((0, 2, 4, 6), True), ((0, 1, 2, 4, 5, 6, 7), False)])
def test_an_epoch_with_half_of_its_steps_skipped_is_warned_of(trained, warns):
    """As where Accelerate shards a sampler that shards already."""
    bias = make_bias("wpv", num_instances=64)
    bias.set_epoch(0)
    order = torch.tensor(list(bias.sampler(batch_size=8))).split(8)
    for number in trained:
        record(bias, order[number])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bias.set_epoch(1)
    messages = [str(each.message) for each in caught]
    assert [each.filename for each in caught] == [__file__] * warns
    assert messages == [] or "4 came back whole, and 3 in part or not at all" in messages[0]


def test_padding_is_compared_too():
    bias = make_bias("wpv", num_instances=9)
    bias.set_epoch(0)
    order = list(bias.sampler(batch_size=2, num_replicas=4, rank=3))
    assert len(order) == 3  # the last step is one item, and padding here
    with pytest.raises(ValueError, match="was handed out"):
        record(bias, [next(i for i in range(9) if i not in order)])
    for part in (order[:2], order[2:]):
        record(bias, part)
    assert (visits(bias), bias._order.position) == (2, 9)


def test_weights_with_a_mask_know_the_padding():
    bias = make_bias("wpv", num_instances=7)
    bias.set_epoch(0)
    index = torch.tensor(list(bias.sampler(batch_size=4, num_replicas=2, rank=1)))
    mask = torch.tensor([False, True, True, True])
    assert torch.equal(bias.weight(index, mask=mask), torch.where(mask, bias.weight(index), 0))
    assert bias.weight(index)[3] == 0


def test_an_empty_batch_completes_no_step():
    for shard in (True, False):
        bias = make_bias("wpv", num_instances=8)
        bias.set_epoch(0)
        order = list(bias.sampler(batch_size=4, shard=shard))
        bias.record([], [])
        record(bias, order[:4])
        assert (visits(bias), bias._order.position) == (4, 4)


@pytest.mark.parametrize("num_instances", [32, 37, 41, 45])
@pytest.mark.parametrize("rank", [0, 1])
def test_batches_that_somebody_else_deals_out_are_found(num_instances, rank):
    """As Accelerate does: steps of 16 on two ranks, dealt out in parts of 4; the last round is padded."""
    bias = make_bias("wpv", num_instances=num_instances)
    bias.set_epoch(0)
    order = list(bias.sampler(batch_size=8, num_replicas=2, rank=rank, shard=False))
    padded = torch.tensor(order + order[: -num_instances % 8])
    for number, part in enumerate(padded.split(4)[rank::2], 1):
        record(bias, part)
        if number % 2 == 0:
            assert bias._order.position == min(8 * number, num_instances)
    assert bias._order.position == num_instances
    places = torch.arange(len(padded)).view(-1, 2, 4)[:, rank]
    assert visits(bias) == int((places < num_instances).sum())


def test_a_batch_larger_than_the_step_is_refused_where_somebody_else_shards():
    bias = make_bias("wpv", num_instances=32)
    bias.set_epoch(0)
    order = list(bias.sampler(batch_size=8, shard=False))
    with pytest.raises(ValueError, match="A batch of 12 came back"):
        record(bias, order[:12])


def test_an_older_iteration_goes_on_after_its_open_step_was_trained_on_by_a_newer():
    bias = make_bias("wpv", num_instances=32)
    loader = DataLoader(
        ab.with_index(TensorDataset(torch.arange(32))), batch_size=4, sampler=bias.sampler(batch_size=16)
    )
    bias.set_epoch(0)
    older, newer = iter(loader), iter(loader)
    record(bias, next(older)[0])
    for _ in range(4):
        record(bias, next(newer)[0])
    for index, _ in list(older)[3:]:
        record(bias, index)
    assert bias.history.values()[1].sum(1).tolist() == [2] * 32


def test_draws_of_an_iteration_that_only_looked_are_not_in_the_state():
    bias = make_bias("spv", num_instances=64)
    bias.set_epoch(0)
    sampler = bias.sampler(batch_size=8)
    list(sampler)
    order = iter(sampler)
    record(bias, [next(order) for _ in range(8)])  # the look has handed out the same batch
    assert len(bias.state_dict()["order"]["pending"]) == 0


def test_an_iteration_that_only_looked_costs_no_time():
    bias = ab.ActiveBias("sd", num_instances=64_000, num_classes=2, window=2)
    bias.set_epoch(0)
    sampler = bias.sampler(batch_size=32)

    def seconds():
        order, taken = iter(sampler), []
        for _ in range(9):
            index = [next(order) for _ in range(32)]
            begin = time.perf_counter()
            bias.record(index, np.linspace(0, 1, 32))
            taken.append(time.perf_counter() - begin)
        return np.median(taken)

    before = seconds()
    list(sampler)  # 2,000 steps, and other draws than those trained on
    assert seconds() < 10 * before


def test_a_batch_that_a_statistic_refuses_may_be_tried_again():
    """The first batch of a step counts in what was left of the step before."""
    refuses = False

    def statistic(estimate):
        if refuses:
            raise ArithmeticError
        return estimate.mean

    method = ab.Method("own", statistic=statistic, weights="emphasis")
    bias = ab.ActiveBias(method, num_instances=16, num_classes=2)
    bias.set_epoch(0)
    parts = torch.tensor(list(bias.sampler(batch_size=8))).split(2)
    record(bias, parts[0])
    refuses = True
    with pytest.raises(ArithmeticError):
        record(bias, parts[4])
    refuses = False
    for part in parts[4:]:
        record(bias, part)
    assert (visits(bias), bias._order.position) == (8, 16)


def test_a_step_in_the_users_own_order_goes_on_in_a_copy_of_the_state():
    bias, again = (make_bias("wpv", num_instances=32) for _ in range(2))
    for each in (bias, again):
        each.sampler(batch_size=8)
    bias.set_epoch(0)
    record(bias, range(4))
    again.load_state_dict(bias.state_dict())
    record(again, range(4, 8))
    assert visits(again) == 8


def test_steps_that_came_in_part_do_not_count_as_whole():
    """A collation that leaves out the last sample of every batch."""
    bias = make_bias("wpv", num_instances=32)
    bias.set_epoch(0)
    for index, _ in make_loader(bias, batch_size=8):
        record(bias, index[:7])
    with pytest.warns(UserWarning, match="0 came back whole, and 3 in part or not at all.* leave out"):
        bias.set_epoch(1)
    assert visits(bias) == 28
