"""Ranks that train together: one draw, disjoint shards, the same histories everywhere."""

from itertools import chain

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

import activebias as ab
from activebias.learning import FIRST_ROUNDS
from rank_worker import (
    GLOBAL_BATCH,
    accumulate_weighted,
    learn,
    learn_weights_and_count_waits,
    run_ranks,
    tag,
    train,
    weigh_by_hand,
    weigh_otherwise,
)
from training import make_bias


def global_order(results):
    """Put the ranks' parts of every global batch together."""
    return [list(chain(*parts)) for parts in zip(*(result["drawn"] for result in results), strict=True)]


def assert_same_everywhere(results):
    for result in results[1:]:
        assert result["values"] == results[0]["values"]
        assert result["valid"] == results[0]["valid"]
        assert result["scores"] == results[0]["scores"]


def assert_as_on_one_rank(several, one):
    assert several["valid"] == one["valid"]
    np.testing.assert_allclose(several["values"], one["values"], atol=1e-6)
    for here, there in zip(several["weights"], one["weights"], strict=True):
        np.testing.assert_allclose(here, there, atol=1e-6)
    assert several["position"] == one["position"]


@pytest.mark.parametrize("method", ["scan", "wpv", "spv", "isd"])
def test_one_two_and_four_ranks_draw_the_same_order_and_record_the_same_histories(method, tmp_path):
    results = {num_ranks: run_ranks(tmp_path, num_ranks, train, method) for num_ranks in (1, 2, 4)}
    one = results[1][0]
    for num_ranks in (2, 4):
        assert_same_everywhere(results[num_ranks])
        assert_as_on_one_rank(results[num_ranks][0], one)
        order = global_order(results[num_ranks])
        for together, alone in zip(order, one["drawn"], strict=True):
            assert together[: len(alone)] == alone  # behind it only filling
            assert len(together) - len(alone) < num_ranks


