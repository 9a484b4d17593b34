"""Memory: what an instance costs, growing as needed, two bytes an entry, and a file instead of RAM."""

import gzip

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import activebias as ab
from activebias.history import decode, encode
from activebias.statistics import middle_two, select_middle_two
from training import digits, make_model, step


@pytest.mark.parametrize("method", list(ab.METHODS))
def test_a_window_of_five_costs_at_most_twenty_bytes_an_instance(method):
    bias = ab.ActiveBias(method, num_instances=100_000, num_classes=10, window=5, storage="float16")
    bias.set_epoch(0)
    next(iter(bias.sampler(batch_size=1)))
    order = bias._order.items.permutation.nbytes if bias.method.order == "scan" else 0
    assert (bias.num_bytes + order) / 100_000 < 20


def test_a_full_history_grows_as_it_is_needed():
    bias = ab.ActiveBias("wpv", num_instances=20, num_classes=2)
    for epoch in range(60):
        bias.set_epoch(epoch)
        bias.record(np.arange(20), np.full(20, epoch / 64))
    values, valid = bias.history.values([3])
    assert valid.sum().item() == 61
    assert values[0].tolist() == [0.5] + [epoch / 64 for epoch in range(60)]
    assert bias.history.capacity < 100


def test_one_instance_visited_very_often_grows_the_history_too():
    bias = ab.ActiveBias("sd", num_instances=20, num_classes=2)
    bias.set_epoch(0)
    bias.record(np.full(500, 7), np.linspace(0, 1, 500))
    values, valid = bias.history.values([7, 8])
    assert valid.sum(1).tolist() == [501, 1]
    np.testing.assert_allclose(values[0, 1:], np.linspace(0, 1, 500), atol=1e-7)


@pytest.mark.parametrize("window", [1, 2, 5, 127, 128, 300])
def test_a_window_keeps_the_latest_entries_oldest_first(window):
    bias = ab.ActiveBias("wtc", num_instances=2, num_classes=2, window=window)
    bias.set_epoch(0)
    stream = [0.5]
    for visit in range(700):
        stream.append(visit / 1024)
        bias.record([1], [stream[-1]])
        if visit % 37 == 0 or visit > 690:
            values, valid = bias.history.values([1])
            assert values[valid].tolist() == stream[-window:]


def test_two_bytes_are_fine_at_both_ends():
    prob = np.float32([-0.0, 0.0, 1e-7, 1e-5, 0.1, 0.5, 0.50001, 0.9, 0.9999, 0.99999, 1 - 1e-7, 1.0])
    back = decode(encode(prob, "float16"), "float16")
    assert encode(prob, "float16").dtype == np.float16
    np.testing.assert_allclose(back, prob, atol=1.3e-4)
    np.testing.assert_allclose(1 - back[prob > 0.5], 1 - prob[prob > 0.5], rtol=6e-4, atol=6e-8)
    np.testing.assert_array_equal(decode(encode(back, "float16"), "float16"), back)
    torch_back = decode(encode(torch.tensor(prob), "float16"), "float16").numpy()
    np.testing.assert_array_equal(torch_back, back)


