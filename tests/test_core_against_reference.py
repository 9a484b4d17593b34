"""The library, by its public names only, against the worked numbers and, step by step, the reference."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from reference import METHODS, TIE, ReferenceActiveBias

CASES = json.loads((Path(__file__).parent / "data" / "plans.json").read_text())["cases"]
TOLERANCE = 1e-5  # method.md: absolute, in float32
# How far float32 rounding can move a deviation, or twice the median, around the outlier threshold.
EDGE = 4e-7

Batch = tuple[list[int], list[float]]


def assert_close(got, want: list[float], what: str) -> None:
    got = torch.as_tensor(got).to("cpu", torch.float64)
    assert got.shape == (len(want),), what
    worst = (got - torch.tensor(want, dtype=torch.float64)).abs().max().item()
    assert worst <= TOLERANCE, f"{what}: off by {worst:.2e}"


def assert_equal_to_reference(bias: ab.ActiveBias, reference: ReferenceActiveBias, when: str) -> None:
    if reference.rule.statistic is not None:
        assert_close(bias.scores, reference.scores(), f"scores {when}")
    assert_close(bias.weights(), reference.weights(), f"weights {when}")
    probabilities = reference.probabilities()
    if probabilities is None:
        assert bias.probabilities() is None, when
    else:
        assert bias.probabilities().dtype == torch.float64
        assert_close(bias.probabilities(), probabilities, f"probabilities {when}")


def assert_same_history(bias: ab.ActiveBias, reference: ReferenceActiveBias, index: list[int]) -> None:
    values, valid = bias.history.values(torch.tensor(index))
    assert len(values) == len(valid) == len(index)
    for i, row, counts in zip(index, values, valid, strict=True):
        assert row[counts].tolist() == pytest.approx(reference.history(i), abs=1e-6), f"history of {i}"


def pair(method: str, **options) -> tuple[ab.ActiveBias, ReferenceActiveBias]:
    """Return the library and the reference with the same options, in epoch 0."""
    bias, reference = ab.ActiveBias(method, **options), ReferenceActiveBias(method, **options)
    bias.set_epoch(0)
    reference.set_epoch(0)
    return bias, reference


# --- The worked numbers -----------------------------------------------------------------------------------


def visits(case: dict) -> list[list[float]]:
    """Return the histories without their initial 1/C, which the library brings itself."""
    return [history[1:] for history in case["histories"]]


def one_visit_each(case: dict) -> Iterator[Batch]:
    """Yield batches in which the instances are interleaved and each appears at most once."""
    for visit in range(max(map(len, visits(case)))):
        index = [i for i, probs in enumerate(visits(case)) if len(probs) > visit]
        yield index, [visits(case)[i][visit] for i in index]


def one_at_a_time(case: dict) -> Iterator[Batch]:
    for index, probs in one_visit_each(case):
        for i, prob in zip(index, probs, strict=True):
            yield [i], [prob]


def several_of_one_instance(case: dict, size: int = 7) -> Iterator[Batch]:
    """Yield batches that hold runs of entries of the same instance."""
    pairs = [(i, prob) for i, probs in enumerate(visits(case)) for prob in probs]
    for start in range(0, len(pairs), size):
        index, probs = zip(*pairs[start : start + size], strict=True)
        yield list(index), list(probs)


def all_in_one_batch(case: dict) -> Iterator[Batch]:
    """Yield one batch of every entry, instances interleaved: up to 40 entries of one instance."""
    batches = list(one_visit_each(case))
    yield [i for index, _ in batches for i in index], [prob for _, probs in batches for prob in probs]


FEEDS = [one_visit_each, several_of_one_instance, all_in_one_batch]


def assert_worked_numbers(method: str, case: dict, batches: Iterator[Batch], name: str) -> None:
    bias = ab.ActiveBias(
        method,
        num_instances=len(case["histories"]),
        num_classes=case["num_classes"],
        window=case["window"],
        remove_outliers=case["remove_outliers"],
    )
    bias.set_epoch(0)
    for index, probs in batches:
        bias.record(torch.tensor(index), torch.tensor(probs))
    if METHODS[method].statistic is not None:
        assert_close(bias.scores, case["scores"][METHODS[method].statistic.__name__], f"{name}: scores")
    plan = case["plans"][method]
    assert_close(bias.weights(), plan["weights"], f"{name}: weights")
    assert_close(bias.weight(torch.arange(len(plan["weights"]))), plan["weights"], f"{name}: weight")
    if plan["probs"] is None:
        assert bias.probabilities() is None
    else:
        assert_close(bias.probabilities(), plan["probs"], f"{name}: probabilities")


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("method", METHODS)
def test_worked_numbers_hold_however_the_visits_are_batched(method, feed):
    for number, case in enumerate(CASES):
        assert_worked_numbers(method, case, feed(case), f"case {number}")


@pytest.mark.parametrize("method", ["isd", "spv", "wpv", "wtc"])
def test_worked_numbers_hold_when_recorded_one_at_a_time(method):
    for number, case in enumerate(CASES[:4]):
        assert_worked_numbers(method, case, one_at_a_time(case), f"case {number}")


# --- Real training runs -----------------------------------------------------------------------------------

NUM_INSTANCES = 300
BATCH_SIZE = 32
EPOCHS = 5


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 300 of scikit-learn's digits, a tenth of them with a random label, so that histories differ."""
    x, y = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(7)
    chosen = torch.randperm(len(x), generator=generator)[:NUM_INSTANCES]
    inputs = torch.from_numpy(x)[chosen].float() / 16
    labels = torch.from_numpy(y)[chosen].long()
    labels[::10] = torch.randint(10, labels[::10].shape, generator=generator)
    return inputs, labels


