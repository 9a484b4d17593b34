"""Bad input gets a clear error and loses nothing."""

import numpy as np
import pytest
import torch

import activebias as ab


@pytest.fixture
def bias():
    bias = ab.ActiveBias("wpv", num_instances=10, num_classes=4)
    bias.set_epoch(0)
    bias.record([1, 2], [0.5, 0.9])
    return bias


@pytest.fixture(autouse=True)
def nothing_is_lost(bias):
    before = bias.scores, bias.history.values()
    yield
    assert torch.equal(bias.scores, before[0])
    assert torch.equal(bias.history.values()[0], before[1][0])
    assert torch.equal(bias.history.values()[1], before[1][1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "wvp"}, ValueError, "one of uni, scan.*got 'wvp'.*Did you mean 'wpv'"),
        ({"method": 3}, TypeError, "name or a Method.*got int"),
        ({"num_instances": 0}, ValueError, "`num_instances` to be at least 1, but got 0"),
        ({"num_instances": -5}, ValueError, "`num_instances` to be at least 1, but got -5"),
        ({"num_instances": 10.0}, TypeError, "`num_instances` to be an integer, but got 10.0"),
        ({"num_classes": 1}, ValueError, "`num_classes` to be at least 2"),
        ({"burn_in": -1}, ValueError, "`burn_in` to be at least 0, but got -1"),
        ({"window": 0}, ValueError, "`window` to be at least 1, but got 0"),
        ({"method": "spv", "window": 1}, ValueError, "variance of a history, but `window` is 1.*at least 2"),
        ({"window": 2.5}, TypeError, "`window` to be an integer, but got 2.5"),
        ({"storage": "int8"}, ValueError, "`storage` to be one of.*got 'int8'"),
        ({"seed": -1}, ValueError, "`seed` to be at least 0"),
        ({"history_file": "x"}, ValueError, "needs a fixed `window`"),
        (
            {"device": "mps"},
            ValueError,
            "`device` to be the CPU or a CUDA GPU.*got 'mps'.*Leave `dev",
        ),
        ({"device": torch.device("xpu", 0)}, ValueError, "got 'xpu:0': the scores need float64"),
    ],
)
def test_arguments_of_the_constructor(arguments, error, message):
    settings = {"method": "wpv", "num_instances": 10, "num_classes": 4, **arguments}
    with pytest.raises(error, match=message):
        ab.ActiveBias(settings.pop("method"), **settings)


def test_everything_after_the_method_is_keyword_only():
    with pytest.raises(TypeError):
        ab.ActiveBias("wpv", 10, 4)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([10], ValueError, "from 0 to 9.*but got 10"),
        ([-1], ValueError, "from 0 to 9.*but got -1"),
        ([1.0], TypeError, "`index` to hold integers.*float"),
        (np.array([1.0]), TypeError, "`index` to hold integers.*float64"),
        (torch.tensor([1], dtype=torch.bfloat16), TypeError, "bfloat16 turns 49999 into 49920"),
        ([True], TypeError, "`index` to hold integers"),
        (3, ValueError, "use \\[i\\]"),
    ],
)
def test_indices(bias, index, error, message):
    with pytest.raises(error, match=message):
        bias.record(index, [0.5])
    with pytest.raises(error, match=message):
        bias.weight(index)
    with pytest.raises(error, match=message):
        bias.weigh(torch.ones(1), torch.full((1,), 0.5), index)


@pytest.mark.parametrize("prob", [[1.2], [-0.2], [7.0]])
def test_probabilities_outside_the_unit_interval(bias, prob):
    with pytest.raises(ValueError, match=r"in \[0, 1\].*softmax"):
        bias.record([0], prob)


def test_a_rounding_error_above_one_is_no_error():
    bias = ab.ActiveBias("wpv", num_instances=10, num_classes=4)
    bias.set_epoch(0)
    bias.record([0, 1], [1.0 + 1e-7, -1e-8])
    assert bias.history.values([0, 1])[0][:, 1].tolist() == [1.0, 0.0]


def test_probabilities_that_are_not_finite_are_skipped_and_counted():
    bias = ab.ActiveBias("wpv", num_instances=10, num_classes=4)
    bias.set_epoch(0)
    bias.record([0, 1, 2, 3], [float("nan"), float("inf"), 0.5, float("-inf")])
    assert bias.num_skipped == 3
    assert bias.history.values()[1].sum(1).tolist() == [1, 1, 2, 1, 1, 1, 1, 1, 1, 1]
    loss = bias.loss(torch.full((2, 4), float("nan")), torch.tensor([0, 1]), [4, 5])
    assert loss.isnan()
    assert bias.num_skipped == 5
    assert bias.scores.isfinite().all()


