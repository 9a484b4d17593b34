"""The protocol: a search on the validation part, then trials with the chosen settings."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from activebias.cli import app
from activebias.commands.searching import compare_searched
from activebias.lab import Place, get_recipe, run_trials
from activebias.lab.data import Dataset, Examples
from activebias.lab.experiment.prepared import prepare
from activebias.lab.experiment.results import TrialResult, config_hash
from activebias.lab.peer_page import page
from activebias.lab.peer_rows import peer_rows
from activebias.lab.peer_table import COLUMNS, protocol_table, side_title
from activebias.lab.protocol import RATES, Protocol, candidates, run_protocol
from activebias.lab.side_by_side.learning import StackedCurves
from side_by_side_cases import digits

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]


def test_every_side_gets_the_same_search():
    for name in ("scan", "wtc", "gce", "importance", "wtc+sce"):
        sides = candidates(name)
        assert {side.setting.rate for side in sides} == set(RATES)
        assert len(sides) in (4, 8, 12)
        assert len({side.rule for side in sides}) == len(sides)


def test_the_search_is_short_and_has_other_seeds_than_the_trials(trained):
    protocol, _, units = trained
    assert [unit.recipe.epochs for unit in units] == [2, 2, 5, 5]
    assert {seed for unit in units[:2] for seed in unit.seeds} == {1000}
    assert {seed for unit in units[2:] for seed in unit.seeds} == {0, 1, 2}
    assert protocol.searched.validation == protocol.recipe.validation == 0.1


def test_the_validation_error_decides(trained):
    protocol, place, _ = trained
    searched = place.store.load(protocol.recipe.name, protocol.searched.config())
    for name, chosen in protocol.chosen(place.store).items():
        mine = [result for result in searched if result.method == name]
        assert chosen.validation_error == min(result.best_validation_error for result in mine)
        assert (chosen.models, chosen.epochs) == (len(mine), 2)
        assert {result.rule for result in protocol.results(place.store)[name]} == {chosen.side.rule}


def test_the_search_stores_few_training_errors_and_they_change_nothing_else(trained, tmp_path):
    protocol, place, units = trained
    name, unit = protocol.recipe.name, units[0]
    run_trials(
        replace(unit.recipe, last_train_errors=None),
        methods=unit.sides,
        seeds=unit.seeds,
        place=Place(tmp_path),
    )
    whole = {result.key: result for result in Place(tmp_path).store.load(name)}
    stored = {result.key: result for result in place.store.load(name) if result.key in whole}
    assert stored.keys() == whole.keys(), "the same configuration: nothing is trained again"
    for key, result in stored.items():
        assert result.train_error == whole[key].train_error[-1:]
        assert result.details["train_epochs"] == [2]
        assert result.test_error == whole[key].test_error
        assert result.validation_error == whole[key].validation_error
    assert all("train_epochs" not in each.details for each in protocol.results(place.store)["gce"])


def test_nothing_is_trained_twice_and_a_refusal_ends_the_training(trained, tmp_path):
    protocol, place, _ = trained

    def refuse(unit):
        return False

    assert run_protocol(protocol, range(3), place, refuse)  # nothing is missing: nobody is asked
    assert not run_protocol(protocol, range(4), place, refuse)
    assert not run_protocol(protocol, range(3), Place(tmp_path), refuse)


def test_auto_learns_from_the_part_that_decides(tmp_path, monkeypatch):
    """It has the search of every side; its curve is learnt side by side with the others."""
    learnt = []
    learn = StackedCurves.learn

    def noted(curves, epoch):
        learn(curves, epoch)
        learnt.append((curves._trials.num_validation, curves.evidence.weight.amax(1).tolist()))

    monkeypatch.setattr(StackedCurves, "learn", noted)
    protocol = Protocol.of(digits(), ["scan", "auto"])
    place = Place(tmp_path)

    def train(unit):
        run_trials(unit.recipe, methods=unit.sides, seeds=unit.seeds, place=place)
        return True

    assert run_protocol(protocol, range(2), place, train)
    assert {number for number, _ in learnt} == {30}  # a tenth of 300
    assert [len(weights) for _, weights in learnt] == [4] * 2 + [2] * 4  # four rates, then two seeds
    assert all(weight > 0 for _, weights in learnt for weight in weights)
    rows = {row[0].text: [cell.text for cell in row] for row in protocol_table(protocol, place.store).rows}
    assert [rows["auto"][COLUMNS.index(column)] for column in ("n", "searched")] == ["2", "4×2"]
    results = protocol.results(place.store)
    assert (
        [result.seed for result in results["auto"]] == [result.seed for result in results["scan"]] == [0, 1]
    )
    assert all(len(result.validation_error) == protocol.recipe.epochs for result in results["auto"])


def test_a_side_that_joins_later_leaves_stored_results_valid():
    """Sides joined when rows were trained: nothing else is trained again, and the page names them."""
    place = Place(ROOT / "results" / "peers")
    rows, joined = peer_rows(), {"auto", "we+elr", "auto+label-smoothing"}
    for row in ("mnist-cnn-0", "mnist-cnn-10"):
        results = rows[row].results(place.store)
        missing = [name for name in rows[row].names if not results.get(name)]
        assert set(missing) <= joined
        text = " ".join(page(place.store, ROOT / "none").split(f"## {row}\n")[1].split("## ")[0].split())
        named = f"Neither searched nor trained yet: {', '.join(map(side_title, missing))}."
        assert named in text or not missing
        asked = []

        def refuse(unit, asked=asked):
            asked += [side.name for side in unit.sides]
            return False

        assert run_protocol(rows[row], range(5), place, refuse) is (not missing)
        assert {name.split("+")[0] for name in missing} >= set(asked)


def test_the_epoch_is_the_last_of_those_that_validation_prefers():
    result = TrialResult(
        recipe="digits",
        method="gce",
        seed=0,
        config={},
        device="cpu",
        seconds=1.0,
        test_error=[9.0, 3.0, 4.0, 2.0],
        train_error=[9.0, 4.0, 3.0, 2.0],
        validation_error=[8.0, 5.0, 5.0, 6.0],
        rule="q 0.7",
    )
    assert (result.chosen_epoch, result.chosen_test_error, result.best_test_error) == (3, 4.0, 2.0)
    assert TrialResult.from_json(result.to_json()) == result
    with pytest.raises(ValueError, match="whose `validation` is set"):
        replace(result, validation_error=None).chosen_epoch  # noqa: B018


@pytest.mark.parametrize("noise", [None, "digits"])
def test_the_validation_part_is_not_trained_on(noise):
    """Every example is in one part, with its noisy label, and all trials hold out the same examples."""
    recipe = replace(get_recipe("digits"), validation=0.25)
    if noise is None:
        recipe = replace(recipe, noise=None)
    number = 200
    examples = Examples((torch.arange(number * 64).view(number, 64).float(),), torch.arange(number) % 10)
    dataset = Dataset("digits", examples, examples, 10, tuple("0123456789"))
    first, second = (prepare(recipe, dataset, seed=seed, device=CPU) for seed in (0, 1))
    assert (len(first.train), len(first.validation), first.num_instances) == (150, 50, 150)
    together = torch.cat([first.train.inputs[0], first.validation.inputs[0]])
    assert torch.equal(together[together[:, 0].argsort()], examples.inputs[0])
    assert torch.equal(first.validation.inputs[0], second.validation.inputs[0])
    changed = [
        not torch.equal(
            each.validation.targets, examples.targets[each.validation.inputs[0][:, 0].long() // 64]
        )
        for each in (first, second)
    ]
    assert changed == [noise is not None] * 2
    assert torch.equal(first.validation.targets, second.validation.targets) is (noise is None)


def test_stored_results_keep_their_keys():
    recipe = get_recipe("mnist-cnn")
    without = {name: value for name, value in recipe.config().items() if name != "validation"}
    assert config_hash(recipe.config()) == config_hash(without)
    assert config_hash(replace(recipe, validation=0.1).config()) != config_hash(without)


def test_the_learning_rate_falls_as_far_in_a_compressed_recipe():
    recipe = get_recipe("mnist-cnn")
    short = recipe.compressed(16)
    assert short.epochs == 16
    for epoch in (0, 8, 15):
        rate = recipe.optimiser.learning_rate_at(5 * epoch)
        assert short.optimiser.learning_rate_at(epoch) == pytest.approx(rate)
    steps = get_recipe("cifar10-rn27").compressed(60).optimiser
    assert steps.milestones == (32, 40, 48)


def test_the_command_searches(tmp_path):
    options = ["--epochs", "3", "--trials", "2", "--out", str(tmp_path), "--quiet", "--device", "cpu"]
    arguments = ["compare", "digits", "--methods", "scan,gce", "--search", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "gce" in result.output
    assert "12×2" in result.output
    told = CliRunner().invoke(app, [*arguments[:-3], "--device", "cpu", "--seed", "50"]).stderr
    assert re.search(
        r"digits, trial 50, gce \(q 0\.\d.*\): lowest validation error [\d.]+ %, .* s \(3 of 4\)", told
    )
    plain = CliRunner().invoke(app, ["compare", "digits", "--methods", "scan,sce,wtc+sce", *options])
    assert plain.exit_code == 0, plain.output
    assert "wtc+sce" in plain.output
    wrong = CliRunner().invoke(app, ["compare", "digits", "--methods", "scan,gcee", *options])
    assert wrong.exit_code == 2


def test_progress_and_table_name_the_same_rates(tmp_path, capsys):
    """A third of 3e-5 is 1e-05; the rule of a result has 0.333."""
    recipe = digits(optimiser=replace(get_recipe("digits").optimiser, learning_rate=3e-5))
    compare_searched(recipe, ["scan", "wtc"], range(2), Place(tmp_path), as_json=False, quiet=False)
    printed = capsys.readouterr()
    for rate in ("1e-05", "3e-05", "9e-05", "0.0003"):
        assert f"digits, search, wtc (rate {rate}): lowest validation error" in printed.err
    assert re.search(r"digits, trial 1, wtc \(rate (1e-05|3e-05|9e-05|0.0003)\): lowest", printed.err)
    assert "the learning rates 1e-05, 3e-05, 9e-05 and 0.0003," in " ".join(printed.out.split())


def test_trials_with_the_seed_of_the_search_are_refused_before_anything_is_trained(tmp_path):
    protocol = Protocol.of(digits(), ["scan"])
    with pytest.raises(ValueError, match=r"Expected `seeds` to be other than the search's, but got 1000"):
        run_protocol(protocol, range(998, 1002), Place(tmp_path), lambda unit: pytest.fail("trained"))


def test_a_recipe_with_a_teacher_is_refused():
    with pytest.raises(ValueError, match="without a teacher"):
        Protocol.of(get_recipe("mnist-fc-distill"), ["scan"])


def test_the_benchmark_stops_in_time_and_goes_on(tmp_path, real_data, programs):
    """On the CPU with a tiny budget; its command on a GPU differs in the device only."""
    real_data("trec")
    real_data("embeddings")
    script = ROOT / "benchmarks" / "peers.py"
    options = [
        "--rows",
        "qt-cnn",
        "--sides",
        "scan",
        "gce",
        "--device",
        "cpu",
        "--epochs",
        "2",
        "--limit",
        "80",
    ]
    command = [script, *options, "--trials", "2", "--out", str(tmp_path)]
    stopped = programs.run(*command, "--seconds", "0", folder=tmp_path)
    assert "stopped" in stopped
    assert not list(tmp_path.glob("*.jsonl"))
    done = programs.run(*command, folder=tmp_path)
    assert "n  2, test" in done
    again = programs.run(*command, "--seconds", "0", folder=tmp_path)
    assert again.split("\n\n")[-1] == done.split("\n\n")[-1]