def test_shards_are_disjoint_and_cover_the_data_set(tmp_path):
    results = run_ranks(tmp_path, 4, train, "scan", 128)
    first_epoch = global_order(results)[: 128 // GLOBAL_BATCH]
    assert sorted(chain(*first_epoch)) == list(range(128))


@pytest.mark.parametrize("num_instances", [33, 63])
def test_filling_up_uneven_last_batches_never_pollutes_a_history(num_instances, tmp_path):
    results = run_ranks(tmp_path, 4, train, "wtc", num_instances)
    assert_same_everywhere(results)
    # Two epochs and the initial entry: every instance exactly three.
    assert np.sum(results[0]["valid"], axis=1).tolist() == [3] * num_instances
    assert_as_on_one_rank(results[0], run_ranks(tmp_path, 1, train, "wtc", num_instances)[0])


def test_the_two_halves_with_a_loss_of_ones_own(tmp_path):
    several = run_ranks(tmp_path, 2, weigh_by_hand)
    assert_same_everywhere(several)
    one = run_ranks(tmp_path, 1, weigh_by_hand)[0]
    assert_as_on_one_rank(several[0], one)
    (tmp_path / "together").mkdir()
    together = run_ranks(tmp_path / "together", 2, weigh_by_hand, "none")
    assert_as_on_one_rank(together[0], one)


@pytest.mark.parametrize("method", ["auto", "sauto"])
def test_ranks_learn_one_curve_the_curve_of_one_rank(method, tmp_path):
    """150 instances learn after the first epoch, three times; the ranks share the work."""
    several = run_ranks(tmp_path, 2, learn, method)
    assert_same_everywhere(several)
    assert several[0]["curve"] == several[1]["curve"]
    assert several[0]["factor"] == several[1]["factor"] < 1
    one = run_ranks(tmp_path, 1, learn, method)[0]
    assert several[0]["num_learnt"] == one["num_learnt"] >= FIRST_ROUNDS
    np.testing.assert_allclose(several[0]["curve"], one["curve"], rtol=1e-4, atol=1e-5)
    assert np.ptp(one["curve"]) > 0.1
    assert several[0]["explained"] == one["explained"]
    assert_as_on_one_rank(several[0], one)


@pytest.mark.parametrize("kind", ["class", "sample", "labels", "soft", "sequences", "mixup"])
def test_weights_and_targets_of_every_kind(kind, tmp_path):
    several = run_ranks(tmp_path, 2, weigh_otherwise, kind)
    assert_same_everywhere(several)
    assert_as_on_one_rank(several[0], run_ranks(tmp_path, 1, weigh_otherwise, kind)[0])


def test_learnt_weights_are_refused_and_several_labels_do_not_wait_for_their_number(tmp_path):
    for result in run_ranks(tmp_path, 2, learn_weights_and_count_waits):
        assert "must not need gradients on several ranks" in result["message"]
        assert result["sizes"] == [20, 20]  # without a size a GPU would wait
        assert result["visits"] == 8 * 10 * 2


def test_accumulating_gradients_on_two_ranks(tmp_path):
    several = run_ranks(tmp_path, 2, train, "wpv", 160, 2)
    assert_same_everywhere(several)
    assert_as_on_one_rank(several[0], run_ranks(tmp_path, 1, train, "wpv", 160)[0])


def test_accumulating_gradients_in_a_filled_last_step(tmp_path):
    """29 instances, 16 a step, two parts each: the last step has filling on the last rank."""
    one = run_ranks(tmp_path, 1, accumulate_weighted, 1)[0]
    for num_ranks in (2, 4):
        several = run_ranks(tmp_path, num_ranks, accumulate_weighted, 2)
        assert_same_everywhere(several)
        assert_as_on_one_rank(several[0], one)


RAGGED = [1, 8, 4, 3, 6, 7, 8, 2, 5, 5, 1, 3, 8, 6, 2, 7, 4, 1, 6, 3, 8]
ONE_SHORTER = [4] * 20 + [2]  # most batches need no padding, so nothing is left out of them


@pytest.mark.parametrize("lengths", [RAGGED, ONE_SHORTER], ids=["ragged", "one shorter"])
def test_tagging_with_different_numbers_of_words_on_every_rank(lengths, tmp_path):
    several = run_ranks(tmp_path, 2, tag, lengths)
    assert_same_everywhere(several)
    assert_as_on_one_rank(several[0], run_ranks(tmp_path, 1, tag, lengths)[0])


def exchange_more_than_announced(rank, num_ranks):
    bias = ab.ActiveBias("wpv", num_instances=100, num_classes=10)
    bias.set_epoch(0)
    order = list(bias.sampler(batch_size=2))
    try:
        bias.record(order[:4], [0.5] * 4)
    except ValueError as error:
        return {"message": str(error)}
    return {"message": ""}


def test_more_visits_than_announced_are_refused_instead_of_hanging(tmp_path):
    for result in run_ranks(tmp_path, 2, exchange_more_than_announced):
        assert "A batch of 4 came back" in result["message"]


def tag_one_sentence_more(rank, num_ranks):
    """Nine sentences, eight a step: the last step is one sentence, and padding on the second rank."""
    tokens = ab.TokenIndex([3] * 9)
    bias = ab.ActiveBias("scan", num_instances=27, num_classes=10)
    bias.set_epoch(0)
    sampler = bias.sampler(batch_size=8 // num_ranks, num_sequences=9)
    *_, last = (sentences := torch.tensor(list(sampler))).split(8 // num_ranks)
    losses = torch.arange(1.0, 4.0)
    for part in sentences.split(8 // num_ranks):
        index = tokens(part)
        loss = bias.weigh(losses.expand(index.shape), torch.full(index.shape, 0.5), index)
    assert len(last) == 1
    dist.all_reduce(loss)
    return {"loss": loss.item() / num_ranks, "visits": int(bias.history.values()[1].sum()) - 27}


def test_a_rank_without_words_counts_none(tmp_path):
    for num_ranks in (1, 2):
        for result in run_ranks(tmp_path, num_ranks, tag_one_sentence_more):
            assert result == {"loss": 2.0, "visits": 27}


def load_on_ranks(rank, num_ranks, file):
    bias = make_bias("wpv", num_instances=22)
    bias.load(file)
    bias.set_epoch(1)
    return {"visits": int(bias.history.values()[1].sum()) - 22, "scores": bias.scores.tolist()}


def test_visits_that_wait_in_the_state_of_one_rank_count_once_on_two(tmp_path):
    bias = make_bias("wpv", num_instances=22)
    bias.set_epoch(0)
    order = torch.tensor(list(bias.sampler(batch_size=8)))
    for index in order[:20].split(4):  # drop_last keeps two of the last step back: four visits wait
        bias.record(index, torch.linspace(0.1, 0.9, 4))
    bias.save(tmp_path / "bias.pt")
    bias.set_epoch(1)
    for result in run_ranks(tmp_path, 2, load_on_ranks, tmp_path / "bias.pt"):
        assert result == {"visits": 20, "scores": bias.scores.tolist()}


def learn_with_few_examples(rank, num_ranks, num_validation):
    torch.manual_seed(0)
    inputs, targets = torch.randn(30, 4), torch.randint(3, (30,))
    data, model = TensorDataset(inputs, targets), nn.Linear(4, 3)
    bias = ab.ActiveBias("auto", num_instances=30, num_classes=3)
    bias.set_epoch(0)
    part = torch.arange(30)[rank::num_ranks]
    bias.record(part, torch.linspace(0, 1, 30)[part])
    bias.learn(model, data, TensorDataset(inputs[:num_validation], targets[:num_validation]))
    return bias.curve()[1].tolist()


@pytest.mark.parametrize("num_validation", [1, 10])
def test_ranks_learn_the_curve_of_one_rank_where_some_have_no_example(num_validation, tmp_path):
    one, *_ = run_ranks(tmp_path, 1, learn_with_few_examples, num_validation)
    several = run_ranks(tmp_path, 3, learn_with_few_examples, num_validation)
    assert several[0] == several[1] == several[2]
    np.testing.assert_allclose(several[0], one, atol=1e-5)
    assert max(one) > 1.05


def learn_in_wrappers(rank, num_ranks, compiled):
    torch.manual_seed(0)
    inputs, targets = torch.randn(30, 4), torch.randint(3, (30,))
    data = TensorDataset(inputs, targets)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    model = torch.compile(model, backend="eager") if compiled else model
    bias = ab.ActiveBias("auto", num_instances=30, num_classes=3)
    bias.set_epoch(0)
    part = torch.arange(30)[rank::num_ranks]
    bias.record(part, torch.linspace(0, 1, 30)[part])
    bias.learn(model, data, TensorDataset(inputs[:1], targets[:1]))
    return bias.curve()[1].tolist()


def test_no_rank_of_a_compiled_model_waits_for_the_forward_pass_of_another_rank(tmp_path):
    """The second rank has no validation example: DistributedDataParallel would wait with its buffers."""
    compiled, plain = run_ranks(tmp_path, 2, learn_in_wrappers, True), tmp_path / "plain"
    plain.mkdir()
    assert compiled == run_ranks(plain, 2, learn_in_wrappers, False)


def test_ranks_that_came_in_the_middle_of_an_epoch_are_refused(monkeypatch):
    """Nothing was exchanged in that epoch: every rank would emphasise by a history of its own."""
    bias = make_bias("wtc")
    bias.set_epoch(0)
    bias.record([0], [0.5])
    monkeypatch.setattr(bias._ranks, "number", lambda: 2)
    with pytest.raises(RuntimeError, match=r"on 2 ranks, but the bias knew of 1, .* before the first"):
        bias.set_epoch(1)
    assert bias.epoch == 0
