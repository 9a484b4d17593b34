"""A comparison on own data with a search: every split chooses rate and parameter by its validation error."""

import json
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_wine
from torch import nn

import activebias as ab
from activebias import lab
from activebias.lab.experiment.results import TrialResult
from activebias.lab.experiment.sides import Setting
from activebias.lab.experiment.splitting import Split
from activebias.lab.peers import PEERS
from activebias.lab.split_comparison import SplitComparison

SPLITS, METHODS = 3, ("scan", "wtc", "wtc+gce")
RATES, VALUES = (1 / 3, 1.0, 3.0, 10.0), (0.3, 0.5, 0.7)


def wine():
    inputs, labels = load_wine(return_X_y=True)
    return (inputs - inputs.mean(0)) / inputs.std(0), labels


def net():
    return nn.Sequential(nn.Linear(13, 8), nn.Tanh(), nn.Linear(8, 3))


def compare(out, **changes):
    settings = {"methods": METHODS, "splits": SPLITS, "epochs": 4, "burn_in": 1, "batch_size": 16}
    settings |= {"noise": "uniform_other:0.3", "search": True, "quiet": True}
    return ab.compare(net, wine(), out=out, **settings | changes)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched")
    return compare(folder), lab.ResultStore(folder).load("own")


def test_all_rates_and_values_are_trained_in_every_split(searched):
    _, stored = searched
    assert len(stored) == SPLITS * (2 * len(RATES) + len(RATES) * len(VALUES))
    assert len({result.key for result in stored}) == len(stored)


def test_the_lowest_validation_error_of_the_split_chooses_and_the_test_error_never_does(searched):
    found, stored = searched
    assert [(each.seed, each.method) for each in found.results] == [
        (split, method) for split in range(SPLITS) for method in METHODS
    ]
    by_test = 0
    for result in found.results:
        tried = [each for each in stored if (each.seed, each.method) == (result.seed, result.method)]
        assert result.best_validation_error == min(min(each.validation_error) for each in tried)
        by_test += result.chosen_test_error == min(each.chosen_test_error for each in tried)
    assert by_test < len(found.results)  # choosing by the test error would be seen


def test_of_equal_validation_errors_the_given_rate_and_the_usual_parameter_count(tmp_path):
    """A model that cannot learn has equal errors with all settings."""

    class Still(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) * 0

    found = ab.compare(
        lambda: Still(13, 3),
        wine(),
        methods="scan,wtc,gce,we+elr",
        splits=2,
        epochs=2,
        out=tmp_path,
        search=True,
        quiet=True,
    )
    assert {setting.rate for setting in found.settings} == {1.0}
    values = {each.method: setting.value for each, setting in zip(found.results, found.settings, strict=True)}
    assert values == {"scan": 0.0, "wtc": 0.0, "gce": 0.7, "we+elr": 3.0}


def test_one_by_one_has_the_same_results(searched, tmp_path):
    together, _ = searched
    alone = compare(tmp_path, side_by_side=1)
    assert [each.rule for each in alone.results] == [each.rule for each in together.results]
    for one, other in zip(alone.results, together.results, strict=True):
        assert one.validation_error == pytest.approx(other.validation_error)
        assert one.test_error == pytest.approx(other.test_error)


def test_results_without_a_search_are_a_part_of_it(searched, tmp_path):
    plain = compare(tmp_path, search=False)
    assert not plain.searched
    assert "setting" not in plain.table().columns
    before = {result.key for result in lab.ResultStore(tmp_path).load("own")}
    found = compare(tmp_path)
    stored = lab.ResultStore(tmp_path).load("own")
    assert len(stored) == len(searched[1])  # none was trained twice
    assert before < {result.key for result in stored}
    again = compare(tmp_path, search=False)
    assert [each.time for each in again.results] == [each.time for each in plain.results]
    assert found.searched


def test_table_notes_and_json_name_the_settings(searched):
    found, _ = searched
    assert found.table().columns[:2] == ("method", "setting")
    settings = {row[0].text: row[1].text for row in found.table().rows}
    rates = ("rate 0.000667", "rate 0.002", "rate 0.006", "rate 0.02")
    assert settings["scan"].startswith(rates)
    assert settings["wtc+gce"].startswith("q 0.")
    assert settings["wtc+gce"][7:].startswith(rates)
    text = str(found)
    assert "with the learning rates 0.000667, 0.002, 0.006 and 0.02, and a peer also with each value" in text
    assert "Trainings a split: 4 for scan and wtc, 12 for wtc+gce." in text
    facts = json.loads(json.dumps(found.to_dict()))
    assert facts["rates_searched"] == pytest.approx(RATES)
    rules = [each["setting"] for each in facts["trials"]]
    assert rules == [setting.rule or None for setting in found.settings]
    used = [each["learning_rate"] for each in facts["trials"]]
    assert used == pytest.approx([0.002 * setting.rate for setting in found.settings])
    ends = sum(setting.rate in (RATES[0], RATES[-1]) for setting in found.settings)
    assert (f"In {ends} of 9 searches the lowest or the highest rate was best" in text) is (ends > 0)