@pytest.mark.parametrize(
    ("logits", "targets", "index", "error", "message"),
    [
        (torch.ones(2, 4), torch.tensor([0, 4]), [0, 1], ValueError, "labels from 0 to 3.*but got 4"),
        (torch.ones(2, 4), torch.tensor([0, -1]), [0, 1], ValueError, "labels from 0 to 3.*but got -1"),
        (torch.ones(2, 5), torch.tensor([0, 1]), [0, 1], ValueError, r"shape \(2, 4\).*but got \(2, 5\)"),
        (torch.ones(2, 4), torch.tensor([0, 1, 2]), [0, 1], ValueError, r"shape \(3, 4\).*got \(2, 4\)"),
        (torch.ones(2, 4), torch.tensor([0, 1]), [0], ValueError, r"same shape.*\(2,\) and \(1,\)"),
        (torch.ones(2), torch.tensor([0, 1]), [0, 1], ValueError, "binary logits, but there are 4"),
        (torch.ones(2, 4), torch.ones(2, 4).long(), [0, 1], ValueError, r"labels of shape \(2,\).*`argmax"),
        (torch.ones(2, 4), torch.tensor([0.0, 1.0]), [0, 1], TypeError, "integer class labels"),
        (torch.ones(2, 4).long(), torch.tensor([0, 1]), [0, 1], TypeError, "floating-point tensor"),
        (np.ones((2, 4)), torch.tensor([0, 1]), [0, 1], TypeError, "floating-point tensor"),
    ],
)
def test_logits_and_targets(bias, logits, targets, index, error, message):
    with pytest.raises(error, match=message):
        bias.loss(logits, targets, index)


def test_binary_targets_other_than_zero_and_one():
    bias = ab.ActiveBias("wpv", num_instances=10, num_classes=2)
    bias.set_epoch(0)
    with pytest.raises(ValueError, match="labels from 0 to 1"):
        bias.loss(torch.ones(2), torch.tensor([2, 1]), [0, 1])


def test_a_newcomers_mistakes_are_named():
    bias = ab.ActiveBias("wpv", num_instances=10, num_classes=2)
    bias.set_epoch(0)
    with pytest.raises(ValueError, match=r"as `with_index` brings it"):
        bias.loss(torch.ones(2, 2), torch.tensor([0, 1]), 3)
    with pytest.raises(ValueError, match=r"-1 is the padding of `TokenIndex`.*`ignore_index`"):
        bias.loss(torch.ones(1, 2, 2), torch.tensor([[0, 1]]), torch.tensor([[3, -1]]))
    with pytest.raises(ValueError, match=r"wrap the outermost one in `with_index`"):
        bias.record([10], [0.5])
    with pytest.raises(ValueError, match=r"`tokens\(sentence, width=…\)`"):
        bias.loss(torch.ones(2, 3, 2), torch.zeros(2, 3, dtype=torch.int64), [0, 1])
    with pytest.raises(ValueError, match=r"use `logits\.squeeze\(-1\)`"):
        bias.loss(torch.ones(2, 1), torch.tensor([0, 1]), [0, 1])
    with pytest.raises(TypeError, match="wrap it once"):
        ab.with_index(ab.with_index([1, 2]))
    with pytest.raises(IndexError, match=r"bias\.sampler\(num_sequences=…\)"):
        ab.with_index([1, 2])[2]
    order = list(bias.sampler(batch_size=5))
    bias.record(order[:3], [0.5] * 3)
    with pytest.raises(ValueError, match=r"A batch of 3 came back.*hands out steps of 5.*must divide it"):
        bias.record(order[3:6], [0.5] * 3)


def test_shapes_of_record_and_weigh(bias):
    with pytest.raises(ValueError, match=r"`prob` and `index`.*\(1,\) and \(2,\)"):
        bias.record([0, 1], [0.5])
    with pytest.raises(ValueError, match=r"`per_instance_loss` and `index`"):
        bias.weigh(torch.ones(3), torch.ones(2), [0, 1])


def test_label_smoothing_outside_its_range(bias):
    with pytest.raises(ValueError, match=r"`label_smoothing` to be in \[0, 1\)"):
        bias.loss(torch.ones(2, 4), torch.tensor([0, 1]), [0, 1], label_smoothing=1.5)


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", None])
def test_epochs(bias, epoch):
    with pytest.raises((ValueError, TypeError), match="`epoch`"):
        bias.set_epoch(epoch)


