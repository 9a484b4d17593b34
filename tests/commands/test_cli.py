"""The command: flags, JSON, errors, and what the tables and figures commands leave behind."""

import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

from activebias.cli import app
from activebias.commands.running import show_trials
from activebias.lab import RECIPES, ResultStore, TrialResult, cookbook, get_recipe, theory
from activebias.lab.data import SOURCES
from command import run, words

COMMON = {"--out", "--json", "--debug", "--help"}
RUNS = COMMON | {"--data", "--device", "--epochs", "--quiet", "--seed"}
# Scripts depend on these: a flag may be added here, but none may vanish or change its name.
FLAGS = {
    "demo": COMMON | {"--trials", "--seed", "--quiet"},
    "recipes": {"--json", "--debug", "--help"},
    "train": RUNS
    | {"--method", "--burn-in", "--noise", "--like", "--judges", "--embeddings"}
    | {"--images", "--csv", "--target", "--conll", "--validation"},
    "compare": RUNS
    | {"--methods", "--noise", "--search", "--trials", "--side-by-side", "--splits", "--minutes", "--burn-in"}
    | {"--images", "--csv", "--target", "--conll", "--devices", "--ray"},
    "reproduce": RUNS | {"--methods", "--trials", "--side-by-side", "--devices", "--ray", "--html"},
    "figures": COMMON | {"--seed"},
    "theory": {"--seed", "--json", "--debug", "--help"},
    "data": {"--data", "--json", "--debug", "--help"},
    "data get": {"--data", "--quiet", "--debug", "--help"},
    "audit": COMMON | {"--top", "--exact", "--by-class"},
    "apply": COMMON | {"--run"},
    "export": COMMON | {"--format"},
    "report": COMMON | {"--image-budget"},
}
SHORT = ["compare", "digits", "--epochs", "3", "--trials", "2", "--methods", "scan,wpv"]


def all_commands():
    root = typer.main.get_command(app)
    for name, command in root.commands.items():
        yield name, command
        for inner, subcommand in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", subcommand


def test_flags_are_frozen():
    found = {
        name: {option for each in command.params for option in each.opts if option.startswith("--")}
        | {"--help"}
        for name, command in all_commands()
    }
    assert found == FLAGS


@pytest.mark.parametrize("name", [*FLAGS, ""])
def test_every_help_has_an_example(name):
    text = run(*name.split(), "--help").output
    assert "[[" not in text, "brackets around brackets"
    assert "Example: activebias" in text


def test_help_lists_the_commands():
    text = run("--help").output
    assert all(name.split()[0] in text for name in FLAGS)
    assert run("--version").output.strip().count(".") == 2


def test_help_loads_neither_torch_nor_the_lab():
    script = "import sys, activebias.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "activebias.commands.train" in loaded.split()
    assert {"torch", "numpy", "pandas", "activebias.lab", "activebias.own"}.isdisjoint(loaded.split())


def test_compare_json_is_as_promised(tmp_path):
    value = json.loads(run(*SHORT, "--json", "--out", tmp_path).stdout)
    assert list(value) == ["recipe", "trials", "methods", "conclusion"]
    assert (value["recipe"], value["trials"]) == ("digits", 2)
    assert list(value["methods"]) == ["scan", "wpv"]
    for metrics in value["methods"].values():
        assert list(metrics) == ["best_test_error", "last10_test_error", "best_train_error"]
        assert all(isinstance(each[name], float) for each in metrics.values() for name in ("mean", "stderr"))
    for metric, each in value["methods"]["wpv"].items():
        scan = value["methods"]["scan"][metric]
        assert (each["baseline"], scan["baseline"]) == ("scan", None)
        assert each["difference"] == pytest.approx(each["mean"] - scan["mean"])
        assert each["finding"] in ("better", "worse", "no difference")


