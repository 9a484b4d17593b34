"""The reference against the worked numbers of method.md (tests/data/plans.json), at float64 accuracy."""

import json
from pathlib import Path

import pytest

import reference
from reference import METHODS, ReferenceActiveBias

CASES = json.loads((Path(__file__).parent / "data" / "plans.json").read_text())["cases"]
STATISTICS = ("difficulty", "easiness", "prediction_variance", "threshold_closeness")
TOLERANCE = {"abs": 1e-12, "rel": 1e-12}


def fed(method: str, case: dict) -> ReferenceActiveBias:
    """Return a reference that has seen the histories of a case, without their initial 1/C."""
    bias = ReferenceActiveBias(
        method,
        num_instances=len(case["histories"]),
        num_classes=case["num_classes"],
        window=case["window"],
        remove_outliers=case["remove_outliers"],
    )
    bias.set_epoch(0)
    for i, (initial, *visits) in enumerate(case["histories"]):
        assert initial == pytest.approx(1 / case["num_classes"])
        for prob in visits:
            bias.record([i], [prob])
    return bias


def misses(case: dict, estimates: list[reference.Estimate]) -> int:
    """Count the instances whose estimate differs from the worked one."""
    worked = zip(case["count"], case["mean"], case["variance"], strict=True)
    return sum(got != pytest.approx(want, **TOLERANCE) for got, want in zip(estimates, worked, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_estimates_equal_the_worked_numbers(case):
    bias = fed("wpv", case)
    assert misses(case, [bias.estimate_of(i) for i in range(len(case["histories"]))]) == 0


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("case", CASES)
def test_statistics_equal_the_worked_numbers(case, statistic):
    bias = fed("scan", case)
    score = getattr(reference, statistic)
    got = [score(bias.estimate_of(i)) for i in range(len(case["histories"]))]
    assert got == pytest.approx(case["scores"][statistic], **TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_plans_equal_the_worked_numbers(case, method):
    bias, plan = fed(method, case), case["plans"][method]
    assert bias.weights() == pytest.approx(plan["weights"], **TOLERANCE)
    if plan["probs"] is None:
        assert bias.probabilities() is None
    else:
        assert bias.probabilities() == pytest.approx(plan["probs"], **TOLERANCE)


def test_the_worked_numbers_cover_all_methods_and_options():
    assert all(set(case["plans"]) == set(METHODS) for case in CASES)
    options = {(case["window"], case["remove_outliers"]) for case in CASES}
    assert {window for window, _ in options} >= {None, 3, 5}
    assert {removes for _, removes in options} == {True, False}


def running_mean_reading(entries: list[float]) -> list[float]:
    """Compare each p_t with the mean of the entries before it: the reading that method.md rejects."""
    deviations = [abs(p - reference.mean(entries[: max(t, 1)])) for t, p in enumerate(entries)]
    limit = 2 * reference.median(deviations) + reference.TIE
    return [p for p, d in zip(entries, deviations, strict=True) if d <= limit] or entries


@pytest.mark.parametrize(
    "other_reading",
    [
        pytest.param(lambda h: h, id="no removal"),
        pytest.param(lambda h: reference.without_outliers(h[1:] or h), id="no initial entry"),
        pytest.param(lambda h: reference.without_outliers(h, tie=0.0), id="no tie constant"),
        pytest.param(lambda h: reference.without_outliers(h, tie=1e-2), id="large tie constant"),
        pytest.param(running_mean_reading, id="running mean"),
    ],
)
def test_the_worked_numbers_tell_other_readings_of_outlier_removal_apart(other_reading):
    missed = 0
    for case in CASES:
        if case["remove_outliers"]:
            bias = fed("wpv", case)
            histories = [bias.history(i) for i in range(len(case["histories"]))]
            missed += misses(case, [reference.estimate(other_reading(h), False) for h in histories])
    assert missed > 0


@pytest.mark.parametrize("method", METHODS)
def test_burn_in_is_uniform_and_records_all_the_same(method):
    bias = ReferenceActiveBias(method, num_instances=3, num_classes=4, burn_in=2)
    plain = ReferenceActiveBias(method, num_instances=3, num_classes=4)
    plain.set_epoch(0)
    for epoch in range(2):
        bias.set_epoch(epoch)
        for one in (bias, plain):
            one.record([0, 1, 1], [0.9, 0.2, 0.3])
        assert bias.weights() == [1.0] * 3
        assert bias.probabilities() == ([1 / 3] * 3 if METHODS[method].draws else None)
    bias.set_epoch(2)
    assert bias.scores() == plain.scores()
    assert bias.weights() == plain.weights()
    assert bias.probabilities() == plain.probabilities()


def test_all_scores_zero_means_uniform():
    for method in ("spv", "wpv"):
        bias = ReferenceActiveBias(method, num_instances=4, num_classes=2)
        bias.set_epoch(0)
        assert bias.weights() == [1.0] * 4
        assert bias.probabilities() == ([0.25] * 4 if method == "spv" else None)


def test_window_counts_only_the_latest_entries():
    bias = ReferenceActiveBias("wpv", num_instances=1, num_classes=10, window=3)
    assert bias.history(0) == [0.1]
    bias.record([0, 0], [0.2, 0.3])
    assert bias.history(0) == [0.1, 0.2, 0.3]
    bias.record([0], [0.4])
    assert bias.history(0) == [0.2, 0.3, 0.4]


def test_loss_is_the_mean_of_weight_times_loss_over_the_batch():
    bias = ReferenceActiveBias("wd", num_instances=2, num_classes=2)
    bias.set_epoch(0)
    bias.record([0, 1], [0.1, 0.9])  # p̄ = 0.3 and 0.7, s = 0.7 and 0.3, v = 1.2 and 0.8
    assert bias.weighted_mean_loss([1.0, 2.0, 3.0], [1, 0, 0]) == pytest.approx((0.8 + 2.4 + 3.6) / 3)


def test_forgotten_set_epoch_raises():
    with pytest.raises(RuntimeError, match="set_epoch"):
        ReferenceActiveBias("wd", num_instances=2, num_classes=2).weights()
