"""The result store: what goes in comes out, once, whatever happens to the processes that write."""

import json
import logging
import subprocess
import sys

import pytest

from activebias.lab.experiment.results import (
    TrialResult,
    best_error,
    config_hash,
    current_versions,
    last10_error,
)
from activebias.lab.experiment.store import ResultStore
from lab_worker import append_many
from processes import CONTEXT, finish, start

CONFIG = {"noise": 0.2, "epochs": 3}


def make(method="scan", seed=0, **changes):
    fields = {
        "recipe": "digits",
        "config": CONFIG,
        "test_error": [9.0, 4.0 + seed / 10, 5.0],
        "train_error": [8.0, 3.0, 2.0],
        "device": "cpu",
        "seconds": 1.25,
    }
    return TrialResult(method=method, seed=seed, **(fields | changes))


def test_protocol():
    assert best_error([3.0, 1.0, 2.0]) == 1.0
    assert last10_error([100.0, *range(10)]) == 4.5
    assert last10_error([1.0, 2.0]) == 1.5


def test_roundtrip(tmp_path):
    store = ResultStore(tmp_path / "not" / "yet")
    assert store.load("digits") == []
    results = [make(seed=seed, details={"side_by_side": 4}) for seed in range(3)]
    assert store.append(results) == results
    assert store.load("digits") == results
    assert store.load("digits", CONFIG) == results
    assert store.load("digits", CONFIG | {"noise": 0.1}) == []


def test_a_result_of_another_rule_is_another_result(tmp_path):
    store = ResultStore(tmp_path)
    results = [make("mine", rule="order scan"), make("mine", rule="order emphasis"), make("scan")]
    assert store.append(results) == results
    assert ResultStore(tmp_path).load("digits") == results
    assert store.append([make("mine", rule="order scan"), make("mine", rule="order uniform")]) == [
        make("mine", rule="order uniform")
    ]
    with pytest.raises(ValueError, match="`rule` to be a string"):
        make(rule=3)


def test_line_has_the_promised_fields(tmp_path):
    store = ResultStore(tmp_path)
    store.append(make(test_error=[50.0, 4.123456789, 6.0]))
    line = json.loads(store.path("digits").read_text())
    assert line["recipe"] == "digits"
    assert (line["method"], line["seed"]) == ("scan", 0)
    assert line["best_test_error"] == 4.123457
    assert line["last10_test_error"] == pytest.approx((50 + 4.123457 + 6) / 3, abs=1e-6)
    assert line["best_train_error"] == 2.0
    assert line["curves"] == {"test_error": [50.0, 4.123457, 6.0], "train_error": [8.0, 3.0, 2.0]}
    assert line["config"] == CONFIG
    assert line["versions"] == current_versions()
    assert set(line["versions"]) == {"activebias", "torch", "numpy", "python"}
    assert {"device", "seconds", "time"} <= line.keys()


def test_curves_may_be_tensors_or_arrays():
    import numpy as np
    import torch

    result = make(test_error=torch.tensor([3.5, 2.5]), train_error=np.array([1.5, 0.5]))
    assert (result.test_error, result.train_error) == ((3.5, 2.5), (1.5, 0.5))


def test_nothing_is_computed_or_stored_twice(tmp_path):
    store = ResultStore(tmp_path)
    store.append([make("scan", 0), make("wpv", 0), make("scan", 1)])
    assert [(result.method, result.seed) for result in store.load("digits", CONFIG)] == [
        ("scan", 0),
        ("wpv", 0),
        ("scan", 1),
    ]
    assert store.load("digits", CONFIG | {"epochs": 4}) == store.load("other", CONFIG) == []
    again = make("scan", 0, test_error=[1.0])
    assert store.append([again, make("wpv", 1), make("wpv", 1)]) == [make("wpv", 1, time=again.time)]
    assert len(store.path("digits").read_bytes().splitlines()) == 4
    assert store.load("digits")[0].best_test_error == 4.0