def test_compare_says_what_it_found_and_goes_on_from_the_store(tmp_path):
    first = run(*SHORT, "--out", tmp_path)
    assert "scan" in first.stdout
    assert "digits, 2 trials, 3 epochs" in first.stdout
    assert "Label noise: uniform_other, 20 %" in first.stdout
    assert "digits, trial 1, wpv: best test error" in first.stderr
    assert "4 of 4" in first.stderr
    again = run(*SHORT, "--out", tmp_path)
    assert "4 of 4 results are read from" in again.stderr
    assert "trial 1" not in again.stderr
    assert again.stdout == first.stdout
    assert "Epochs: 3 instead of 40; burn-in, in proportion: 1 instead of 8." in first.stdout
    assert "Last 10 epochs: there are only 3" in " ".join(first.stdout.split())
    more = run(*SHORT, "--trials", "3", "--noise", "0", "--quiet", "--out", tmp_path)
    assert more.stderr == ""
    assert "Label noise" not in more.stdout
    assert len((tmp_path / "digits.jsonl").read_text().splitlines()) == 4 + 6


def test_a_method_without_its_baseline_is_warned_of_and_named(tmp_path):
    options = ("--epochs", "2", "--trials", "2", "--out", tmp_path)
    result = run("compare", "digits", "--methods", "uni,wtc", *options)
    assert "Warning: wtc has no baseline. Add scan to the methods." in result.stderr
    assert "There is nothing to compare: wtc has no baseline." in result.stdout


def test_train_saves_the_model_with_its_history(tmp_path):
    out = tmp_path / "run"
    arguments = ("train", "digits", "--method", "wtc", "--epochs", "3", "--seed", "4", "--out", out)
    value = json.loads(run(*arguments, "--json").stdout)
    assert (value["method"], value["seed"]) == ("wtc", 4)
    assert torch.load(value["model"], weights_only=True).keys() >= {"hidden.weight", "output.weight"}
    state = torch.load(out / "bias.pt", weights_only=True)
    assert state["history"]["count"].shape[0] == 1297
    assert str(out) in run(*arguments).stdout.replace("\n", "")


def test_demo_table_sentence_and_figure(tmp_path, monkeypatch):
    digits = cookbook.digits()
    monkeypatch.setitem(cookbook.RECIPES, "digits", lambda: digits.shortened(4))
    text = run("demo", "--trials", "2", "--out", tmp_path).stdout
    assert "WTC" in text
    assert "p < 0.05" in text
    for suffix in ("png", "svg"):
        path = tmp_path / "figures" / f"digits.{suffix}"
        assert path.stat().st_size > 1000
    value = json.loads(run("demo", "--trials", "2", "--out", tmp_path, "--json").stdout)
    assert len(value["methods"]) == 5
    assert value["conclusion"] in " ".join(text.split())


def test_reproduce_beside_the_paper(tmp_path, real_data):
    real_data("trec")
    real_data("embeddings")
    arguments = ("reproduce", "qt-cnn", "--epochs", "1", "--trials", "1", "--methods", "scan,wpv")
    value = json.loads(run(*arguments, "--json", "--out", tmp_path).stdout)
    assert (value["recipe"], list(value["methods"])) == ("qt-cnn", ["scan", "wpv"])
    assert value["methods"]["scan"]["best_test_error"]["stderr"] is None
    text = run("reproduce", "qt-cnn", "--epochs", "1", "--trials", "0", "--out", tmp_path).stdout
    assert "paper" in text
    assert "Word vectors: glove.6B.50d" in text


def test_reproduce_everything_tells_what_is_left_out(tmp_path):
    nowhere = tmp_path / "no data"
    result = run("reproduce", "--json", "--out", tmp_path, "--data", nowhere)
    assert json.loads(result.stdout) == {"rows": []}
    rows = [name for name in RECIPES if get_recipe(name).row is not None]
    assert all(f"{name} is skipped" in result.stderr for name in rows)
    assert result.stderr.count("is skipped") == len(rows)
    assert "no results" in run("reproduce", "mnist-fc", "--trials", "0", "--out", tmp_path).stderr