def test_a_method_of_ones_own_and_a_model_that_does_not_stack(tmp_path):
    mine = ab.Method("mine", statistic=lambda e: e.mean * (1 - e.mean) ** 2, weights="emphasis")
    found = ab.compare(
        lambda: nn.Sequential(nn.Linear(13, 8), nn.Dropout(0.2), nn.Linear(8, 3)),
        wine(),
        methods=["scan", mine],
        splits=2,
        epochs=2,
        noise="uniform_other:0.3",
        out=tmp_path,
        search=True,
        quiet=True,
    )
    assert [each.method for each in found.results] == ["scan", "mine"] * 2
    assert len(lab.ResultStore(tmp_path).load("own")) == 2 * 2 * len(RATES)


def test_a_line_of_progress_for_every_split(tmp_path, capsys):
    found = compare(tmp_path, quiet=False, methods="scan,wtc")
    lines = [line for line in capsys.readouterr().err.splitlines() if ": test error scan" in line]
    assert len(lines) == SPLITS
    first = {each.method: each.chosen_test_error for each in found.results if each.seed == 0}
    assert f"split 1: test error scan {first['scan']:.1f}, wtc {first['wtc']:.1f} %" in lines[0]


def found_with(method, difference, setting):
    """Return a comparison in which `method` changes the error of scan by about `difference` points."""
    results, settings = [], []
    for split in range(8):
        scan = 10.0 + split % 3
        for name, error in (("scan", scan), (method, scan + difference + 0.1 * (split % 2))):
            curve = [error]
            results.append(
                TrialResult(
                    recipe="own",
                    method=name,
                    seed=split,
                    config={"burn_in": 0},
                    test_error=curve,
                    train_error=curve,
                    validation_error=curve,
                    device="cpu",
                    seconds=1.0,
                )
            )
            settings.append(Setting() if name == "scan" else setting)
    return SplitComparison(
        "own", tuple(results), tuple(settings), Split(), 8, (60, 20, 20), "test error", store=None
    )


SMOOTHING, ELR = PEERS["label-smoothing"], PEERS["elr"]


@pytest.mark.parametrize(
    ("method", "setting", "step"),
    [
        ("wtc", Setting(), 'train with `activebias.ActiveBias("wtc", …)`.'),
        ("mine", Setting(rate=3), "`activebias.ActiveBias(mine, …)` and 3 times the learning rate."),
        (
            "wtc+label-smoothing",
            Setting(SMOOTHING, 0.2),
            '`activebias.ActiveBias("wtc", …)` and `label_smoothing=0.2`.',
        ),
        ("elr", Setting(ELR, 3.0, rate=10), "train with elr (λ 3, see docs/peers.md) and 10 times the"),
        ("we+elr", Setting(ELR, 7.0), '`activebias.ActiveBias("we", …)` and elr (λ 7, see docs/peers.md).'),
    ],
)
def test_the_next_step_after_a_gain(method, setting, step):
    found = found_with(method, -2.0, setting)
    assert step in found.next_step
    assert str(found).endswith(f"{found.verdict}\n{found.next_step}")
    assert found.to_dict()["next"] == found.next_step


def test_the_next_step_names_the_rate_where_it_is_known():
    found = found_with("elr", -2.0, Setting(ELR, 3.0, rate=3))
    config = {"burn_in": 0, "optimiser": {"learning_rate": 0.1}}
    known = replace(found, results=tuple(replace(each, config=config) for each in found.results))
    assert known.next_step.endswith("train with elr (λ 3, see docs/peers.md) and the learning rate 0.3.")


@pytest.mark.parametrize("difference", [2.0, 0.0])
def test_the_next_step_without_a_gain_is_the_baseline(difference):
    found = found_with("wtc", difference, Setting())
    step = "keep scan; docs/compare.md names what else to try."
    assert found.next_step == f"Next: use more splits, or {step}"
    longer = [replace(each, seed=each.seed + 8) for each in found.results]
    found = replace(found, results=(*found.results, *longer), settings=found.settings * 2)
    assert found.next_step == f"Next: {step}"


@pytest.mark.parametrize("splits", [[0], range(8)], ids=["one split", "nothing learned"])
def test_no_next_step_where_the_verdict_asks_for_a_longer_comparison(splits):
    found = found_with("wtc", 0.0, Setting())
    results = [replace(each, test_error=[100.0]) for each in found.results if each.seed in splits]
    found = replace(found, results=tuple(results), settings=found.settings[: len(results)])
    assert found.next_step == ""
    assert str(found).endswith(found.verdict)


def test_a_budget_that_is_too_small_for_the_search_of_one_split_says_how_long_it_takes(tmp_path):
    torch.set_num_threads(1)
    with pytest.raises(RuntimeError, match="one split takes about"):
        compare(tmp_path, minutes=1e-6, epochs=30)