def test_a_method_that_draws_single_words_is_refused():
    bias = ab.ActiveBias("spv", num_instances=10, num_classes=4)
    with pytest.raises(ValueError, match=r"words of a sentence.*train together"):
        bias.sampler(batch_size=2, num_sequences=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": "sorted"}, "`order` to be one of"),
        ({"weights": "inverse"}, "`weights` to be one of"),
        ({"weights": "emphasis"}, "needs a `statistic`"),
        ({"name": ""}, "`name` to be a non-empty string"),
        ({"weights": "importance"}, "corrects the order 'emphasis'"),
    ],
)
def test_own_methods_that_mean_nothing(arguments, message):
    with pytest.raises(ValueError, match=message):
        ab.Method(**{"name": "own", **arguments})


@pytest.mark.parametrize(
    ("statistic", "message"),
    [
        (lambda e: e.mean - 0.5, "finite scores of at least 0"),
        (lambda e: e.mean * float("nan"), "finite scores"),
        (lambda e: 0.5, "one score per instance"),
        (lambda e: e.mean.numpy(), r"returned a ndarray of shape \(1,\)"),
        (lambda e: e.mean.double() + 1e40, "finite scores"),
    ],
)
def test_own_statistics_that_return_nonsense(statistic, message):
    method = ab.Method("own", statistic=statistic, weights="emphasis")
    with pytest.raises(ValueError, match=message):
        ab.ActiveBias(method, num_instances=10, num_classes=4)


@pytest.mark.parametrize("window", [None, 2, 5])
def test_an_own_statistic_that_fails_later_loses_nothing(window):
    method = ab.Method("own", statistic=lambda e: 0.5 - e.mean, weights="emphasis")
    bias = ab.ActiveBias(method, num_instances=10, num_classes=4, window=window)
    bias.set_epoch(0)
    bias.record([3, 3], [0.1, 0.2])
    before = bias.scores, bias.history.values()
    with pytest.raises(ValueError, match="finite scores of at least 0"):
        bias.record([3, 4, 4], [0.3, 0.9, 0.9])
    assert torch.equal(bias.scores, before[0])
    assert all(torch.equal(*pair) for pair in zip(bias.history.values(), before[1], strict=True))


@pytest.mark.parametrize("parts", [(4,), (2, 2)], ids=["whole step", "accumulated"])
def test_a_step_that_an_own_statistic_refuses_does_not_count(parts):
    method = ab.Method("own", statistic=lambda e: 0.5 - e.mean, weights="emphasis")
    bias = ab.ActiveBias(method, num_instances=8, num_classes=4)
    bias.set_epoch(0)
    order = torch.tensor(list(bias.sampler(batch_size=4)))
    *waiting, last = order[:4].split(parts)
    for index in waiting:
        bias.record(index, [0.9] * len(index))
    with pytest.raises(ValueError, match="finite scores of at least 0"):
        bias.record(last, [0.9] * len(last))
    assert bias.sampler(batch_size=4).num_remaining == 8
    assert int(bias.history.values()[1].sum()) == 8
    for index in order[:4].split(parts):
        bias.record(index, [0.1] * len(index))
    assert bias.sampler(batch_size=4).num_remaining == 4


def test_names_of_the_papers_methods_are_taken():
    with pytest.raises(ValueError, match=r"'wpv' is one of our methods.*another name"):
        ab.ActiveBias(ab.Method("wpv", statistic=lambda e: e.mean), num_instances=3, num_classes=2)
    again = ab.Method("scan")  # the same as the paper's
    assert ab.ActiveBias(again, num_instances=3, num_classes=2).method.name == "scan"


def test_a_first_epoch_after_the_burn_in_is_warned_of():
    bias = ab.ActiveBias("wpv", num_instances=4, num_classes=3, burn_in=3)
    with pytest.warns(UserWarning, match=r"first epoch is 7.*`load` before `set_epoch`"):
        bias.set_epoch(7)
    ab.ActiveBias("scan", num_instances=4, num_classes=3, burn_in=3).set_epoch(7)  # emphasises nothing
    bias = ab.ActiveBias("wpv", num_instances=4, num_classes=3, burn_in=3)
    bias.set_epoch(2)
    resumed = ab.ActiveBias("wpv", num_instances=4, num_classes=3, burn_in=3)
    resumed.load_state_dict(bias.state_dict())
    resumed.set_epoch(3)
    assert resumed.emphasises


def test_an_own_statistic_may_use_torch():
    method = ab.Method("own", statistic=lambda e: torch.sqrt(e.variance), weights="emphasis")
    bias = ab.ActiveBias(method, num_instances=3, num_classes=2)
    bias.set_epoch(0)
    bias.record([0], [1.0])
    torch.testing.assert_close(bias.scores, torch.tensor([0.125**0.5, 0.0, 0.0]))


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (torch.tensor([1, 0]), TypeError, "`mask` to hold booleans"),
        (torch.tensor([True]), ValueError, r"`mask` and `index`.*\(1,\) and \(2,\)"),
    ],
)
def test_masks(bias, mask, error, message):
    with pytest.raises(error, match=message):
        bias.record([0, 1], [0.5, 0.5], mask=mask)
    with pytest.raises(error, match=message):
        bias.weigh(torch.ones(2), [0.5, 0.5], [0, 1], mask=mask)


