"""Full histories of very different lengths: every entry is kept, and the memory follows the visits."""

import numpy as np
import pytest
import torch

import activebias as ab
from activebias import rows as storage_of_rows
from activebias.history import sort_visits
from pretend_gpu import pretend_gpu

# The visits of these tests are chosen, not drawn.
pytestmark = pytest.mark.filterwarnings("ignore:Method .* emphasises by the order")
DEVICES = pytest.mark.parametrize("on_gpu", [False, True])


def skewed_batches(num_batches, num_instances=50, batch_size=32, seed=0, skew=4):
    """Yield (index, prob): few instances get most visits, often several in a batch."""
    rng = np.random.default_rng(seed)
    for _ in range(num_batches):
        index = (num_instances * rng.random(batch_size) ** skew).astype(np.int64)
        yield torch.from_numpy(index), torch.from_numpy(rng.random(batch_size, dtype=np.float32))


def visited(method, num_epochs=12, **options):
    """Return a bias after skewed visits, and the lists that its histories should be."""
    bias = ab.ActiveBias(method, num_instances=50, num_classes=2, **options)
    expected = [[0.5] for _ in range(50)]
    for epoch in range(num_epochs):
        bias.set_epoch(epoch)
        for index, prob in skewed_batches(4, seed=epoch):
            bias.record(index, prob)
            for each, value in zip(index.tolist(), prob.tolist(), strict=True):
                expected[each].append(value)
    return bias, expected


def assert_history(bias, expected, tolerance=0.0):
    values, valid = bias.history.values()
    assert valid.sum(1).tolist() == [len(each) for each in expected]
    for row, kept, each in zip(values, valid, expected, strict=True):
        assert row[kept].tolist() == pytest.approx(each, abs=tolerance)
    latest = bias.history.latest(torch.arange(len(expected)))
    assert latest.tolist() == pytest.approx([each[-1] for each in expected], abs=tolerance)


@DEVICES
@pytest.mark.parametrize("method", ["sd", "uni"])
@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_every_entry_is_kept(method, storage, on_gpu, monkeypatch):
    if on_gpu:
        pretend_gpu(monkeypatch)
    bias, expected = visited(method, storage=storage)
    assert_history(bias, expected, 0.0 if storage == "float32" else 3e-4)
    assert max(map(len, expected)) > 10 * min(map(len, expected))
    assert bias.history.num_overwritten == 0


@DEVICES
def test_a_state_goes_on_where_it_was(on_gpu, monkeypatch):
    if on_gpu:
        pretend_gpu(monkeypatch)
    bias, expected = visited("stc")
    again = ab.ActiveBias("stc", num_instances=50, num_classes=2)
    again.load_state_dict(bias.state_dict())
    assert_history(again, expected)
    for each in (bias, again):
        each.set_epoch(12)
        for index, prob in skewed_batches(5, seed=99):
            each.record(index, prob)
    assert torch.equal(bias.scores, again.scores)
    for here, there in zip(bias.history.values(), again.history.values(), strict=True):
        assert torch.equal(here, there)


@DEVICES
def test_a_ragged_history_grows(on_gpu, monkeypatch):
    if on_gpu:
        pretend_gpu(monkeypatch)
    bias, expected = visited("sd")
    bias.grow(60)
    assert_history(bias, [*expected, *([0.5] for _ in range(10))])


def test_the_history_of_a_method_that_draws_takes_the_memory_of_its_visits():
    number, rng = 2000, np.random.default_rng(0)
    level = np.where(rng.random(number) < 0.05, 0.5 * rng.random(number), 0.99).astype(np.float32)
    bias = ab.ActiveBias("sd", num_instances=number, num_classes=10)
    sampler = bias.sampler(batch_size=100)
    for epoch in range(40):
        bias.set_epoch(epoch)
        for index in torch.tensor(list(sampler)).split(100):
            bias.record(index, level[index])
    valid = bias.history.values()[1]
    assert valid.sum() == number * 41
    assert valid.shape[1] > 5 * 41  # as wide a table would be
    assert bias.history.num_bytes < 1.3 * 4 * number * 41


def test_rows_of_one_length_take_little_more_than_their_entries():
    bias = ab.ActiveBias("wpv", num_instances=1000, num_classes=10)
    for epoch in range(40):
        bias.set_epoch(epoch)
        for index in torch.randperm(1000, generator=torch.Generator().manual_seed(epoch)).split(50):
            bias.record(index, torch.full((50,), epoch / 40))
    values, valid = bias.history.values()
    assert valid.all()
    assert torch.equal(values[:, 1:], (torch.arange(40) / 40).expand(1000, -1))
    assert bias.history.num_bytes < 1.3 * 4 * 1000 * 41


