"""The sampler draws exactly from P, batch by batch, at any size, and touches nobody else's random state."""

from itertools import chain

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from activebias.drawing import BLOCK, BlockSums, draw, draw_directly, padded_length
from training import digits, make_bias, make_loader

DRAWING = ["sd", "isd", "se", "spv", "stc"]
SCANNING = ["scan", "wd", "we", "wpv", "wtc"]


def block_sums(scores):
    padded = np.zeros(padded_length(len(scores)), dtype=np.float32)
    padded[: len(scores)] = scores.numpy()
    return BlockSums(padded)


@pytest.mark.parametrize("num_instances", [2, 255, 256, 257, 1000, 70_000])
def test_draws_follow_the_distribution(num_instances):
    generator = torch.Generator().manual_seed(num_instances)
    scores = torch.rand(num_instances, generator=generator) ** 3
    scores[::7] = 0
    expected = (scores + (scores.mean() or torch.tensor(1.0))).double().numpy()
    expected /= expected.sum()
    uniform = torch.rand(200_000, dtype=torch.float64, generator=generator).numpy()
    drawn = {
        "tree": draw(block_sums(scores), num_instances, uniform),
        "one pass": draw_directly(scores.numpy(), uniform),
    }
    cells = np.arange(num_instances) * 64 // max(num_instances, 64)
    for name, index in drawn.items():
        assert index.min() >= 0, name
        assert index.max() < num_instances, name
        observed = np.bincount(cells[index], minlength=cells[-1] + 1)
        wanted = np.bincount(cells, weights=expected) * len(index)
        assert stats.chisquare(observed, wanted).pvalue > 1e-4, name


def test_a_data_set_of_one_instance_is_drawn():
    assert draw(block_sums(torch.ones(1)), 1, np.array([0.1, 0.6, 0.99])).tolist() == [0, 0, 0]


def test_scores_that_are_all_zero_give_uniform_draws():
    sums = block_sums(torch.zeros(1000))
    uniform = torch.rand(100_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).numpy()
    observed = np.bincount(draw(sums, 1000, uniform), minlength=1000)
    assert stats.chisquare(observed).pvalue > 1e-4


def test_sums_follow_their_scores_and_repeated_indices_do_no_harm():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(padded_length(100_000), generator=generator).numpy()
    sums = BlockSums(scores)
    for _ in range(20):
        index = torch.randint(100_000, (50,), generator=generator).repeat(2).numpy()
        scores[index] = torch.rand(50, generator=generator).repeat(2)
        total = sums.update(index)
    fresh = BlockSums(scores.copy())
    assert total == fresh.total()
    for updated, rebuilt in zip(sums._levels, fresh._levels, strict=True):
        np.testing.assert_array_equal(updated, rebuilt)


def test_sums_that_were_kept_up_to_date_are_those_that_are_built_anew():
    # As after a resume: to the bit, or a draw might be decided differently.
    generator = torch.Generator().manual_seed(0)
    scores = np.zeros(padded_length(300_000), dtype=np.float32)
    sums = BlockSums(scores)
    for _ in range(200):
        index = torch.randint(300_000, (128,), generator=generator).numpy()
        scores[index] = torch.rand(128, generator=generator) ** 8
        sums.update(index)
    anew = BlockSums(scores)
    assert len(sums._levels) > 2
    for levels in zip(sums._levels, anew._levels, strict=True):
        np.testing.assert_array_equal(*levels)


def test_rounding_never_leads_into_the_padding():
    scores = torch.full((BLOCK + 3,), 1e-30)
    nearly_one = np.nextafter(np.ones(5), 0)
    assert draw(block_sums(scores), BLOCK + 3, nearly_one).max() < BLOCK + 3


def test_the_upper_half_of_a_large_data_set_is_drawn():
    num_instances = 2**24 + 2**23  # torch.multinomial in float32 never draws above 2^24
    bias = ab.ActiveBias("sd", num_instances=num_instances, num_classes=10, window=1, storage="float16")
    bias.set_epoch(0)
    sampler = iter(bias.sampler(batch_size=20_000))
    drawn = np.array([next(sampler) for _ in range(20_000)])
    expected = 1 - 2**24 / num_instances
    assert abs((drawn >= 2**24).mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / len(drawn))
    assert drawn.max() < num_instances


