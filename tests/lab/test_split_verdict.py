"""The verdict of repeated splits: the chosen epoch, the corrected test, the smallest gain, the sentence."""

import math

import numpy as np
import pytest
from scipy import stats

from activebias.lab.experiment.results import TrialResult
from activebias.lab.significance import paired_t_test
from activebias.lab.split_verdict import (
    POWER,
    _smallest_gain,
    judge,
    memorising_splits,
    splits_in_burn_in,
)

OVERLAP = 0.25


def trial(method, split, test, *, validation=None, train=None, burn_in=0):
    """Return a result with a curve of test errors, or a single error."""
    curve = [test] if isinstance(test, float) else test
    return TrialResult(
        recipe="own",
        method=method,
        seed=split,
        config={"burn_in": burn_in},
        test_error=curve,
        train_error=train or [50.0] * len(curve),
        device="cpu",
        seconds=1.0,
        validation_error=validation or curve,
    )


def trials(differences, *, method="wtc", errors=None):
    errors = errors or [10.0 + 0.5 * split for split in range(len(differences))]
    return [
        result
        for split, (error, difference) in enumerate(zip(errors, differences, strict=True))
        for result in (trial("scan", split, error), trial(method, split, error + difference))
    ]


def test_the_validation_error_chooses_the_epoch_and_the_test_error_never_does():
    result = trial("wtc", 0, [5.0, 1.0, 9.0, 7.0], validation=[6.0, 4.0, 3.0, 3.0])
    assert result.chosen_epoch == 4
    assert result.chosen_test_error == 7.0


def test_the_corrected_test_is_the_one_of_nadeau_and_bengio():
    differences = np.array([-1.0, -0.5, -1.5, -0.2, -1.1])
    errors = dict(enumerate([10.0, 11.0, 12.0, 13.0, 14.0]))
    test = paired_t_test({k: errors[k] + differences[k] for k in errors}, errors, overlap=OVERLAP)
    stderr = math.sqrt((1 / 5 + OVERLAP) * differences.var(ddof=1))
    assert test.stderr == pytest.approx(stderr)
    assert test.p_value == pytest.approx(2 * stats.t.sf(abs(differences.mean()) / stderr, 4))


def test_the_corrected_test_finds_nothing_where_there_is_nothing_and_the_plain_one_does():
    """Differences of overlapping splits have a correlation of 0.2 (the share of the test part)."""
    generator = np.random.default_rng(0)
    rejected = {0.0: 0, OVERLAP: 0}
    for _ in range(1000):
        values = math.sqrt(0.2) * generator.normal() + math.sqrt(0.8) * generator.normal(size=10)
        for overlap in rejected:
            pairs = dict(enumerate(values)), dict.fromkeys(range(10), 0.0)
            rejected[overlap] += paired_t_test(*pairs, overlap=overlap).p_value < 0.05
    assert rejected[0.0] > 150
    assert 30 <= rejected[OVERLAP] <= 70


@pytest.mark.parametrize(("num_splits", "num_tests"), [(5, 1), (10, 1), (10, 3), (30, 3)])
def test_the_smallest_gain_is_found_with_the_stated_power(num_splits, num_tests):
    stderr, degrees = 0.3, num_splits - 1
    gain = _smallest_gain(stderr, num_splits, num_tests)
    limit = stats.t.isf(0.05 / (2 * num_tests), degrees)
    assert stats.nct.sf(limit, degrees, gain / stderr) == pytest.approx(POWER, abs=0.04)


def test_a_gain_is_said_with_its_size_and_p():
    sentence = judge(trials([-1.2, -1.3, -1.1, -1.25, -1.15] * 2), OVERLAP).sentence()
    assert sentence == "wtc lowers the error of scan by 1.20 ± 0.04 points (10 splits, p < 0.001)."


def test_a_loss_and_no_difference_in_one_sentence():
    worse = trials([2.0, 2.2, 1.8, 2.1, 1.9, 2.0, 2.3, 1.7], method="wd")
    same = [each for each in trials([0.5, -0.5] * 4) if each.method == "wtc"]
    sentence = judge([*worse, *same], OVERLAP).sentence()
    assert sentence.startswith("wd raises the error of scan by 2.0 ± 0.1 points (8 splits, p < 0.001); no di")
    assert sentence.endswith(
        "difference seen for wtc: a gain below 1.2 points would not be seen with 8 splits."
    )


