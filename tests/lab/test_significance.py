"""Means, tests and the paper's order: against scipy and against numbers worked by hand."""

import math
import random

import pytest
from scipy import stats

from activebias.lab import significance
from activebias.lab.experiment.results import METRICS, TrialResult
from activebias.lab.paper import paper_rows, paper_value
from activebias.lab.significance import (
    Estimate,
    against_baselines,
    by_method,
    estimate,
    holm,
    order_agreement,
    our_finding,
    paired_t_test,
    signed_rank_test,
)


def trial(method, seed, error, **changes):
    fields = {"recipe": "digits", "config": {}, "device": "cpu", "seconds": 1.0, "train_error": [1.0]}
    return TrialResult(method=method, seed=seed, test_error=[error], **(fields | changes))


def test_estimate_equals_scipy():
    generator = random.Random(0)
    values = [generator.gauss(3, 0.2) for _ in range(17)]
    mean, stderr = estimate(values)
    assert mean == pytest.approx(sum(values) / 17)
    assert stderr == pytest.approx(stats.sem(values))


def test_of_an_own_method_that_changed_under_its_name_the_latest_counts():
    before = [trial("mine", seed, 5.0) for seed in range(3)]  # from before results knew a rule
    after = [trial("mine", seed, 4.0, rule="order scan, weights emphasis") for seed in range(2)]
    found = by_method([trial("scan", 0, 6.0), *before, *after], "best_test_error")
    assert found == {"scan": {0: 6.0}, "mine": {0: 4.0, 1: 4.0}}


def test_one_value_has_no_standard_error():
    assert estimate([3.0]).stderr is None
    with pytest.raises(ValueError, match="at least one number"):
        estimate([])


def test_by_ranks_one_failed_trial_does_not_hide_ten_that_agree():
    method = {seed: 1.0 + 0.01 * seed for seed in range(10)}
    baseline = {seed: 1.5 + 0.01 * seed for seed in range(10)} | {3: 90.0}
    assert paired_t_test(method, baseline).p_value > 0.3
    test = signed_rank_test(method, baseline)
    assert test.p_value == pytest.approx(2 / 2**10)  # all ten have one sign, though nine are tied
    assert (test.n, test.difference, test.stderr) == (10, -0.5, None)
    assert signed_rank_test(baseline, method).difference == 0.5


def test_by_ranks_without_ties_equals_scipy():
    generator = random.Random(1)
    method = {seed: generator.gauss(3, 0.2) for seed in range(40)}
    baseline = {seed: method[seed] + generator.gauss(0.1, 0.2) for seed in range(40)}
    for n in (7, 40):
        some = [{seed: values[seed] for seed in range(n)} for values in (method, baseline)]
        expected = stats.wilcoxon(*(list(values.values()) for values in some), method="exact").pvalue
        assert signed_rank_test(*some).p_value == pytest.approx(expected)


