"""What holds for every stream of records: Hypothesis against the public names and the pure functions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import activebias as ab
import reference
from activebias import emphasis, statistics
from reference import METHODS

DRAWING = [name for name, rule in METHODS.items() if rule.draws]
WEIGHTING = [name for name, rule in METHODS.items() if rule.weight == "e / N"]
PLAIN = [name for name, rule in METHODS.items() if rule.weight == "one"]
STATISTICS = ("difficulty", "easiness", "prediction_variance", "threshold_closeness")
# The largest variance of n probabilities is n / (4 (n - 1)): a half, for 0 and 1.
RANGES = {
    "difficulty": (0, 1),
    "easiness": (0, 1),
    "prediction_variance": (0, math.sqrt(0.5 + 0.5**2)),
    "threshold_closeness": (0, 0.25),
}

quick = settings(deadline=None, max_examples=60, derandomize=True)

# Thousandths keep every deviation either exactly tied or far from the outlier threshold, so that rounding
# decides nothing; the classes are those whose 1/C is a number of thousandths too.
thousandths = st.integers(0, 1000).map(lambda k: k / 1000)
num_classes = st.sampled_from([2, 4, 5, 8, 10])
# Any probability a softmax gives in float32, saturated ones often.
any_prob = st.one_of(
    st.sampled_from([0.0, 1.0, 1.0 - 2.0**-24, 1e-7]), st.floats(2.0**-20, 1.0, width=32), thousandths
)


@st.composite
def streams(draw, probs=thousandths, distinct: bool = False):
    """Draw the options of ActiveBias and the batches of (index, probability) it sees."""
    num_instances = draw(st.integers(1, 12))
    record = st.tuples(st.integers(0, num_instances - 1), probs)
    unique = (lambda pair: pair[0]) if distinct else None
    batches = draw(st.lists(st.lists(record, min_size=1, max_size=9, unique_by=unique), max_size=8))
    options = {
        "num_instances": num_instances,
        "num_classes": draw(num_classes),
        "window": draw(st.sampled_from([None, 2, 3, 5])),
        "remove_outliers": draw(st.booleans()),
    }
    return options, batches


def record(bias: ab.ActiveBias, batch: list[tuple[int, float]]) -> None:
    index, prob = zip(*batch, strict=True)
    bias.record(torch.tensor(index), torch.tensor(prob, dtype=torch.float32))


def fed(method: str, options: dict, batches: list) -> ab.ActiveBias:
    bias = ab.ActiveBias(method, **options)
    bias.set_epoch(0)
    for batch in batches:
        record(bias, batch)
    return bias


def numbers(array) -> list[float]:
    return torch.as_tensor(array).tolist()


def assert_same_plan(one: ab.ActiveBias, other: ab.ActiveBias, method: str) -> None:
    if METHODS[method].statistic is not None:
        assert numbers(one.scores) == pytest.approx(numbers(other.scores), abs=1e-6)
    assert numbers(one.weights()) == pytest.approx(numbers(other.weights()), abs=1e-5)
    if METHODS[method].draws:
        assert numbers(one.probabilities()) == pytest.approx(numbers(other.probabilities()), abs=1e-6)


# --- Emphasis through ActiveBias ----------------------------------------------------------------------------


@quick
@given(st.sampled_from(DRAWING), streams(any_prob))
def test_probabilities_sum_to_one_and_nobody_starves(method, stream):
    options, batches = stream
    probabilities = fed(method, options, batches).probabilities()
    assert probabilities.dtype == torch.float64
    assert math.fsum(numbers(probabilities)) == pytest.approx(1, rel=1e-12)
    assert min(numbers(probabilities)) >= (1 - 1e-9) / (2 * options["num_instances"])


@quick
@given(st.sampled_from(WEIGHTING), streams(any_prob))
def test_weights_have_mean_one_and_none_is_below_a_half(method, stream):
    weights = numbers(fed(method, *stream).weights())
    assert all(map(math.isfinite, weights))
    assert reference.mean(weights) == pytest.approx(1, abs=1e-5)
    assert min(weights) >= 0.5 - 1e-6


@quick
@given(streams(any_prob))
def test_importance_weights_are_at_most_two_and_have_expectation_one(stream):
    bias = fed("isd", *stream)
    weights, probabilities = numbers(bias.weights()), numbers(bias.probabilities())
    assert all(map(math.isfinite, weights))
    assert min(weights) > 0
    assert max(weights) <= 2 + 1e-6
    assert math.fsum(p * v for p, v in zip(probabilities, weights, strict=True)) == pytest.approx(1, abs=1e-5)


@quick
@given(st.sampled_from(PLAIN), streams(any_prob))
def test_methods_that_only_choose_the_order_weigh_exactly_one(method, stream):
    assert set(numbers(fed(method, *stream).weights())) == {1.0}


@quick
@given(st.sampled_from(list(METHODS)), streams(any_prob), st.integers(1, 3))
def test_burn_in_is_uniform_whatever_was_recorded(method, stream, burn_in):
    options, batches = stream
    bias = fed(method, options | {"burn_in": burn_in}, batches)
    bias.set_epoch(burn_in - 1)
    assert set(numbers(bias.weights())) == {1.0}
    if METHODS[method].draws:
        uniform = [1 / options["num_instances"]] * options["num_instances"]
        assert numbers(bias.probabilities()) == pytest.approx(uniform, rel=1e-12)


@quick
@given(st.sampled_from([m for m in METHODS if METHODS[m].statistic]), streams(any_prob))
def test_scores_stay_within_the_range_of_their_statistic(method, stream):
    low, high = RANGES[METHODS[method].statistic.__name__]
    scores = numbers(fed(method, *stream).scores)
    assert min(scores) >= low
    assert max(scores) <= high + 1e-6


@quick
@given(st.sampled_from(list(METHODS)), streams())
def test_a_window_that_was_never_full_equals_the_full_history(method, stream):
    options, batches = stream
    visits = [i for batch in batches for i, _ in batch]
    entries = 1 + max((visits.count(i) for i in visits), default=0)
    full = fed(method, options | {"window": None}, batches)
    for window in (max(entries, 2), entries + 3):
        assert_same_plan(fed(method, options | {"window": window}, batches), full, method)


@quick
@given(st.sampled_from(list(METHODS)), streams(distinct=True), st.randoms(use_true_random=False))
def test_the_order_inside_a_batch_of_distinct_instances_does_not_matter(method, stream, random):
    options, batches = stream
    shuffled = [random.sample(batch, len(batch)) for batch in batches]
    assert_same_plan(fed(method, options, batches), fed(method, options, shuffled), method)


@quick
@given(st.sampled_from(list(METHODS)), streams())
def test_one_batch_equals_its_records_one_after_another(method, stream):
    options, batches = stream
    alone = [[pair] for batch in batches for pair in batch]
    assert_same_plan(fed(method, options, batches), fed(method, options, alone), method)


@quick
@given(st.sampled_from(list(METHODS)), streams())
def test_every_stream_equals_the_reference(method, stream):
    options, batches = stream
    bias, slow = fed(method, options, batches), reference.ReferenceActiveBias(method, **options)
    slow.set_epoch(0)
    for batch in batches:
        slow.record(*map(list, zip(*batch, strict=True)))
    if METHODS[method].statistic is not None:
        assert numbers(bias.scores) == pytest.approx(slow.scores(), abs=1e-5)
    # With 12 instances a weight is at most 6.5; float32's rounding of s is divided by mean(s) ≥ 1e-4 here.
    assert numbers(bias.weights()) == pytest.approx(slow.weights(), abs=1e-3 if "pv" in method else 1e-5)
    if METHODS[method].draws:
        assert numbers(bias.probabilities()) == pytest.approx(slow.probabilities(), abs=1e-4)


@pytest.mark.parametrize("method", ["spv", "wpv", "sd", "wd", "isd", "stc", "wtc"])
def test_scores_that_all_return_to_zero_give_uniform_emphasis(method):
    # The paper's own failure case: everything is fitted. A running sum of s that keeps a rounding residue
    # would give weights of a half, or negative ones.
    bias = ab.ActiveBias(method, num_instances=97, num_classes=3, window=5)
    bias.set_epoch(0)
    generator = torch.Generator().manual_seed(5)
    for _ in range(30):
        index = torch.randint(97, (16,), generator=generator)
        bias.record(index, torch.rand(16, generator=generator))
    for _ in range(5):
        bias.record(torch.arange(97), torch.ones(97))
    assert set(numbers(bias.scores)) == {0.0}
    assert numbers(bias.weights()) == [1.0] * 97
    assert numbers(bias.weight(torch.arange(97))) == [1.0] * 97
    if METHODS[method].draws:
        assert numbers(bias.probabilities()) == pytest.approx([1 / 97] * 97, rel=1e-12)


# --- Pure functions -----------------------------------------------------------------------------------------


@st.composite
def padded_histories(draw, probs=thousandths):
    """Draw histories of different lengths, laid side by side; what lies after `count` must not matter."""
    rows = draw(st.lists(st.lists(probs, min_size=1, max_size=9), min_size=1, max_size=6))
    length = max(map(len, rows)) + draw(st.integers(0, 2))
    padding = draw(st.sampled_from([0.0, 0.5, 7.0]))
    values = [row + [padding] * (length - len(row)) for row in rows]
    return rows, np.array(values, dtype=np.float64), np.array([len(row) for row in rows])


def both_kinds(values: np.ndarray, count: np.ndarray):
    yield values, count
    yield torch.from_numpy(values), torch.from_numpy(count)


@quick
@given(padded_histories(), st.booleans())
def test_estimate_equals_the_reference_for_torch_and_numpy(histories, remove):
    rows, values, count = histories
    want = [reference.estimate(row, remove) for row in rows]
    for array, lengths in both_kinds(values, count):
        got = statistics.estimate(array, lengths, remove_outliers=remove)
        assert isinstance(got.mean, type(array))
        for field, part in zip(got._fields, got, strict=True):
            assert numbers(part) == pytest.approx([getattr(row, field) for row in want], abs=1e-12)
        for name in STATISTICS:
            score = getattr(statistics, name)(got)
            expected = [getattr(reference, name)(row) for row in want]
            # The square root makes 1e-8 out of a variance of 1e-16, float64's rounding.
            assert numbers(score) == pytest.approx(expected, abs=1e-7)


@quick
@given(padded_histories(any_prob))
def test_at_least_half_of_the_entries_stay(histories):
    _, values, count = histories
    for array, lengths in both_kinds(values, count):
        for kind in (array, array.astype("float32") if isinstance(array, np.ndarray) else array.float()):
            kept = numbers(statistics.estimate(kind, lengths).count)
            assert all(2 * k >= n for k, n in zip(kept, count.tolist(), strict=True))
            assert all(k <= n for k, n in zip(kept, count.tolist(), strict=True))
            all_of_them = statistics.estimate(kind, lengths, remove_outliers=False).count
            assert numbers(all_of_them) == count.tolist()


@quick
@given(padded_histories(any_prob), st.booleans())
def test_statistics_stay_within_their_ranges(histories, remove):
    _, values, count = histories
    for array, lengths in both_kinds(values, count):
        estimate = statistics.estimate(array, lengths, remove_outliers=remove)
        assert min(numbers(estimate.variance)) >= 0
        for name, (low, high) in RANGES.items():
            scores = numbers(getattr(statistics, name)(estimate))
            assert min(scores) >= low - 1e-12
            assert max(scores) <= high + 1e-12


@pytest.mark.parametrize("kind", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_leading_dimensions_of_estimate_equal_a_loop(kind, dtype):
    random = np.random.default_rng(0)
    values = random.integers(0, 1001, (3, 4, 5, 8)) / 1000
    count = random.integers(1, 9, (3, 4, 5))
    whole = statistics.estimate(kind(values.astype(dtype)), kind(count))
    assert tuple(whole.mean.shape) == tuple(whole.count.shape) == tuple(whole.variance.shape) == (3, 4, 5)
    for where in np.ndindex(3, 4, 5):
        one = statistics.estimate(kind(values.astype(dtype)[where]), kind(np.asarray(count[where])))
        assert [float(part) for part in one] == pytest.approx(
            [float(part[where]) for part in whole], abs=1e-6
        )
        for name in STATISTICS:
            score = getattr(statistics, name)
            assert float(score(one)) == pytest.approx(float(score(whole)[where]), abs=1e-6)


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("width", [*range(1, statistics.SHORT + 1), 80])
def test_full_rows_are_estimated_to_the_same_bits_alone_and_together(width, remove):
    # Together, short rows are added up column by column; alone there are no columns.
    values = np.random.default_rng(0).random((50, width), dtype=np.float32)
    together = statistics.estimate(values, np.full(50, width), remove_outliers=remove)
    alone = [statistics.estimate(row, np.asarray(width), remove_outliers=remove) for row in values]
    for part, ones in zip(together, zip(*alone, strict=True), strict=True):
        assert part.dtype == np.float32
        assert part.tolist() == [float(one) for one in ones]


score_lists = st.lists(st.one_of(st.just(0.0), st.floats(1e-7, 1.0)), min_size=1, max_size=20)


@quick
@given(score_lists)
def test_pure_emphasis_is_the_same_for_torch_and_numpy_and_as_defined(scores):
    array = np.array(scores)
    epsilon = reference.mean(scores)
    want = [(s + epsilon) / (2 * epsilon) if epsilon else 1.0 for s in scores]
    weights = emphasis.weights(array, array.mean())
    assert numbers(weights) == pytest.approx(want, rel=1e-9)
    tensor = torch.from_numpy(array)
    assert numbers(emphasis.weights(tensor, tensor.mean())) == pytest.approx(numbers(weights), rel=1e-12)
    probabilities = emphasis.probabilities(array)
    assert numbers(probabilities) == pytest.approx([v / len(scores) for v in want], rel=1e-9)
    assert math.fsum(numbers(probabilities)) == pytest.approx(1, rel=1e-12)
    assert numbers(emphasis.probabilities(tensor)) == pytest.approx(numbers(probabilities), rel=1e-12)


def test_pure_probabilities_are_float64_even_of_float32_scores():
    scores = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    probabilities = emphasis.probabilities(scores)
    assert probabilities.dtype == torch.float64
    assert math.fsum(numbers(probabilities)) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("kind", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
def test_leading_dimensions_of_emphasis_equal_a_loop(kind):
    scores = np.random.default_rng(1).random((3, 4, 50))
    scores[1, 2] = 0  # one trial has nothing to emphasise, the others do
    weights = emphasis.weights(kind(scores), kind(scores.mean(-1, keepdims=True)))
    probabilities = emphasis.probabilities(kind(scores))
    assert tuple(weights.shape) == tuple(probabilities.shape) == (3, 4, 50)
    for where in np.ndindex(3, 4):
        one = kind(scores[where])
        assert numbers(weights[where]) == pytest.approx(numbers(emphasis.weights(one, one.mean())), rel=1e-12)
        assert numbers(probabilities[where]) == pytest.approx(numbers(emphasis.probabilities(one)), rel=1e-12)
    assert numbers(weights[1, 2]) == [1.0] * 50
