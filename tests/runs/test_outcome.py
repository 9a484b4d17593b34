"""Warnings about a finished training."""

import pytest

import activebias as ab
from activebias.runs.outcome import memorised, outcome_of


def test_the_shorter_training_is_named():
    (text,) = memorised([30.0, 12.0, 8.0, 4.0, 2.0, 0.5], [30.0, 25.0, 24.0, 26.0, 27.0, 29.3], 1)
    assert "after epoch 3 of 6 and has risen by 5.3 points" in text
    assert text.endswith("with `--judges 5`, or after a shorter training: `--epochs 3 --burn-in 1`.")


@pytest.mark.parametrize(
    ("judges", "advice"),
    [
        (0, "after a shorter training: `--epochs 2`."),  # a recipe has no other option
        (5, "The audit counts only the epochs in which its judges knew the held-out labels best."),
    ],
)
def test_the_advice_fits_the_training(judges, advice):
    (text,) = memorised([20.0, 9.0, 3.0, 1.0], [25.0, 24.0, 27.0, 28.0], judges)
    assert text.endswith(advice)
    assert "--judges" not in text


@pytest.mark.parametrize(
    ("train", "validation"),
    [
        ([30.0, 12.0, 8.0, 0.5], [30.0, 29.0, 24.0, 29.0]),  # the best epoch is late
        ([30.0, 12.0, 8.0, 0.5], [30.0, 24.0, 25.0, 25.9]),  # it rose by little
        ([30.0, 22.0, 21.0, 20.0], [30.0, 24.0, 26.0, 28.0]),  # and not by memorising
        ([5.0], [9.0]),
    ],
)
def test_no_warning_otherwise(train, validation):
    assert memorised(train, validation, 1) == []


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ([20.0, 10.0], "it ends after three epochs without a new best validation error."),
        # The rule is met after the last epoch, where no epoch is left to emphasise in.
        ([20.0, 10.0, 12.0, 12.0, 15.0], "it ends after three epochs without a new best validation error."),
        ([100.0, 100.0], "the validation error was 100 % after every epoch."),
    ],
)
def test_a_burn_in_until_the_end_is_explained(errors, reason):
    bias = ab.ActiveBias("wtc", num_instances=4, num_classes=2, burn_in="auto")
    for epoch, error in enumerate(errors):
        bias.set_epoch(epoch)
        bias.report_validation_error(error / 100)
    (text,) = outcome_of(bias, errors, errors, [])["warnings"]
    advice = f"Train for more than {len(errors)} epochs, or give `--burn-in`."
    assert text == (
        "The burn-in did not end before the last epoch, so that no instance was emphasised: "
        f"{reason} {advice}"
    )
