"""Methods × splits: the same numbers side by side and one by one, whole splits within a budget, progress."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from sklearn.datasets import load_wine
from torch import nn

import activebias as ab
from activebias import lab
from activebias.lab import split_trials
from activebias.lab.side_by_side.stacking import stacks_equally
from activebias.training import progress


def wine():
    inputs, labels = load_wine(return_X_y=True)
    return (inputs - inputs.mean(0)) / inputs.std(0), labels


def net():
    return nn.Sequential(nn.Linear(13, 8), nn.Tanh(), nn.Linear(8, 3))


def compare(out, **changes):
    settings = {"methods": "scan,wtc", "splits": 3, "epochs": 5, "burn_in": 1, "batch_size": 16}
    return ab.compare(net, wine(), out=out, **settings | changes)


@pytest.mark.parametrize("methods", ["scan,wtc,we", "uni,sd"])
def test_splits_side_by_side_have_the_errors_of_splits_one_by_one(tmp_path, methods):
    options = {"methods": methods, "quiet": True, "noise": "uniform_other:0.2"}
    together = compare(tmp_path / "together", **options).results
    alone = compare(tmp_path / "alone", side_by_side=1, **options).results
    number = len(methods.split(","))
    # The first turn is one split, the second has the others.
    sizes = [each.details["side_by_side"] for each in together]
    assert sizes == [number] * number + [2 * number] * 2 * number
    assert all("side_by_side" not in each.details for each in alone)
    for one, other in zip(alone, together, strict=True):
        assert one.test_error == pytest.approx(other.test_error)
        assert one.train_error == pytest.approx(other.train_error)
        assert one.validation_error == pytest.approx(other.validation_error)


def test_splits_of_different_sizes_are_trained_one_after_the_other(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(20, 4, generator=generator).repeat_interleave(torch.arange(1, 21), 0)
    labels = (torch.arange(20) % 2).repeat_interleave(torch.arange(1, 21))

    def run(name, **options):
        return ab.compare(
            lambda: nn.Linear(4, 2),
            (inputs, labels),
            methods="scan,wtc",
            splits=4,
            epochs=3,
            out=tmp_path / name,
            quiet=True,
            **options,
        ).results

    together, alone = run("together"), run("alone", side_by_side=1)
    assert {each.details["side_by_side"] for each in together} == {2}
    assert [each.test_error for each in together] == [pytest.approx(each.test_error) for each in alone]


class Constant(nn.Linear):
    """Keeps a random tensor that is no buffer."""

    def __init__(self):
        super().__init__(13, 3)
        self.scale = torch.rand(3)

    def forward(self, inputs):
        return super().forward(inputs) * self.scale


class Regularised(nn.Linear):
    def regulariser(self):
        return self.weight.square().sum()


class Words(nn.EmbeddingBag):
    """`vmap` has a slow way only."""

    def forward(self, inputs):
        return super().forward((inputs.abs() * 3).long())


@pytest.mark.parametrize(
    ("build", "stacks"),
    [
        (net, True),
        (lambda: nn.Sequential(nn.Linear(13, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), True),
        (lambda: nn.Sequential(nn.Linear(13, 8), nn.Dropout(), nn.Linear(8, 3)), False),
        (Constant, False),
        (lambda: Regularised(13, 3), False),
        (lambda: Words(100, 3), False),
    ],
    ids=["plain", "batch norm", "dropout", "a tensor that is no buffer", "regulariser", "a slow way"],
)
def test_which_models_stack(build, stacks):
    inputs = torch.randn(8, 13, generator=torch.Generator().manual_seed(0))
    assert stacks_equally([build(), build()], [inputs]) is stacks


@pytest.fixture
def clock(monkeypatch):
    """A time that passes by a second an epoch of the shared burn-in or of all methods."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(split_trials, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def ticking(clock, seconds=1.0):
    def on_epoch(done):
        if not done.more_follow:
            clock.now += seconds

    return lab.Listener(on_epoch=on_epoch)


def test_a_budget_gives_fewer_splits_with_all_methods(tmp_path, clock):
    # A split takes 5 s; side by side several take as long.
    found = compare(tmp_path, splits=9, minutes=12 / 60, listener=ticking(clock))
    assert found.num_splits == 2
    assert [(each.seed, each.method) for each in found.results] == [
        (0, "scan"),
        (0, "wtc"),
        (1, "scan"),
        (1, "wtc"),
    ]
    assert found.num_wanted == 9
    note = "2 of 9 splits were finished in the given minutes: the same call again trains further ones."
    assert note in found.notes()
    clock.now = 0.0
    assert compare(tmp_path, splits=9, minutes=12 / 60, listener=ticking(clock)).num_splits == 4