class SmallNet:
    """A two-layer net whose weights come from a generator of its own, trained with momentum."""

    def __init__(self, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        shapes = [(64, 24), (24,), (24, 10), (10,)]
        self.parameters = [
            (torch.randn(shape, generator=generator) * 0.2).requires_grad_() for shape in shapes
        ]
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.1, momentum=0.9)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        first, first_bias, second, second_bias = self.parameters
        return torch.tanh(x @ first + first_bias) @ second + second_bias

    def step(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def loader_of(bias: ab.ActiveBias, digits: tuple[torch.Tensor, torch.Tensor]) -> DataLoader:
    return DataLoader(
        ab.with_index(TensorDataset(*digits)),
        batch_size=BATCH_SIZE,
        sampler=bias.sampler(batch_size=BATCH_SIZE),
        generator=torch.Generator().manual_seed(0),
    )


def settle_edges(bias: ab.ActiveBias, reference: ReferenceActiveBias, index: list[int]) -> int:
    """Let entries that float32 cannot place on either side of the outlier threshold fall as the library says.

    Outlier removal jumps there, so both sides are right. Only entries within `EDGE` of the threshold move,
    less than half the tie constant. Returns the number of instances that needed it.
    """
    if reference.rule.statistic is None or not reference.remove_outliers:
        return 0
    settled = 0
    for i in set(index):
        got = bias.scores[i].item()
        if abs(got - reference.scores()[i]) > 1e-6:
            for tie in (TIE - EDGE, TIE + EDGE):
                if abs(got - reference.score_of(i, tie)) <= 1e-6:
                    reference.retake(i, tie)
                    settled += 1
                    break
    return settled


@pytest.mark.parametrize("remove_outliers", [True, False], ids=["removal", "no-removal"])
@pytest.mark.parametrize("window", [None, 5], ids=["full", "window5"])
@pytest.mark.parametrize("method", METHODS)
def test_every_step_of_a_real_run_equals_the_reference(digits, method, window, remove_outliers):
    bias, reference = pair(
        method,
        num_instances=NUM_INSTANCES,
        num_classes=10,
        burn_in=1,
        window=window,
        remove_outliers=remove_outliers,
    )
    assert_equal_to_reference(bias, reference, "at the start")
    net, loader = SmallNet(), loader_of(bias, digits)
    settled = 0
    for epoch in range(EPOCHS):
        bias.set_epoch(epoch)
        reference.set_epoch(epoch)
        seen = []
        for step, (index, (x, y)) in enumerate(loader):
            when = f"in epoch {epoch}, step {step}"
            instances = index.tolist()
            assert index.dtype == torch.int64
            assert torch.equal(x, digits[0][index]), when
            logits = net(x)
            exact = logits.detach().double()
            losses = functional.cross_entropy(exact, y, reduction="none").tolist()
            prob = exact.softmax(-1).gather(-1, y[:, None])[:, 0].float().tolist()

            weights = reference.weights()
            assert_close(bias.weight(index), [weights[i] for i in instances], f"weight {when}")
            loss = bias.loss(logits, y, index)
            want = reference.weighted_mean_loss(losses, instances)
            assert loss.item() == pytest.approx(want, abs=TOLERANCE), f"loss {when}"
            net.step(loss)

            reference.record(instances, prob)
            assert_same_history(bias, reference, instances)
            settled += settle_edges(bias, reference, instances)
            assert_equal_to_reference(bias, reference, when)
            seen += instances
        assert len(seen) == NUM_INSTANCES
        if not METHODS[method].draws:
            assert sorted(seen) == list(range(NUM_INSTANCES)), "a scan visits every instance once"
    # Otherwise "on the edge" would hide a difference.
    assert settled <= EPOCHS * NUM_INSTANCES // 500
    if METHODS[method].weight != "one":
        assert max(reference.weights()) - min(reference.weights()) > 0.1, "the run emphasised something"


@pytest.mark.parametrize("method", ["isd", "wd", "wpv"])
def test_loss_weigh_and_the_two_halves_are_the_same(digits, method):
    x, y = digits[0][:40], digits[1][:40]
    index = torch.arange(40) % 25  # some instances twice
    logits = SmallNet()(x).detach()
    prob = logits.softmax(-1).gather(-1, y[:, None])[:, 0]
    per_instance = functional.cross_entropy(logits, y, reduction="none")
    whole, weighed, halves = (ab.ActiveBias(method, num_instances=30, num_classes=10) for _ in range(3))
    for bias in (whole, weighed, halves):
        bias.set_epoch(0)
    for _ in range(3):
        first = whole.loss(logits, y, index)
        second = weighed.weigh(per_instance, prob, index)
        third = (halves.weight(index) * per_instance).mean()
        halves.record(index, prob)
        assert first.shape == second.shape == ()
        torch.testing.assert_close(first, second, atol=1e-6, rtol=0)
        torch.testing.assert_close(second, third, atol=1e-6, rtol=0)
        torch.testing.assert_close(whole.weights(), weighed.weights(), atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(weighed.weights(), halves.weights(), atol=TOLERANCE, rtol=0)


def test_gradient_is_that_of_the_weighted_mean_with_constant_weights(digits):
    x, y = digits[0][:20], digits[1][:20]
    index = torch.arange(20)
    bias, reference = pair("wpv", num_instances=30, num_classes=10)
    for recorded in (bias, reference):
        recorded.record(index.tolist(), [0.05 * i for i in range(20)])
    logits = SmallNet()(x).detach().requires_grad_()
    bias.loss(logits, y, index).backward()
    weights = torch.tensor(reference.weights())[:20, None]
    want = weights * (logits.detach().softmax(-1) - functional.one_hot(y, 10)) / 20
    torch.testing.assert_close(logits.grad, want, atol=1e-6, rtol=0)


# --- Duplicates, windows, instances never visited ----------------------------------------------------------


@pytest.mark.parametrize("window", [None, 5, 2])
@pytest.mark.parametrize("method", METHODS)
def test_an_instance_twice_in_a_batch_appends_both_entries_in_order(method, window):
    bias, reference = pair(method, num_instances=6, num_classes=4, window=window)
    batches = [
        ([4, 2, 4, 4, 2, 0], [0.9, 0.1, 0.8, 0.3, 0.25, 0.6]),
        ([0, 0], [0.7, 0.2]),
        ([1, 4, 1], [0.4, 0.95, 0.45]),
    ]
    for number, (index, probs) in enumerate(batches):
        bias.record(torch.tensor(index), torch.tensor(probs))
        reference.record(index, probs)
        assert_same_history(bias, reference, list(range(6)))
        assert_equal_to_reference(bias, reference, f"after batch {number}")


@pytest.mark.parametrize("times", [3, 4, 7, 20])
@pytest.mark.parametrize("window", [2, 3, 5])
def test_more_duplicates_than_the_window_leave_the_latest(window, times):
    bias, reference = pair("wpv", num_instances=4, num_classes=10, window=window)
    first = ([2, 1], [0.35, 0.65])
    index = [i for _ in range(times) for i in (2, 3)]
    many = (index, [round(0.02 * k + 0.01 * i, 3) for k, i in enumerate(index)])
    for indices, probs in (first, many, first):
        bias.record(torch.tensor(indices), torch.tensor(probs))
        reference.record(indices, probs)
        assert_same_history(bias, reference, [0, 1, 2, 3, 2])
        assert_equal_to_reference(bias, reference, f"after {len(indices)} records")


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("method", METHODS)
def test_instances_never_visited_keep_the_initial_entry_and_follow_the_mean(method, window):
    bias, reference = pair(method, num_instances=8, num_classes=5, window=window)
    generator = torch.Generator().manual_seed(3)
    for step in range(6):
        index = torch.randint(4, (5,), generator=generator)
        prob = torch.randint(1001, (5,), generator=generator) / 1000
        bias.record(index, prob)
        reference.record(index.tolist(), [round(p, 3) for p in prob.tolist()])
        assert_same_history(bias, reference, list(range(4, 8)))
        assert_equal_to_reference(bias, reference, f"after step {step}")


def test_two_ones_after_the_initial_entry_are_a_tie_and_nothing_is_removed():
    # d = (2/3, 1/3, 1/3) of the span: the largest is exactly twice the median, for any number of classes.
    for num_classes in range(2, 40):
        bias, reference = pair("wpv", num_instances=2, num_classes=num_classes)
        for one in (bias, reference):
            one.record([0, 0], [1.0, 1.0])
        assert reference.estimate_of(0).count == 3
        assert_equal_to_reference(bias, reference, f"with {num_classes} classes")


@pytest.mark.filterwarnings("ignore:Method .* emphasises by the order")
@pytest.mark.parametrize("method", METHODS)
def test_burn_in_changes_the_plan_but_not_what_is_recorded(method):
    options = {"num_instances": 5, "num_classes": 4}
    burning, reference = pair(method, burn_in=2, **options)
    plain, _ = pair(method, **options)
    for epoch in range(4):
        for one in (burning, reference, plain):
            one.set_epoch(epoch)
        assert_equal_to_reference(burning, reference, f"at the start of epoch {epoch}")
        for one in (burning, reference, plain):
            one.record([0, 1, 3], [0.9 - 0.1 * epoch, 0.2, 0.5 + 0.1 * epoch])
        assert_equal_to_reference(burning, reference, f"in epoch {epoch}")
        assert_same_history(burning, reference, list(range(5)))
    assert torch.equal(torch.as_tensor(burning.weights()), torch.as_tensor(plain.weights()))


@pytest.mark.parametrize("convert", [list, np.asarray, torch.as_tensor], ids=["lists", "numpy", "torch"])
def test_record_and_weight_take_lists_arrays_and_tensors(convert):
    bias, reference = pair("wtc", num_instances=4, num_classes=10)
    bias.record(convert([3, 0, 3]), convert([0.5, 0.25, 0.75]))
    reference.record([3, 0, 3], [0.5, 0.25, 0.75])
    assert_equal_to_reference(bias, reference, "after one batch")
    assert_close(bias.weight(convert([3, 1])), [reference.weights()[i] for i in (3, 1)], "weight")