def scores_by_storage(inputs, targets, statistic_codes, window):
    """Train a real net on it; return the scores that float32, two bytes and float64 arithmetic give."""
    model = make_model(num_inputs=inputs.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    size = len(inputs)
    stored = {
        (code, storage): ab.ActiveBias(
            code, num_instances=size, num_classes=10, window=window, storage=storage
        )
        for code in statistic_codes
        for storage in ("float32", "float16")
    }
    driver = ab.ActiveBias("scan", num_instances=size, num_classes=10)
    for epoch in range(12):
        driver.set_epoch(epoch)
        for bias in stored.values():
            bias.set_epoch(epoch)
        for index in torch.tensor(list(driver.sampler(batch_size=64))).split(64):
            step(model, optimizer, driver, inputs[index], targets[index], index)
            prob = driver.history.values(index)[0]
            prob = prob[torch.arange(len(index)), driver.history.values(index)[1].sum(1) - 1]
            for bias in stored.values():
                bias.record(index, prob)
    values, valid = driver.history.values()
    width = values.shape[1] if window is None else window
    exact = ab.statistics.estimate(values[:, -width:].double(), valid[:, -width:].sum(1))
    return stored, {code: ab.METHODS[code].statistic(exact) for code in statistic_codes}


def check_ranks(inputs, targets, window):
    codes = ("wd", "we", "wpv", "wtc")
    stored, exact = scores_by_storage(inputs, targets, codes, window)
    for code in codes:
        for storage in ("float32", "float16"):
            agreement = spearmanr(stored[code, storage].scores, exact[code]).statistic
            assert agreement >= 0.999, (code, storage, agreement)


@pytest.mark.parametrize("window", [None, 5])
def test_two_bytes_rank_like_float64_on_digits(window):
    check_ranks(*digits(1797), window)


def test_two_bytes_rank_like_float64_on_mnist(real_data):
    folder = real_data("mnist")

    def read(name, header):
        return np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8, offset=header)

    inputs = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784)[:2000].astype(np.float32) / 255
    targets = read("train-labels-idx1-ubyte.gz", 8)[:2000].astype(np.int64)
    check_ranks(torch.from_numpy(inputs), torch.from_numpy(targets), None)


def test_a_memory_mapped_file_holds_the_history(tmp_path):
    settings = {"num_instances": 1000, "num_classes": 4, "window": 5, "storage": "float16"}
    mapped = ab.ActiveBias("wpv", **settings, history_file=tmp_path / "history.bin")
    in_memory = ab.ActiveBias("wpv", **settings)
    generator = torch.Generator().manual_seed(0)
    for bias in (mapped, in_memory):
        bias.set_epoch(0)
    for _ in range(30):
        index = torch.randint(1000, (100,), generator=generator)
        prob = torch.rand(100, generator=generator)
        mapped.record(index, prob)
        in_memory.record(index, prob)
    assert torch.equal(mapped.scores, in_memory.scores)
    assert torch.equal(mapped.history.values()[0], in_memory.history.values()[0])
    assert (tmp_path / "history.bin").stat().st_size == 1001 * 5 * 2
    ab.ActiveBias("wpv", **settings, history_file=tmp_path / "history.bin")  # its own file may be used again


def test_a_file_that_is_no_history_is_not_overwritten(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    with pytest.raises(FileExistsError, match=r"notes\.txt exists, and is no history of 10 instances"):
        ab.ActiveBias("wpv", num_instances=10, num_classes=2, window=5, history_file=notes)
    assert notes.read_text() == "precious"


@pytest.mark.parametrize("method", ["wpv", "wtc", "wd", "spv"])
def test_scores_that_all_return_to_zero_give_weights_of_one(method):
    """A running sum keeps a residue of 1e-13, by which every weight would become one half."""
    bias = ab.ActiveBias(method, num_instances=2000, num_classes=10, window=3)
    bias.set_epoch(0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        for index in torch.randperm(2000, generator=generator).split(64):
            bias.record(index, 1 - 10 ** (-7 * torch.rand(len(index), generator=generator)))
    for _ in range(4):
        for index in torch.randperm(2000, generator=generator).split(64):
            bias.record(index, torch.ones(len(index)))
    assert bias.scores.abs().max() == 0
    assert torch.equal(bias.weights(), torch.ones(2000))


def test_selecting_the_median_is_sorting_for_it():
    generator = torch.Generator().manual_seed(0)
    for width in (1, 2, 5, 300):
        count = torch.randint(1, width + 1, (200,), generator=generator)
        values = torch.rand(200, width, generator=generator).round(decimals=1)  # with many equal ones
        values = torch.where(torch.arange(width) < count[:, None], values, float("inf"))
        for ours, theirs in zip(select_middle_two(values, count), middle_two(values, count), strict=True):
            assert torch.equal(ours, theirs)