def test_a_budget_for_less_than_a_split_says_how_long_one_takes(tmp_path, clock):
    with pytest.raises(RuntimeError, match=r"No split was finished within `minutes`, 0\.05: one"):
        compare(tmp_path, minutes=0.05, epochs=120, burn_in=60, listener=ticking(clock))


def test_the_time_to_build_the_models_is_no_part_of_an_epoch(tmp_path, clock):
    seconds = itertools.chain([8.0], itertools.repeat(1.0))

    def on_epoch(done):
        if not done.more_follow:
            clock.now += next(seconds)

    with pytest.raises(RuntimeError, match="one split takes about 3 min"):
        compare(tmp_path, minutes=0.1, epochs=120, burn_in=60, listener=lab.Listener(on_epoch=on_epoch))


def test_the_line_of_a_split_counts_stored_results_too(tmp_path, capsys):
    """A second comparison trains more methods, or more settings: its lines agree with its table."""
    compare(tmp_path, quiet=True, methods="scan,wtc", splits=2)
    found = compare(tmp_path, methods="scan,wtc,we,gce", splits=2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "split 1: " in line]
    first = [each for each in found.results if each.seed == 0]
    errors = ", ".join(f"{each.method} {each.chosen_test_error:.1f}" for each in first)
    assert f"split 1: test error {errors} % (1 of 2 splits" in line


def test_progress_off_a_terminal_has_a_line_for_every_split_and_the_time_left(tmp_path, capsys, monkeypatch):
    seconds = itertools.count()  # every look at the clock takes a second, on fast machines too
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    compare(tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert "2 models side by side" in lines[0]
    split = [line for line in lines if ", split " in line]
    assert [line.split(":")[0] for line in split] == [f"own, split {number}" for number in (1, 2, 3)]
    assert all("test error scan " in line and "of 3 splits" in line for line in split)
    assert "left)" in split[0]
    assert "left)" not in split[-1]


def test_a_stopped_comparison_goes_on(tmp_path):
    whole = compare(tmp_path / "whole", quiet=True)
    count = 0

    def stop(done):
        nonlocal count
        count += 1
        if count == 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path / "stopped", listener=lab.Listener(on_epoch=stop))
    messages = []
    found = compare(tmp_path / "stopped", listener=lab.Listener(on_message=messages.append))
    assert messages[0].startswith("1 of 3 splits are read from ")
    assert [each.test_error for each in found.results] == [each.test_error for each in whole.results]


def test_methods_of_ones_own_have_the_same_colour_in_both_panels(tmp_path):
    mine = [ab.Method(f"mine-{k}", statistic=lambda e: e.mean, weights="emphasis") for k in range(5)]
    found = compare(tmp_path, methods=["scan", *mine], quiet=True, splits=2, epochs=2)
    left, right = found.figure().axes
    curves = {line.get_label(): line.get_color() for line in right.get_lines()}
    methods = [label.get_text().partition(" ")[0] for label in left.get_yticklabels()]
    dots = [to_hex(each.get_facecolor()[0]) for each in left.collections if isinstance(each, PathCollection)]
    assert dots == [curves[method] for method in methods]


def test_the_figure_and_json(tmp_path):
    found = compare(tmp_path, quiet=True, splits=4)
    files = found.save_figure(tmp_path / "figure")
    assert [file.suffix for file in files] == [".png", ".svg"]
    axes = found.figure().axes
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["wtc - scan"]
    assert [line.get_label() for line in axes[1].get_lines()] == ["scan", "wtc"]
    assert len(axes[0].collections[0].get_offsets()) == 4
    assert "validation error" in axes[1].get_ylabel()
    facts = found.to_dict()
    assert facts["splits"] == 4
    assert facts["methods"]["wtc"]["baseline"] == "scan"
    keys = {"split", "method", "setting", "learning_rate", "epoch", "test_error", "validation_error"}
    assert facts["trials"][0].keys() == keys
    assert facts["rates_searched"] is None
    chosen = found.results[0].validation_error
    assert facts["trials"][0]["validation_error"] == min(chosen)


def test_a_split_that_was_finished_counts_though_its_turn_was_not(tmp_path, clock):
    """One by one, a split of a turn may be finished when a later one exceeds the budget."""
    seconds = iter([0.1] * 11 + [2.0] * 100)  # the first split lets expect that all others fit into a turn

    def on_epoch(done):
        clock.now += next(seconds)

    slow = {"splits": 9, "epochs": 6, "minutes": 0.5, "side_by_side": 1}
    found = compare(tmp_path, **slow, listener=lab.Listener(on_epoch=on_epoch))
    assert found.num_splits == 2
    assert clock.now < 1.25 * 30 + 3