def test_no_difference_says_what_would_not_be_seen():
    verdict = judge(trials([0.5, -0.5, 0.1, -0.1, 0.4, -0.3, 0.2, -0.4, 0.3, -0.2]), OVERLAP)
    gain = verdict.smallest_gain["wtc"]
    assert verdict.sentence() == (
        f"No difference seen: a gain below {gain:.1f} points would not be seen with 10 splits."
    )
    assert 0.3 < gain < 1.0


def test_a_smallest_gain_above_the_whole_error_is_no_limit_but_a_reason_for_more_splits():
    verdict = judge(trials([3.0, -1.0]), OVERLAP)
    assert verdict.smallest_gain["wtc"] > 10.25  # the mean error of scan
    assert verdict.sentence() == (
        "No difference seen: with 2 splits even an error of 0 would not be seen as a gain, so use more "
        "splits or data."
    )


def test_a_method_without_its_baseline_is_named_and_not_counted_as_equal():
    same = [trial(name, k, 10.0 + k) for name in ("uni", "spv") for k in range(4)]
    text = judge([*same, *(trial("wtc", k, 3.0 + k) for k in range(4))], OVERLAP).sentence()
    assert text.startswith("No difference seen: all methods with a baseline have the same test error")
    assert text.endswith(" wtc has no baseline. Add scan to the methods.")


def test_a_pair_of_a_sampling_method_has_the_baseline_of_that_method():
    results = [trial(name, k, 10.0 + k) for name in ("uni", "scan", "spv+gce", "wtc+gce") for k in range(4)]
    verdict = judge(results, OVERLAP)
    assert {item.method: item.baseline for item in verdict.tested} == {"spv+gce": "uni", "wtc+gce": "scan"}


def test_a_pair_is_judged_against_its_halves():
    def errors(difference):
        return [10.0 + k % 3 + difference + 0.1 * (k % 2) for k in range(8)]

    sides = {"scan": errors(0.0), "elr": errors(-2.0), "we+elr": [value - 2 for value in errors(0.0)]}
    sides["we+elr"][0] -= 0.1
    sides["scan"][3] -= 0.3
    results = [trial(name, k, value) for name, values in sides.items() for k, value in enumerate(values)]
    verdict = judge(results, OVERLAP)
    assert verdict.sentence().endswith(
        " Pairs against their halves: we+elr does not differ from elr beyond chance."
    )
    assert verdict.to_dict()["we+elr"]["halves"]["elr"]["finding"] == "no difference"
    assert verdict.to_dict()["elr"]["halves"] is None
    results += [trial("we", k, value) for k, value in enumerate(sides["we+elr"])]
    assert judge(results, OVERLAP).sentence().endswith("does not differ from we or elr beyond chance.")
    alone = judge([each for each in results if each.method != "elr"], OVERLAP).sentence()
    assert "elr alone was not trained, so the gain of we+elr may come from elr" in alone
    assert alone.endswith("by we: add elr to the methods.")


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        (trials([-3.0]), "One split shows nothing about the methods: use at least 2 splits"),
        (trials([0.0] * 4), "No difference seen: all methods have the same test error in each of the 4 spl"),
        ([trial(name, k, 100.0) for name in ("scan", "wtc") for k in range(3)], "Nothing was learned: every"),
        (trials([-1.0, -1.0]), "wtc differs from the baseline by the same number in every split"),
        ([trial("wtc", 0, 3.0), trial("wtc", 1, 4.0)], "There is nothing to compare"),
    ],
)
def test_where_no_test_is_possible(results, sentence):
    assert judge(results, OVERLAP).sentence().startswith(sentence)


def test_models_that_memorise_and_epochs_in_the_burn_in_are_counted():
    learns = {"train": [30.0, 10.0], "validation": [30.0, 12.0], "burn_in": 1}
    by_heart = {"train": [30.0, 0.0], "validation": [20.0, 25.0], "burn_in": 1}
    results = [trial("scan", 0, [3.0, 2.0], **learns), trial("wtc", 0, [3.0, 2.0], **by_heart)]
    results += [trial(name, 1, [3.0, 2.0], **by_heart) for name in ("scan", "wtc")]
    assert memorising_splits(results[:1]) == 0
    assert memorising_splits(results) == 2
    assert splits_in_burn_in(results) == 1