@pytest.mark.parametrize("method", SCANNING)
def test_methods_that_scan_give_every_instance_once_and_another_order_each_epoch(method):
    bias = make_bias(method)
    orders = []
    for epoch in range(3):
        bias.set_epoch(epoch)
        orders.append(list(bias.sampler(batch_size=32)))
        assert sorted(orders[-1]) == list(range(300))
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("method", ["uni", *DRAWING])
def test_methods_that_draw_give_as_many_indices_as_there_are_instances(method):
    bias = make_bias(method)
    bias.set_epoch(0)
    order = list(bias.sampler(batch_size=32))
    assert len(order) == len(bias.sampler(batch_size=32)) == 300
    assert len(set(order)) < 300


def test_during_burn_in_nothing_is_emphasised():
    bias = ab.ActiveBias("sd", num_instances=1000, num_classes=2, burn_in=1)
    bias.set_epoch(0)
    bias.record(np.arange(1000), np.where(np.arange(1000) < 500, 0.0, 1.0))
    bias.set_epoch(0)
    bias._order.begin(0)
    assert abs(np.mean([i < 500 for i in bias.sampler(batch_size=50)]) - 0.5) < 0.05
    bias.set_epoch(1)
    expected = bias.probabilities()[:500].sum().item()
    assert expected == pytest.approx(0.625)
    assert abs(np.mean([i < 500 for i in bias.sampler(batch_size=50)]) - expected) < 0.05


def test_a_batch_is_drawn_after_the_previous_one_was_recorded():
    """One instance becomes the only hard one during the first batch; the second batch must know it."""
    settings = {"num_classes": 2, "window": 1, "remove_outliers": False, "burn_in": 1}
    bias = ab.ActiveBias("sd", num_instances=200, **settings)
    bias.set_epoch(0)
    bias.record(np.arange(200), np.ones(200))
    loader = DataLoader(
        ab.with_index(TensorDataset(torch.arange(200))),
        batch_size=50,
        sampler=bias.sampler(batch_size=50),
    )
    bias.set_epoch(1)
    batches = iter(loader)
    index, _ = next(batches)
    hard = index[0]
    assert (index == hard).sum() <= 3
    bias.record(index, (index != hard).float())
    index, _ = next(batches)
    assert (index == hard).sum() > 10  # its P is one half


@pytest.mark.parametrize("method", ["wpv", "spv"])
@pytest.mark.parametrize("persistent", [False, True])
def test_prefetching_workers_work(method, persistent):
    bias = make_bias(method)
    loader = make_loader(bias, num_workers=2, persistent_workers=persistent)
    inputs, _ = digits()
    for epoch in range(3):
        bias.set_epoch(epoch)
        seen = 0
        for index, (batch, _) in loader:
            assert torch.equal(batch, inputs[index])
            bias.record(index, torch.rand(len(index), generator=torch.Generator().manual_seed(seen)))
            seen += len(index)
        assert seen == 300


def test_the_global_random_state_is_untouched():
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    for method in ab.METHODS:
        bias = make_bias(method)
        for epoch in range(2):
            bias.set_epoch(epoch)
            list(bias.sampler(batch_size=32))
    assert torch.equal(torch.random.get_rng_state(), expected[0])
    assert np.array_equal(np.random.get_state()[1], expected[1])


def test_seeds_and_epochs_do_not_share_orders():
    def order(seed, epoch):
        bias = ab.ActiveBias("scan", num_instances=100, num_classes=2, seed=seed)
        bias.set_epoch(epoch)
        return tuple(bias.sampler(batch_size=10))

    orders = [order(seed, epoch) for seed in range(4) for epoch in range(4)]
    assert len(set(orders)) == 16
    assert order(2, 3) == orders[11]


