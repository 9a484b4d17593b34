"""Side by side on a GPU: a run equals the same run on a CPU."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import activebias as ab
from activebias.commands.compare_own import Source, compare_own
from activebias.internal import native, sort_visits
from activebias.lab import Optimiser, Place, ResultStore, get_recipe, run_trials
from activebias.lab.experiment.prepared import prepare
from activebias.lab.side_by_side import Lane, SideBySide, TrialData
from activebias.lab.side_by_side.estimates import estimate_rows
from own_data import made_up as made_up_tweets
from own_data import write_digits, write_wine
from side_by_side_cases import RECIPES, made_up, small

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: run `make test-gpu`"),
]
SEEDS = (3, 8)


def train(recipe, dataset, teacher, methods, device, epochs=4):
    cpu = torch.device("cpu")
    prepared = [prepare(recipe, dataset, seed=seed, device=cpu, teacher=teacher) for seed in SEEDS]
    lanes = [Lane(seed, method) for method in methods for seed in SEEDS]
    run = SideBySide.begin(TrialData(recipe, prepared, SEEDS, torch.device(device)), lanes, emphasises=True)
    for _ in range(epochs):
        run.train_epoch()
    return run


@pytest.mark.parametrize("scans", [True, False])
@pytest.mark.parametrize("name", RECIPES)
def test_a_gpu_trains_what_a_cpu_trains(name, scans):
    if name == "conll2003-cnn" and not scans:
        pytest.skip("the words of a sentence train together: nothing to draw")
    recipe, dataset, teacher = small(name)
    recipe = replace(recipe, half_precision=False, batch_size=4)
    tolerance = 5e-3
    if name == "mnist-cnn":
        # At ten times this rate a CPU's own results move by 1e-2 when its initial weights are moved by 1e-6
        # (likely where a max-pooling's two largest values are all but equal); at this one by 3e-4 at most.
        recipe = replace(recipe, optimiser=Optimiser("sgd", 1e-4, momentum=0.9, factor=0.1, milestones=(2,)))
        tolerance = 1e-3
    methods = [method for method in ab.METHODS.values() if (method.order == "scan") is scans]
    ours, theirs = (train(recipe, dataset, teacher, methods, device) for device in ("cuda", "cpu"))
    assert any(replayed._graph is not None for replayed in ours._replayed.values())
    # Where methods draw, one rounding error may choose another instance: a few entries may differ by that.
    allowed = 0.0 if scans else 0.02
    histories = (run.memory.history.values() for run in (ours, theirs))
    pairs = [(*pair, allowed) for pair in zip(*histories, strict=True)]
    # One may also decide whether a visit counts as an outlier, and move the score of that instance alone.
    pairs += [(ours.memory.scores, theirs.memory.scores, max(allowed, 0.001))]
    pairs += [(ours.stack.parameters[key], value, allowed) for key, value in theirs.stack.parameters.items()]
    for own, other, share in pairs:
        width = min(own.shape[1], other.shape[1])
        own, other = own[:, :width].cpu().float(), other[:, :width].float()
        near = torch.isclose(own, other, rtol=tolerance, atol=tolerance)
        assert (~near).float().mean() <= share


@pytest.mark.parametrize("window", [None, 5])
def test_the_estimates_of_histories_of_any_length_are_the_cpus(window):
    ours, theirs = (
        ab.PredictionHistory(40, initial=0.1, window=window, device=device) for device in ("cuda", "cpu")
    )
    ours.make_room(1300)
    lengths = [0, 1, 2, 3, 4, 5, 9, 63, 511, 512, 513, 1300]
    generator = torch.Generator().manual_seed(0)
    for row in range(40):
        prob = torch.rand(lengths[row % len(lengths)], generator=generator) ** (1 + row % 5)
        prob = (8 * prob).round() / 8 if row % 7 == 3 else prob  # ties
        index = torch.full(prob.shape, row)
        for history in (ours, theirs):
            history.append(sort_visits(native(index.to(history.device)), native(prob.to(history.device))))
    rows = torch.arange(40)
    found, expected = estimate_rows(ours, rows.cuda()), estimate_rows(theirs, rows)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own.cpu(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["wpv", "spv"])
def test_histories_grow_on_after_a_graph_was_captured(method):
    recipe, dataset, teacher = small("mnist-fc-distill")
    recipe = replace(recipe, batch_size=4)
    ours, theirs = (
        train(recipe, dataset, teacher, [ab.METHODS[method]], device, epochs=60) for device in ("cuda", "cpu")
    )
    assert ours.memory.history.num_overwritten == 0
    counts = [
        run.memory.history.values()[1].sum(1).view(len(SEEDS), -1).sum(1).cpu() for run in (ours, theirs)
    ]
    assert counts[0].tolist() == counts[1].tolist()  # one entry for every visit, and the first
    again = ours.branch(ours.lanes)
    again.train_epoch()
    assert again.memory.history.values()[1].sum() > ours.memory.history.values()[1].sum()


@pytest.mark.parametrize("name", ["mnist-cnn", "cifar100-rn27"])
def test_half_precision_learns(name):
    recipe, _, _ = small(name)
    dataset = made_up("digits" if name == "mnist-cnn" else "images", count=200)
    recipe = replace(recipe, batch_size=20, optimiser=Optimiser("sgd", 0.02, momentum=0.9))
    run = train(recipe, dataset, None, [ab.METHODS["wpv"]], "cuda", epochs=12)
    assert run.stack.half_precision
    assert all(value.dtype == torch.float32 for value in run.stack.parameters.values())
    first, last = run.train_error[0].mean(), run.train_error[-1].mean()
    assert last < first - 10


def test_half_precision_goes_on_where_it_was():
    recipe, dataset, _ = small("mnist-cnn")
    recipe = replace(recipe, batch_size=4)
    whole = train(recipe, dataset, None, [ab.METHODS["wpv"]], "cuda", epochs=2)
    resumed = train(recipe, dataset, None, [ab.METHODS["wpv"]], "cuda", epochs=1)  # graphs of its own
    resumed.load_state_dict(whole.state_dict())
    for run in (whole, resumed):
        run.train_epoch()
        assert run.stack.copies
        assert all(torch.equal(copy, value.bfloat16()) for value, copy in run.stack.copies.items())
    for name, value in whole.stack.parameters.items():
        torch.testing.assert_close(resumed.stack.parameters[name], value, rtol=1e-3, atol=1e-4)


def test_trials_on_a_gpu_side_by_side(tmp_path):
    recipe = replace(get_recipe("digits"), epochs=6, burn_in=2)
    results = run_trials(
        recipe, methods=["scan", "wpv", "spv"], seeds=[0, 1], place=Place(tmp_path, device="cuda")
    )
    single = run_trials(
        recipe, methods=["scan", "wpv", "spv"], seeds=[0, 1], place=Place(tmp_path / "cpu", side_by_side=1)
    )
    assert {result.details["side_by_side"] for result in results} == {2, 4}
    for ours, theirs in zip(
        sorted(results, key=lambda r: (r.method, r.seed)),
        sorted(single, key=lambda r: (r.method, r.seed)),
        strict=True,
    ):
        assert ours.test_error == pytest.approx(theirs.test_error, abs=1.0)


@pytest.mark.parametrize("kind", ["images", "csv", "conll"])
def test_models_of_own_data_side_by_side_on_a_gpu_learn_as_alone_on_a_cpu(tmp_path, monkeypatch, kind):
    """Splits and methods at once in a graph; errors may differ by rounding, which moves a few predictions."""
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "photos", 300)
    write_wine(tmp_path / "wine.csv")
    (tmp_path / "tweets.conll").write_text(made_up_tweets(120))
    source = {
        "images": Source(Path("photos"), None, None, None),
        "csv": Source(None, Path("wine.csv"), "target", None),
        "conll": Source(None, None, None, Path("tweets.conll")),
    }[kind]
    settings = {
        "methods": "scan,wtc",
        "splits": 3,
        "minutes": None,
        "epochs": 6,
        "burn_in": 2,
        "as_json": True,
        "quiet": True,
    }
    for device, most in (("cuda", None), ("cpu", 1)):
        compare_own(source, **settings, out=tmp_path / device, device=device, side_by_side=most)
    (store,) = (tmp_path / "cuda").glob("*.jsonl")
    results = {
        device: {each.key: each for each in ResultStore(tmp_path / device).load(store.stem)}
        for device in ("cuda", "cpu")
    }
    assert len(results["cuda"]) == 6
    for key, ours in results["cuda"].items():
        assert ours.details["side_by_side"] >= 2
        alone = results["cpu"][key]
        assert ours.test_error == pytest.approx(alone.test_error, abs=12)
        assert ours.validation_error == pytest.approx(alone.validation_error, abs=12)