def test_by_ranks_few_or_equal_pairs_prove_nothing():
    assert signed_rank_test({}, {0: 1.0}).p_value is None
    assert signed_rank_test({0: 2.0}, {0: 1.0}) == paired_t_test({0: 2.0}, {0: 1.0})
    assert signed_rank_test({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p_value == 1.0


@pytest.mark.parametrize("n", [2, 3, 20])
def test_paired_test_equals_scipy(n):
    generator = random.Random(n)
    method = {seed: generator.gauss(3, 0.2) for seed in range(n)}
    baseline = {seed: method[seed] + generator.gauss(0.1, 0.1) for seed in range(n)}
    test = paired_t_test(method, baseline)
    expected = stats.ttest_rel(list(method.values()), list(baseline.values()))
    assert test.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert test.difference / test.stderr == pytest.approx(expected.statistic)
    assert paired_t_test(baseline, method).p_value == pytest.approx(test.p_value)


def test_paired_test_by_hand():
    # Differences -1, -2, -3: mean -2, sd 1, stderr 1/√3, t = -2√3 with 2 degrees of freedom;
    # for 2 degrees of freedom p = 1 - t / √(2 + t²) = 1 - √12 / √14.
    test = paired_t_test({0: 1.0, 1: 1.0, 2: 1.0}, {0: 2.0, 1: 3.0, 2: 4.0})
    assert (test.n, test.difference) == (3, -2.0)
    assert test.stderr == pytest.approx(1 / math.sqrt(3))
    assert test.p_value == pytest.approx(1 - math.sqrt(12 / 14))


def test_pairs_are_made_by_seed_and_not_by_position():
    baseline = {0: 1.0, 1: 5.0, 2: 9.0}
    method = {2: 9.1, 0: 1.2, 1: 5.3, 8: 100.0}
    test = paired_t_test(method, baseline)
    assert test.n == 3
    assert test.difference == pytest.approx(0.2)


def test_equal_differences():
    assert paired_t_test({0: 3.0, 1: 4.0}, {0: 3.0, 1: 4.0}) == (2, 0.0, 0.0, 1.0)
    # 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit only: that is no variance.
    test = paired_t_test({0: 0.3, 1: 0.2}, {0: 0.2, 1: 0.1})
    assert test.difference == pytest.approx(0.1)
    assert (test.stderr, test.p_value) == (0.0, None)


def test_no_seed_in_common():
    assert paired_t_test({0: 3.0}, {1: 3.0}) == (0, None, None, None)


def test_holm_by_hand():
    # Sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and never falling: .02 .03 .06 .06.
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert corrected == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(corrected) == ["a", "b", "c", "d"]
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({"a": None, "b": 0.03}) == {"a": None, "b": 0.03}
    assert holm({}) == {}


def test_compare_chooses_baselines_and_corrects_over_all_methods():
    generator = random.Random(1)
    shift = {"wpv": -0.5, "wd": -0.02, "scan": 0.0, "uni": 0.2, "spv": -0.3}
    results = [
        trial(method, seed, 5 + seed / 10 + by + generator.gauss(0, 0.05))
        for method, by in shift.items()
        for seed in range(6)
    ]
    items = {item.method: item for item in against_baselines(results)}
    assert list(items) == ["uni", "spv", "scan", "wd", "wpv"]
    baselines = {name: item.baseline for name, item in items.items()}
    assert baselines == {"uni": None, "spv": "uni", "scan": None, "wd": "scan", "wpv": "scan"}
    assert items["uni"].p_holm is None
    values = by_method(results, "best_test_error")
    raw = {
        name: stats.ttest_rel(list(values[name].values()), list(values[items[name].baseline].values())).pvalue
        for name in ("spv", "wd", "wpv")
    }
    assert {name: items[name].p_holm for name in raw} == pytest.approx(holm(raw))
    assert items["wpv"].significant
    assert not items["wd"].significant
    findings = [our_finding(item) for item in items.values()]
    assert findings == [None, "better", None, "no difference", "better"]


def test_compare_refuses_what_does_not_belong_together():
    with pytest.raises(ValueError, match="one recipe and one configuration"):
        against_baselines([trial("scan", 0, 3.0), trial("scan", 1, 3.0, config={"noise": 0.1})])
    with pytest.raises(ValueError, match="one recipe and one configuration"):
        against_baselines([trial("scan", 0, 3.0), trial("scan", 1, 3.0, recipe="other")])
    with pytest.raises(ValueError, match="scan with seed 0 came twice"):
        against_baselines([trial("scan", 0, 3.0), trial("scan", 0, 4.0)])
    with pytest.raises(ValueError, match="at least one trial"):
        against_baselines([])
    with pytest.raises(ValueError, match="Expected `metric` to be one of best_test_error"):
        against_baselines([trial("scan", 0, 3.0)], "accuracy")


def test_order_agreement_needs_both_to_be_decided():
    paper = {"scan": Estimate(3.0, 0.01), "wd": Estimate(2.0, 0.01), "wpv": Estimate(2.01, 0.01)}

    def judged(scan, wd, wpv):
        return order_agreement({"scan": scan, "wd": wd, "wpv": wpv}, paper)

    order = judged(Estimate(3.3, 0.1), Estimate(2.9, 0.1), Estimate(3.7, 0.1))
    assert order.agrees == (("wd", "scan"),)  # 0.4 > 2 · 0.141
    assert order.disagrees == (("wpv", "scan"),)
    assert order.undecided == (("wd", "wpv"),)  # the paper's differ by 0.01
    order = judged(Estimate(3.0, None), Estimate(2.0, None), Estimate(2.5, None))
    assert len(order.undecided) == 3  # one trial decides nothing
    assert order_agreement({"uni": Estimate(3, 0.1)}, paper | {"uni": Estimate(3, 0.1)}).undecided == ()


def test_sampling_and_weighting_are_different_tables():
    numbers = {name: Estimate(float(rank), 0.01) for rank, name in enumerate(("uni", "spv", "scan", "wpv"))}
    assert order_agreement(numbers, numbers).agrees == (("uni", "spv"), ("scan", "wpv"))


def test_every_number_of_the_paper_is_found():
    assert len(paper_rows()) == 10
    found = 0
    for row in paper_rows():
        for method in significance.SAMPLING_METHODS + significance.WEIGHTING_METHODS:
            for metric in METRICS:
                found += paper_value(row, method, metric) is not None
    assert found == 222
    assert paper_value("mnist-fc", "wd", "best_test_error") == (2.17, 0.01)
    assert paper_value("no-such-row", "wd", "best_test_error") is None
    with pytest.raises(ValueError, match="Expected `metric` to be one of"):
        paper_value("mnist-fc", "wd", "test")