def test_reproduce_tells_results_of_other_settings_from_none(tmp_path):
    recipe = get_recipe("mnist-fc")
    show = functools.partial(run, "reproduce", "mnist-fc", "--trials", "0", "--out", tmp_path)
    path = tmp_path / "mnist-fc.jsonl"
    assert show().stderr == f"mnist-fc: no results in {path}.\n"
    numbers = {"test_error": [3.0], "train_error": [3.0], "device": "cpu", "seconds": 1.0}
    short = TrialResult(
        recipe="mnist-fc", method="wd", seed=0, config=recipe.shortened(3).config(), **numbers
    )
    ResultStore(tmp_path).append(short)
    assert show().stderr == (
        f"mnist-fc: {path} has only results of other settings (1); the latest has epochs 3 instead of 60, "
        "burn_in 1 instead of 20.\n"
    )
    ResultStore(tmp_path).append(replace(short, config=recipe.config()))
    assert (
        show("--methods", "scan,we").stderr == f"mnist-fc: {path} has results of wd, but not of scan, we.\n"
    )


def test_one_epoch_says_that_nothing_is_emphasised(tmp_path):
    text = " ".join(run(*SHORT, "--epochs", "1", "--out", tmp_path).stdout.split())
    assert "digits, 2 trials, 1 epoch " in text
    assert "Epochs: 1 instead of 40; burn-in, in proportion: 0 instead of 8." in text
    assert "In a single epoch no instance has a history yet: all weights are equal." in text


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("command", [SHORT, ["figures"], ["demo"]])
def test_results_cannot_go_into_a_file(tmp_path, command, inside):
    file = tmp_path / "afile"
    file.write_text("mine")
    result = run(*command, "--out", file / "folder" if inside else file, code=2)
    assert "Expected `--out` to be a folder, but" in words(result.stderr)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("command", ["figures", "theory"])
def test_the_help_speaks_of_trials_only_where_there_are_some(command):
    assert "trial" not in run(command, "--help").output


def test_figures(tmp_path):
    for noise in ("0", "0.1"):
        run(*SHORT, "--trials", "1", "--methods", "scan", "--quiet", "--noise", noise, "--out", tmp_path)
    files = json.loads(run("figures", "--out", tmp_path, "--json").stdout)["files"]
    names = sorted(os.path.basename(file) for file in files if file.endswith(".png"))
    assert len(names) == 3
    assert names[-1] == "toy.png"
    assert all(name.startswith("digits-") for name in names[:-1])


def test_listings():
    assert [each["name"] for each in json.loads(run("recipes", "--json").stdout)["recipes"]] == list(RECIPES)
    assert all(name in run("recipes").stdout for name in RECIPES)
    listed = json.loads(run("data", "--json", "--data", "nowhere").stdout)
    assert [each["name"] for each in listed["data"]] == list(SOURCES)
    text = run("data", "--data", "nowhere").stdout
    assert "mnist: missing." in text
    assert "digits: present." in text


