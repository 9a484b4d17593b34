"""The end of an automatic burn-in, and the warning of a model that memorises."""

import copy
import json
import warnings

import pytest
import torch

import activebias as ab
from activebias.validation import has_saturated, memorises, training_error
from processes import finish, start
from rank_worker import end_burn_in, run
from training import digits, make_model

FALLING = [0.5, 0.4, 0.3, 0.31, 0.3, 0.33]  # the best at epoch 2, three without a better one up to epoch 5


def make(method="wtc", *, burn_in="auto", num=8, **settings):
    return ab.ActiveBias(method, num_instances=num, num_classes=2, burn_in=burn_in, **settings)


def train_epoch(bias, epoch, prob=0.4):
    bias.set_epoch(epoch)
    index = torch.arange(bias.num_instances)
    bias.record(index, torch.linspace(prob - 0.1, prob, len(index)))


def epochs(bias, errors, *, first=0, prob=0.4):
    for epoch, error in enumerate(errors, first):
        train_epoch(bias, epoch, prob)
        bias.report_validation_error(error)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([], False),
        ([0.1, 0.1, 0.1], False),
        ([0.1, 0.1, 0.1, 0.1], True),
        (FALLING, True),
        (FALLING[:-1], False),
        ([0.5, 0.4, 0.45, 0.42, 0.39], False),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], False),
        ([1.0] * 30, False),
        ([1.0] * 7 + [0.96, 1.0, 0.9, 0.91, 0.92], False),  # a tagger that begins to find entities
        ([1.0] * 7 + [0.96, 1.0, 0.9, 0.91, 0.92, 0.9], True),
        ([0.99, 1.0, 1.0, 1.0, 1.0], False),
        ([0.99, 0.999, 0.999, 0.999], True),
        ([0.0] * 4, True),
    ],
)
def test_the_rule(errors, expected):
    assert has_saturated(errors) is expected


@pytest.mark.filterwarnings("ignore:Method .* emphasises by the order")
@pytest.mark.parametrize("method", ["wtc", "spv", "isd"])
def test_the_burn_in_ends_after_three_epochs_without_a_new_best_error(method):
    bias = make(method)
    bias.sampler(batch_size=4)
    for epoch, error in enumerate([*FALLING, 0.2, 0.1]):
        train_epoch(bias, epoch, 0.4)
        assert bias.emphasises is (epoch >= 6)
        assert bias.burn_in_end == (6 if epoch >= 6 else None)
        bias.report_validation_error(error)
    assert bias.burn_in == "auto"
    assert bias.probabilities() is None or bias.probabilities().std() > 0


def test_only_the_last_report_of_an_epoch_counts():
    bias = make()
    for epoch in range(4):
        train_epoch(bias, epoch)
        for error in (0.9, 0.8, 0.5 - 0.1 * epoch):
            bias.report_validation_error(error)
    bias.set_epoch(4)
    assert not bias.emphasises


def test_a_fixed_burn_in_stays_as_it_is():
    bias = make(burn_in=2)
    assert bias.burn_in_end == 2
    epochs(bias, [0.1] * 2)
    assert not bias.emphasises
    epochs(bias, [0.1] * 6, first=2)
    assert bias.emphasises
    assert bias.burn_in_end == 2


@pytest.mark.parametrize("stop", range(1, 8))
def test_going_on_from_a_checkpoint_is_exact(stop, tmp_path):
    whole, errors = make(), [*FALLING, 0.2, 0.3]
    epochs(whole, errors)
    first = make()
    epochs(first, errors[:stop])
    first.save(tmp_path / "bias.pt")  # reported, but the next epoch has not begun
    second = make()
    second.load(tmp_path / "bias.pt")
    assert second.state_dict()["validation"] == first.state_dict()["validation"]
    epochs(copy.deepcopy(second), errors[stop:], first=stop)
    epochs(second, errors[stop:], first=stop)
    assert second.burn_in_end == whole.burn_in_end == 6
    assert second.state_dict()["validation"] == whole.state_dict()["validation"]
    assert torch.equal(second.weights(), whole.weights())
    with pytest.raises(ValueError, match="burn_in='auto' there, 3 here"):
        make(burn_in=3).load(tmp_path / "bias.pt")


def test_a_model_that_gets_nothing_right_has_not_begun_to_learn():
    bias = make()
    epochs(bias, [1.0] * 9 + [0.9, 0.8, 0.8, 0.85, 0.8, 0.8])
    assert bias.burn_in_end == 14