def test_changes_from_outside_are_seen(tmp_path):
    store, other = ResultStore(tmp_path), ResultStore(tmp_path)
    store.append([make(seed=0), make(seed=1)])
    other.append(make(seed=2))
    assert [result.seed for result in store.load("digits")] == [0, 1, 2]
    path = store.path("digits")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    assert [result.seed for result in store.load("digits")] == [0, 2]
    path.write_bytes(lines[0] + b"spoilt\n")
    with pytest.raises(ValueError, match="line 2: not a result"):
        store.load("digits")
    path.unlink()
    assert store.load("digits") == []


def test_joined_stores_count_a_trial_once(tmp_path):
    store = ResultStore(tmp_path)
    store.append(make())
    path = store.path("digits")
    path.write_bytes(path.read_bytes() * 2)
    assert len(store.load("digits")) == 1


def test_config_may_be_changed_afterwards_without_effect():
    config = {"sizes": (1, 2)}
    result = make(config=config)
    config["sizes"] = (3,)
    assert result.config == {"sizes": [1, 2]}
    assert TrialResult.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"lr": 1}, {"lr": 1.0}, True),
        ({"lr": 0.0}, {"lr": -0.0}, True),
        ({"window": None}, {}, True),
        ({"nested": {"x": (1, 2)}}, {"nested": {"x": [1, 2], "y": None}}, True),
        ({"lr": 0.1}, {"lr": 0.1 + 1e-12}, False),
        ({"x": [1, None]}, {"x": [1]}, False),
        ({"x": "1"}, {"x": 1}, False),
        ({"x": True}, {"x": 1}, False),
    ],
)
def test_configurations_are_told_apart_by_meaning(first, second, same):
    assert (config_hash(first) == config_hash(second)) is same


def test_the_hash_never_changes():
    # Committed results are found by it: a change here makes every earlier result invisible.
    assert config_hash({"noise": 0.2, "epochs": 30, "sizes": [1, 2], "name": "é"}) == "9ed82a2c26a096f3"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_error": [1.0, float("nan")]}, "`test_error` .*nan at epoch 1"),
        ({"train_error": [float("inf")]}, "`train_error` .*inf at epoch 0"),
        ({"test_error": [101.0]}, "0 to 100"),
        ({"test_error": []}, "`test_error` .*empty"),
        ({"test_error": "12"}, "sequence of numbers"),
        ({"seconds": float("nan")}, "seconds"),
        ({"config": {"lr": float("inf")}}, "`config.lr` .*inf"),
        ({"config": {"a": {"b": [0, float("nan")]}}}, r"config.a.b\[1\]"),
        ({"config": {1: 2}}, "strings as keys"),
        ({"config": 3}, "`config` to be a dict"),
        ({"recipe": "../secret"}, "Expected `recipe` to be"),
        ({"recipe": ""}, "Expected `recipe` to be"),
        ({"method": ""}, "Expected `method` to be"),
        ({"seed": -1}, "Expected `seed` to be"),
        ({"seed": True}, "Expected `seed` to be"),
        ({"device": None}, "`device` to be"),
    ],
)
def test_what_cannot_be_stored_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_objects_in_the_configuration_are_refused():
    with pytest.raises(TypeError, match=r"`config\.path` to be .* but got PosixPath; convert it"):
        make(config={"path": ResultStore("x").folder})


def test_non_finite_numbers_are_refused_at_append(tmp_path):
    store = ResultStore(tmp_path)
    result = make()
    result.config["late"] = float("nan")
    with pytest.raises(ValueError, match=r"`config\.late` to be a finite number"):
        store.append(result)
    assert store.load("digits") == []


def test_a_half_written_last_line_is_ignored_and_repaired(tmp_path, caplog):
    store = ResultStore(tmp_path)
    store.append([make(seed=0), make(seed=1)])
    path = store.path("digits")
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in [first + 1, first + 40, len(whole) - 2]:
        path.write_bytes(whole[:cut])
        with caplog.at_level(logging.INFO):
            assert [result.seed for result in store.load("digits")] == [0]
        assert "line 2: half written" in caplog.text
        store.append(make(seed=2))
        assert [result.seed for result in store.load("digits")] == [0, 2]
        assert path.read_bytes().startswith(whole[:first])
        assert path.read_bytes().count(b"\n") == 2