def test_theory(monkeypatch):
    monkeypatch.setattr(theory, "check_all", functools.cache(theory.check_all))
    value = json.loads(run("theory", "--json").stdout)
    assert value["total_variance"]["exact_relative_error"] < 1e-12
    assert "Equation 5" in run("theory").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compare", "mnist-fx"], 2, "Did you mean 'mnist-fc'"),
        (["compare", "digits", "--methods", "scan,wvp"], 2, "Did you mean 'wpv'"),
        (["compare", "digits", "--methods", ","], 2, "at least one method"),
        (["compare", "digits", "--noise", "lots"], 2, "to be a share such as 0.1"),
        (["compare", "digits", "--trials", "0"], 2, "--trials"),
        (["compare", "digits", "--device", "tpu9"], 2, "--device"),
        (["compare", "digits", "--device", "meta"], 2, "--device"),
        (["compare", "wnut17-cnn", "--methods", "sd"], 2, "words train together"),
        (["reproduce", "digits"], 2, "no row 'digits'"),
        (["train"], 2, "RECIPE"),
        (
            ["compare", "mnist-fc", "--data", "nowhere"],
            1,
            "mnist is missing: run `activebias data get mnist`",
        ),
        (["data", "get", "mnits"], 2, "Did you mean 'mnist'?"),
        (["compare", "digits", "--noise", "human:worst"], 2, "Human labels exist for cifar10 and cifar100"),
        (["compare", "cifar10-lr", "--noise", "human:wrost"], 2, "cifar10 has the human labels aggregate"),
        (["export", "nowhere", "--format", "csv", "--out", "x"], 2, "Expected `--format` to be one of npz"),
        (["figures", "qt-cmn"], 2, "Did you mean 'qt-cnn'?"),
        (["data", "get", "ontonotes5", "--data", "nowhere"], 1, "cannot be downloaded, it is licensed"),
        (["figures", "qt-cnn"], 1, "There are no results of qt-cnn"),
    ],
)
def test_errors_are_one_sentence(arguments, code, message, tmp_path):
    if arguments[0] in ("compare", "reproduce", "figures"):
        arguments = [*arguments, "--out", str(tmp_path)]
    result = run(*arguments, code=code)
    assert message in words(result.stderr)
    assert "Traceback" not in result.output
    if code == 1:
        assert result.stderr.startswith("activebias: ")
        assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback(tmp_path):
    result = CliRunner().invoke(app, ["compare", "mnist-fc", "--data", str(tmp_path), "--debug"])
    assert type(result.exception).__name__ == "DataError"


def test_a_damaged_store_is_named(tmp_path):
    (tmp_path / "digits.jsonl").write_text("nonsense\n{}\n")
    result = run(*SHORT, "--out", tmp_path, code=1)
    assert "digits.jsonl, line 1: not a result" in result.stderr


def test_a_real_process_stops_at_ctrl_c_and_goes_on(tmp_path):
    # The children of a shell's background job ignore the signal, unless they ask for it.
    program = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('activebias', run_name='__main__')"
    )
    command = [
        sys.executable,
        "-c",
        program,
        "compare",
        "digits",
        "--methods=scan",
        "--epochs=6",
        "--out",
        tmp_path,
    ]
    process = subprocess.Popen(
        [*command, "--trials", "500", "--side-by-side", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stored = tmp_path / "digits.jsonl"
    while not (stored.exists() and stored.read_text().endswith("\n")):
        time.sleep(0.05)
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert complaint.rstrip().endswith("Stopped. Run the same command again to resume.")
    done = len(stored.read_text().splitlines())
    assert done % 4 == 0
    finished = run(*command[3:], "--trials", done, "--json")
    assert json.loads(finished.stdout)["trials"] == done


@pytest.mark.parametrize("terminal", [True, False])
def test_progress(tmp_path, terminal):
    from activebias.lab import Place, get_recipe, run_trials

    recipe = get_recipe("digits").shortened(2)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with show_trials("digits", 4, 2, console=console, quiet=False) as listener:
        run_trials(recipe, methods=["scan", "wd"], seeds=[0], place=Place(tmp_path), listener=listener)
    text = console.file.getvalue()
    if terminal:
        assert "digits 0 wd" in text
        assert "left" in text
        assert (
            max(len(line) for line in re.split("[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))) <= 80
        )
    else:
        assert text.startswith("digits: 2 models side by side.\n")
        assert text.count("\n") == 3
        assert re.search(r"digits, trial 0, wd: best test error [0-9.]+ %, [0-9.]+ s \(2 of 2\)", text)
    with show_trials("digits", 4, 2, console=console, quiet=True) as listener:
        listener.on_epoch(None)
    assert console.file.getvalue() == text
