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
    assert "nothing to compare" in conclusion(made_up(wpv=[1.0, 2.0]))
    assert "One trial" in conclusion(made_up(scan=[2.0], wpv=[1.0]))


def test_two_trials_that_differ_equally_are_not_one_trial():
    text = conclusion(made_up(scan=[2.0, 3.0], wpv=[1.0, 2.0]))
    assert text.startswith("The difference to the baseline is the same number in all trials")
    one_in_common = [result for result in made_up(scan=[2.0, 3.0], wpv=[1.0, 2.0, 4.0]) if result.seed != 1]
    assert conclusion(one_in_common).startswith("Methods and baselines have fewer than two trials in common")