def test_forgetting_set_epoch_raises_and_names_the_fix():
    bias = make_bias("wpv")
    with pytest.raises(RuntimeError, match=r"bias\.set_epoch"):
        next(iter(make_loader(bias)))
    with pytest.raises(RuntimeError, match=r"bias\.set_epoch"):
        bias.record([0], [0.5])
    with pytest.raises(RuntimeError, match=r"bias\.set_epoch"):
        bias.weight([0])
    bias.set_epoch(0)
    loader = make_loader(bias)
    for index, _ in loader:
        bias.record(index, torch.full((len(index),), 0.5))
    with pytest.raises(RuntimeError, match=r"set_epoch\(1\)"):
        next(iter(loader))


def test_saying_the_same_epoch_twice_changes_nothing():
    once, twice = make_bias("spv"), make_bias("spv")
    for bias in (once, twice):
        bias.set_epoch(0)
        bias.set_epoch(1)
    first = list(once.sampler(batch_size=32))
    batches = iter(twice.sampler(batch_size=32))
    second = [next(batches) for _ in range(64)]
    twice.set_epoch(1)
    assert first == second + list(batches)


def test_breaking_off_and_iterating_again_gives_what_was_not_trained_on():
    bias = make_bias("wpv")
    loader = make_loader(bias)
    bias.set_epoch(0)
    seen = []
    for number, (index, _) in enumerate(loader):
        if number == 3:
            break  # fetched, not trained on
        bias.record(index, torch.full((len(index),), 0.5))
        seen += index.tolist()
    for index, _ in loader:
        seen += index.tolist()
        bias.record(index, torch.full((len(index),), 0.5))
    assert sorted(seen) == list(range(300))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_last_short_batch_that_was_fetched_but_not_trained_on_comes_again(num_workers):
    bias = make_bias("wpv", num_instances=10)
    loader = make_loader(bias, batch_size=4, num_workers=num_workers)
    bias.set_epoch(0)
    for number, (index, _) in enumerate(loader):
        if number == 2:
            break
        bias.record(index, torch.full((4,), 0.5))
    with pytest.warns(UserWarning, match=r"this pass has only the 2 of 10 items"):
        assert [len(index) for index, _ in loader] == [2]


def test_looking_at_the_only_batch_of_an_epoch_does_not_end_it():
    bias = make_bias("scan", num_instances=10)
    loader = make_loader(bias, batch_size=16)
    bias.set_epoch(0)
    next(iter(loader))
    for _ in range(3):
        (batch,) = loader
        assert len(batch[0]) == 10


def test_forgetting_set_epoch_is_seen_with_drop_last_too():
    bias = make_bias("wpv", num_instances=10)
    loader = make_loader(bias, batch_size=4, drop_last=True)
    bias.set_epoch(0)
    for index, _ in loader:
        bias.record(index, torch.full((4,), 0.5))
    with pytest.warns(UserWarning, match=r"\(`drop_last`\), the pass is empty: call `bias.set_epoch\(1\)`"):
        assert list(loader) == []
    with pytest.raises(RuntimeError, match=r"set_epoch\(1\)"):
        list(loader)


def test_shards_without_torch_distributed_count_for_all_replicas():
    bias = make_bias("scan", num_instances=16)
    bias.set_epoch(0)
    part = list(bias.sampler(batch_size=2, num_replicas=4, rank=1))
    others = [list(bias.sampler(batch_size=2, num_replicas=4, rank=rank)) for rank in (0, 2, 3)]
    assert sorted([*part, *chain(*others)]) == list(range(16))
    assert list(bias.sampler(batch_size=2, num_replicas=4, rank=1)) == part
    for first in (0, 2):
        bias.record(part[first : first + 2], [0.5, 0.5])
    assert bias._order.position == 16


def test_a_data_set_of_another_length_is_refused():
    bias = make_bias("wpv")
    with pytest.raises(ValueError, match=r"has 299 samples.*made for 300"):
        bias.sampler(batch_size=32, dataset=range(299))
    bias.set_epoch(0)
    inputs, targets = digits(299)
    with pytest.raises(IndexError, match=r"num_instances.*length of the data set"):
        list(make_loader(bias, inputs=inputs, targets=targets))