def test_the_row_that_does_not_count_can_be_read_among_rows_of_one_length():
    """Side by side on a CPU, visits that do not count go there, and are scored with the others."""
    history = ab.PredictionHistory(20, initial=0.5)
    for value in range(1, 9):
        history.append(sort_visits(np.arange(20), np.full(20, value / 10, dtype=np.float32)))
    entries, count = history.entries(np.array([19, 20]))
    assert count.tolist() == [9, 1]
    assert entries[0].tolist() == pytest.approx([0.5] + [value / 10 for value in range(1, 9)])


def test_rows_that_find_no_place_in_a_step_keep_the_latest(monkeypatch):
    pretend_gpu(monkeypatch)
    monkeypatch.setattr(storage_of_rows, "SPARE", 0)
    bias = ab.ActiveBias("sd", num_instances=50, num_classes=2)
    bias.set_epoch(0)
    for visit in range(100):
        bias.record(torch.tensor([3, 4]), torch.full((2,), visit / 128))
    lost = bias.history.num_overwritten
    assert lost > 0
    for epoch in (0, 1):
        bias.set_epoch(epoch)
        values, valid = bias.history.values([3, 4, 5])
        kept = valid.sum(1).tolist()
        assert sum(kept) == 2 * 101 + 1 - lost
        assert kept[2] == 1
        for row in (0, 1):
            assert values[row, valid[row]].tolist() == [each / 128 for each in range(100 - kept[row], 100)]
        assert bias.history.num_overwritten == lost


def test_the_array_of_a_gpu_stays_while_it_is_large_enough(monkeypatch):
    """Graphs hold its address: another array in every epoch would drop them."""
    pretend_gpu(monkeypatch)
    bias = ab.ActiveBias("sd", num_instances=500, num_classes=2)
    addresses = set()
    for epoch in range(12):
        bias.set_epoch(epoch)
        addresses.add(bias.history._rows.values.data_ptr())
        for index, prob in skewed_batches(16, num_instances=500, seed=epoch, skew=2):
            bias.record(index, prob)
    assert len(addresses) < 6
    assert bias.history.num_overwritten == 0


def test_a_state_that_needs_another_array_is_refused_after_a_capture(monkeypatch):
    pretend_gpu(monkeypatch)
    bias, _ = visited("sd")
    captured = ab.ActiveBias("sd", num_instances=50, num_classes=2)
    captured.set_epoch(0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    captured.record([0], [0.5])
    with pytest.raises(ValueError, match="before the capture"):
        captured.load_state_dict(bias.state_dict())
    captured.load_state_dict(captured.state_dict())  # fits


def test_room_that_was_made_stays(monkeypatch):
    pretend_gpu(monkeypatch)
    bias = ab.ActiveBias("sd", num_instances=4, num_classes=2)
    bias.history.make_room(2000)
    bias.set_epoch(0)
    for _ in range(200):
        bias.record(torch.zeros(10, dtype=torch.int64), torch.full((10,), 0.25))
    assert bias.history.num_overwritten == 0
    assert bias.history.values([0])[1].sum() == 2001


def test_a_batch_of_a_ragged_history_may_repeat_an_instance_many_times():
    history = ab.PredictionHistory(3, initial=0.5)
    for size in (1, 30, 400):
        history.append(sort_visits(np.full(size, 1), np.linspace(0, 1, size, dtype=np.float32)))
    values, valid = history.values()
    assert valid.sum(1).tolist() == [1, 432, 1]
    np.testing.assert_allclose(values[1, -400:], np.linspace(0, 1, 400), atol=1e-7)


def test_histories_are_lists_of_their_visits():
    """Also where rows are laid out anew in the middle of a batch that other rows had room for."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        history, expected = ab.PredictionHistory(6, initial=0.5), [[0.5] for _ in range(6)]
        for _ in range(12):
            index = rng.integers(6, size=rng.integers(1, 12))
            prob = rng.integers(64, size=len(index)) / np.float32(64)
            history.append(sort_visits(index, prob))
            for each, value in zip(index, prob, strict=True):
                expected[each].append(value)
            values, valid = history.values()
            assert [row[kept].tolist() for row, kept in zip(values, valid, strict=True)] == expected
            entries, count = history.entries(np.unique(index))
            for row, number, each in zip(entries, count, np.unique(index), strict=True):
                assert row[:number].tolist() == expected[each]
