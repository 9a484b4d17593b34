"""The sentence under a table says what the numbers say."""

from activebias.lab import TrialResult
from activebias.lab.conclusion import conclusion


def made_up(**errors):
    return [
        TrialResult(
            recipe="digits",
            method=method,
            seed=seed,
            config={},
            device="cpu",
            seconds=1,
            test_error=[value],
            train_error=[1.0],
        )
        for method, values in errors.items()
        for seed, value in enumerate(values)
    ]


def test_better_worse_and_the_same():
    base = [5.0, 5.2, 4.9, 5.1]
    text = conclusion(
        made_up(
            scan=base,
            wd=[value + 1 + 0.02 * k for k, value in enumerate(base)],
            wpv=[value - 1 - 0.02 * k for k, value in enumerate(base)],
            wtc=[value - 2 - 0.02 * k for k, value in enumerate(base)],
            we=[5.3, 4.9, 5.2, 4.8],
        )
    )
    assert text.startswith("Against Scan (5.05 % best test error, mean of 4 trials) WTC (")
    assert ") and WPV (" in text
    assert "are better, WD (6.08) is worse, WE (5.05) does not differ beyond chance" in text


def test_nothing_to_say():
    assert conclusion(made_up(wpv=[1.0, 2.0])) == (
        "There is nothing to compare: wpv has no baseline. Add scan to the methods."
    )
    assert "One trial" in conclusion(made_up(scan=[2.0], wpv=[1.0]))


def test_two_trials_that_differ_equally_are_not_one_trial():
    text = conclusion(made_up(scan=[2.0, 3.0], wpv=[1.0, 2.0]))
    assert text.startswith("The difference to the baseline is the same number in all trials")
    one_in_common = [result for result in made_up(scan=[2.0, 3.0], wpv=[1.0, 2.0, 4.0]) if result.seed != 1]
    assert conclusion(one_in_common).startswith("Methods and baselines have fewer than two trials in common")


def test_a_method_that_cannot_be_tested_is_named_beside_tested_ones():
    text = conclusion(made_up(scan=[4.0, 5.0], wpv=[3.0, 4.0], wtc=[3.9, 4.5]))
    assert "WTC (4.20) does not differ beyond chance" in text
    assert ". Not tested: WPV (3.50). The difference to the baseline is the same number in all trials" in text


def test_a_method_without_its_baseline_is_named():
    base = [5.0, 5.2, 4.9, 5.1]
    lower = [value - 1 - 0.02 * k for k, value in enumerate(base)]
    text = conclusion(made_up(uni=base, spv=lower, wtc=base, gce=lower))
    assert text.startswith("Against Uni (5.05 % best test error, mean of 4 trials) SPV (4.02) is better")
    assert text.endswith(" wtc and gce have no baseline. Add scan to the methods.")
    assert "nothing to compare: wtc has no baseline" in conclusion(made_up(uni=base, wtc=lower))


def test_a_pair_is_judged_against_its_halves_and_a_missing_peer_is_named():
    base = [5.0, 5.2, 4.9, 5.1]
    half = [value - 1 - 0.02 * k for k, value in enumerate(base)]
    pair = [value - 0.5 - 0.03 * (k % 2) for k, value in enumerate(half)]
    text = conclusion(made_up(scan=base, we=[5.1, 5.0, 5.1, 5.0], elr=half, **{"we+elr": pair}))
    assert "Pairs against their halves: we+elr is better than we by 1.54 ± 0.08 points (p < 0.001)" in text
    assert " and is better than elr by 0.52 ± 0.01 points (p < 0.001)." in text
    assert "not trained" not in text
    without = conclusion(made_up(scan=base, **{"we+elr": pair}))
    assert without.endswith(
        " elr alone was not trained, so the gain of we+elr may come from elr and not from the emphasis by "
        "we: add elr to the methods."
    )
    no_gain = conclusion(made_up(scan=base, **{"we+elr": [5.1, 5.0, 5.1, 5.0]}))
    assert "not trained" not in no_gain


def test_names_as_they_are_typed():
    base = [5.0, 5.2, 4.9, 5.1]
    text = conclusion(made_up(scan=base, **{"wtc+label-smoothing": [5.1, 5.0, 5.1, 5.0], "gce": base}), str)
    assert text.startswith("Against scan (")
    assert " gce (5.05) " in text.replace("gce (5.05) and", "gce (5.05) ")
    assert "wtc+label-smoothing (5.05)" in text