def test_a_model_that_never_gets_anything_right_is_warned_of_once(tmp_path):
    bias = make()
    epochs(bias, [1.0] * 9)
    bias.save(tmp_path / "bias.pt")
    again = make()
    again.load(tmp_path / "bias.pt")
    for each in (bias, again):
        epochs(each, [1.0], first=9)
        with pytest.warns(ab.NothingRightWarning, match=r"100 % for 10 epochs.*give `burn_in` as a number"):
            each.set_epoch(10)
        epochs(each, [1.0] * 20, first=10)  # warnings are errors
        assert each.burn_in_end is None
        assert not each.emphasises
    epochs(make(burn_in=30), [1.0] * 20)  # nobody waits for it


def test_an_automatic_burn_in_without_errors_is_refused():
    bias = make()
    for epoch in range(3):
        train_epoch(bias, epoch)
    with pytest.raises(RuntimeError, match=r"none came in 3 epochs: call `bias\.report_validation_error"):
        bias.set_epoch(3)
    bias.report_validation_error(0.5)  # the fix works in place
    bias.set_epoch(3)
    for epoch in range(3, 9):  # seldom is enough
        train_epoch(bias, epoch)
    bias.set_epoch(9)


@pytest.mark.parametrize("error", [-0.1, 3.4, float("nan"), float("inf")])
def test_an_error_that_is_no_share_is_refused(error):
    bias = make()
    bias.set_epoch(0)
    with pytest.raises(ValueError, match="share of wrong predictions, from 0 to 1"):
        bias.report_validation_error(error)


def test_the_epoch_must_be_known():
    with pytest.raises(RuntimeError, match="set_epoch"):
        make().report_validation_error(0.1)
    with pytest.raises(ValueError, match="number of epochs or 'auto', but got 'automatic'"):
        make(burn_in="automatic")


def test_ranks_end_the_burn_in_together(tmp_path):
    """Each rank reports its own part's error, or the first rank reports for all: the same end everywhere."""
    finish(*(start(run, end_burn_in, tmp_path, rank, 2) for rank in range(2)))
    for rank in range(2):
        result = json.loads((tmp_path / f"{rank}.json").read_text())
        assert result == {whose: [False] * 6 + [True] * 2 for whose in ("own", "first")}


# The guard


def test_a_model_that_memorises_is_warned_of_once():
    bias = make()
    with pytest.warns(ab.MemorisationWarning, match=r"after epoch 0.*30\.0 %.*simpler or more regularised"):
        epochs(bias, [0.3], prob=0.99)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epochs(bias, [0.3, 0.3], first=1, prob=0.99)
        again = make()
        again.load_state_dict(bias.state_dict())
        epochs(again, [0.3, 0.3], first=3, prob=0.99)


@pytest.mark.parametrize(
    ("errors", "prob", "burn_in", "first"),
    [
        ([0.02], 0.99, 0, 0),  # the task is easy
        ([0.3], 0.55, 0, 0),  # half the instances are wrong
        ([0.3], 0.99, 0, 10),  # late, and the burn-in is over
    ],
)
def test_a_model_that_learns_is_left_alone(errors, prob, burn_in, first):
    epochs(make(burn_in=burn_in), errors, prob=prob, first=first)  # warnings are errors


def test_a_long_burn_in_is_watched_to_its_end():
    with pytest.warns(ab.MemorisationWarning, match="after epoch 30"):
        epochs(make(burn_in=40), [0.3], prob=0.99, first=30)


def test_the_limits():
    assert memorises(0.01, 0.07)
    assert not memorises(0.011, 0.5)
    assert not memorises(0.01, 0.05)


@pytest.mark.parametrize("settings", [{}, {"window": 1}, {"window": 3}, {"storage": "float16"}])
def test_the_training_error_is_that_of_the_latest_visits(settings):
    bias = make(num=4, burn_in=0, **settings)
    assert training_error(bias.history) == 1  # nobody has been visited: ½ is not right
    for epoch in range(5):
        bias.set_epoch(epoch)
        bias.record([0, 1, 2], [0.9, 0.1 if epoch % 2 else 0.9, 0.4])
        assert training_error(bias.history) == (0.75 if epoch % 2 else 0.5)
    bias.record([2, 2], [0.1, 0.9])
    assert training_error(bias.history) == 0.25


def test_a_real_net_that_memorises_random_labels_is_warned_of():
    inputs, _ = digits(60)
    targets = torch.randint(2, (60,), generator=torch.Generator().manual_seed(0))
    bias = make("wpv", num=60, burn_in=40)
    net = make_model(num_classes=2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)

    def train():
        for epoch in range(40):
            bias.set_epoch(epoch)
            for index in torch.arange(60).split(6):
                loss = bias.loss(net(inputs[index]), targets[index], index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            bias.report_validation_error(0.5)

    with pytest.warns(ab.MemorisationWarning):
        train()