def test_a_mask_may_be_a_list_and_hides_any_index(bias):
    weight = bias.weight([1, -1], mask=[True, False])
    assert weight[1] == 0
    assert weight[0] == bias.weight([1])[0]


def test_things_that_are_no_arrays(bias):
    with pytest.raises(TypeError, match="`index` to be a list, an array or a tensor"):
        bias.record(None, [0.5])
    with pytest.raises(ValueError, match="from 0 to 9"):
        bias.history.values([10])
    with pytest.raises(ValueError, match="from 0 to 9"):
        bias.history.values([-1])


def test_words_without_their_sentences():
    bias = ab.ActiveBias("wtc", num_instances=100, num_classes=4)
    bias.sampler(batch_size=2, num_sequences=20)
    bias.set_epoch(0)
    with pytest.raises(ValueError, match=r"shape \(sentences, words\)"):
        bias.loss(torch.zeros(10, 4), torch.zeros(10, dtype=torch.int64), torch.arange(10))


def test_a_method_that_draws_warns_when_nobody_draws():
    bias = ab.ActiveBias("spv", num_instances=10, num_classes=4)
    bias.set_epoch(0)
    bias.record([0, 1], [0.5, 0.9])
    bias.probabilities()  # for a log, it draws nothing
    with pytest.warns(UserWarning, match=r"nobody asked for that order.*sampler=bias\.sampler"):
        bias.set_epoch(1)
    bias.record([0, 1], [0.5, 0.9])
    bias.set_epoch(2)  # said once


def test_a_method_that_draws_does_not_warn_where_somebody_draws():
    bias = ab.ActiveBias("spv", num_instances=10, num_classes=4)
    bias.set_epoch(0)
    bias.record(list(bias.sampler(batch_size=10)), [0.5] * 10)
    bias.set_epoch(1)


def test_made_under_inference_mode_and_used_outside():
    with torch.inference_mode():
        bias = ab.ActiveBias("wpv", num_instances=10, num_classes=4)
    bias.set_epoch(0)
    for _ in range(20):
        with torch.inference_mode():
            bias.record([1], [0.5])
        bias.record([1], [0.5])
    assert bias.history.values([1])[1].sum() == 41


def test_read_only_and_reversed_arrays(bias):
    twin = ab.ActiveBias("wpv", num_instances=10, num_classes=4)
    twin.set_epoch(0)
    index, prob = np.array([3, 2, 1]), np.array([0.1, 0.2, 0.3])
    index.flags.writeable = prob.flags.writeable = False
    twin.record(index[::-1], prob[::-1])
    twin.record(index, prob)
    torch.testing.assert_close(twin.history.values([1])[0], torch.tensor([[0.25, 0.3, 0.3]]))


def test_other_default_types_and_devices():
    torch.set_default_dtype(torch.float64)
    try:
        for method in ab.METHODS:
            bias = ab.ActiveBias(method, num_instances=10, num_classes=4, burn_in=1)
            for epoch in range(2):
                bias.set_epoch(epoch)
                index = torch.tensor(list(bias.sampler(batch_size=10)))
                assert bias.weight(index).dtype == bias.scores.dtype == torch.float32
                bias.record(index, torch.rand(10))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        for method in ab.METHODS:
            bias = ab.ActiveBias(method, num_instances=10, num_classes=4)
            bias.set_epoch(0)
            index = list(bias.sampler(batch_size=10))
            bias.record(index, [0.5] * 10)
            assert bias.history.values(index)[1].shape[0] == 10


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_replicas": 0, "rank": 0}, ValueError, "`num_replicas` to be at least 1"),
        ({"num_replicas": 2.0, "rank": 0}, TypeError, "`num_replicas` to be an integer"),
        ({"num_replicas": 2, "rank": 2}, ValueError, "`rank` to be below `num_replicas`, 2, but got 2"),
        ({"num_replicas": 2, "rank": -1}, ValueError, "`rank` to be at least 0"),
    ],
)
def test_ranks_of_a_sampler(bias, arguments, error, message):
    with pytest.raises(error, match=message):
        bias.sampler(batch_size=2, **arguments)


@pytest.mark.parametrize("name", ["remove_outliers", "multi_label"])
def test_flags_are_true_or_false(name):
    with pytest.raises(TypeError, match=f"`{name}` to be True or False, but got 'no'"):
        ab.ActiveBias("wpv", num_instances=4, num_classes=2, **{name: "no"})