def test_a_power_cut_may_leave_zeros(tmp_path):
    store = ResultStore(tmp_path)
    store.append(make(seed=0))
    with store.path("digits").open("ab") as file:
        file.write(b"\0" * 100)
    store.append(make(seed=1))
    assert [result.seed for result in store.load("digits")] == [0, 1]


def test_only_the_line_end_is_missing(tmp_path):
    store = ResultStore(tmp_path)
    store.append([make(seed=0), make(seed=1)])
    path = store.path("digits")
    path.write_bytes(path.read_bytes()[:-1])
    assert [result.seed for result in store.load("digits")] == [0, 1]
    store.append(make(seed=2))
    assert [result.seed for result in store.load("digits")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda line: line[:40], "line 2: not a result"),
        (lambda line: "", "line 2: not a result"),
        (lambda line: "[]", "expected a JSON object"),
        (lambda line: line.replace('"seed": 1, ', ""), "no field seed"),
        (lambda line: line.replace('"digits"', '"digits2"'), "does not belong in this file"),
        (lambda line: line.replace("9.0", "NaN"), "NaN is not a number"),
        (lambda line: line.replace('"best_test_error": 4.1', '"best_test_error": 3.1'), "curves give 4.1"),
        (lambda line: line.replace('"train_error": [', '"other": ['), "Expected `curves` to be"),
        (lambda line: line.replace("[8.0, 3.0, 2.0]", "7"), "`train_error` to be a sequence"),
        (lambda line: line.replace("[8.0, 3.0, 2.0]", "[[8.0]]"), "line 2: not a result"),
    ],
)
def test_any_other_malformed_line_is_refused_with_its_place(tmp_path, spoil, message):
    store = ResultStore(tmp_path)
    store.append([make(seed=seed) for seed in range(3)])
    path = store.path("digits")
    lines = path.read_text().splitlines()
    lines[1] = spoil(lines[1])
    path.write_text("\n".join(lines) + "\n")
    before = path.read_bytes()
    for action in (lambda: store.load("digits"), lambda: store.append(make(seed=7))):
        with pytest.raises(ValueError, match=message) as caught:
            action()
        assert f"{path}, line 2: " in str(caught.value)
    assert path.read_bytes() == before


def test_processes_do_not_mix_their_lines(tmp_path):
    count = 20
    ready = CONTEXT.Barrier(3, timeout=60)
    # Two write the same trials: each must end up in the store once.
    finish(*(start(append_many, tmp_path, method, count, ready) for method in ("scan", "wpv", "wpv")))
    lines = ResultStore(tmp_path).path("digits").read_bytes().splitlines()
    assert len(lines) == 2 * count
    found = {(result.method, result.seed) for result in ResultStore(tmp_path).load("digits")}
    assert found == {(method, seed) for method in ("scan", "wpv") for seed in range(count)}


def test_a_short_write_leaves_no_trace(tmp_path, monkeypatch):
    from activebias.lab.experiment import store as module

    store = ResultStore(tmp_path)
    store.append(make(seed=0))
    before = store.path("digits").read_bytes()
    real_write = module.os.write
    monkeypatch.setattr(module.os, "write", lambda descriptor, line: real_write(descriptor, line[:10]))
    with pytest.raises(OSError, match=r"only 10 of .* disk full"):
        store.append(make(seed=1))
    assert store.path("digits").read_bytes() == before


def test_storing_needs_no_plotting_or_statistics():
    code = (
        "import sys; from activebias.lab import figures, paper, significance, result_tables;"
        "from activebias.lab.experiment import store;"
        "print([name for name in ('scipy', 'matplotlib', 'rich', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
