"""Trained side by side, every model is what it would have been alone: weights, histories, scores, errors."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import activebias as ab
from activebias import history, rows
from activebias.lab.experiment.prepared import prepare
from activebias.lab.models import LabModel
from activebias.lab.one_by_one import build_run
from activebias.lab.side_by_side import Lane, SideBySide, TrialData, estimates, training
from activebias.lab.side_by_side import memory as stacked_memory
from activebias.lab.side_by_side.mapping import join_models
from activebias.lab.side_by_side.training import part_of_state
from activebias.training.randomness import derived_generator
from side_by_side_cases import CPU, RECIPES, SEEDS, assert_same, burnt_in, small, together


@pytest.mark.parametrize("scans", [True, False])
@pytest.mark.parametrize("name", RECIPES)
def test_side_by_side_is_one_by_one(name, scans):
    recipe, dataset, teacher = small(name)
    methods = [method for method in ab.METHODS.values() if (method.order == "scan") is scans]
    if name == "conll2003-cnn" and not scans:
        pytest.skip("the words of a sentence train together: nothing to draw")
    if name in ("mnist-cnn", "cifar100-rn27"):
        methods = methods[-2:]  # all of them, with small nets: the other recipes
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU, teacher=teacher) for seed in SEEDS]
    run = together(recipe, prepared, methods)
    burn_ins = [burnt_in(recipe, data, methods, seed) for seed, data in zip(SEEDS, prepared, strict=True)]
    for position, (seed, method, _) in enumerate(run.lanes):
        alone = build_run(recipe, prepared[SEEDS.index(seed)], [method], seed=seed)
        alone.load_state_dict(burn_ins[SEEDS.index(seed)])
        while alone.epoch < recipe.epochs:
            alone.train_epoch()
        assert_same(run, position, alone, tolerance=2e-3 if name == "cifar100-rn27" else 2e-4)


def test_lanes_differ():
    """The test above could not fail if all models were the same."""
    recipe, dataset, _ = small("qt-cnn")
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    run = together(recipe, prepared, [ab.METHODS["scan"], ab.METHODS["wd"], ab.METHODS["wtc"]])
    weights = run.stack.parameters["output.weight"].detach()
    distance = torch.pdist(weights.flatten(1))
    assert distance.min() > 1e-3


def test_a_history_grows_on_after_a_graph_was_captured(monkeypatch):
    """As on a GPU: state in tensors, and `record` runs inside of a capture."""
    for module in (history, rows, estimates, stacked_memory):
        monkeypatch.setattr(module, "native", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    memory = stacked_memory.StackedMemory(
        [ab.METHODS["wpv"]], 3, num_classes=2, window=None, device=torch.device("cpu")
    )
    seen = [0.5]
    for number in range(20):
        memory.history.make_room(2)
        memory.record(torch.tensor([[1]]), torch.tensor([[number / 20]]), None)
        seen.append(number / 20)
    values, valid = memory.history.values(torch.tensor([1]))
    torch.testing.assert_close(values[valid], torch.tensor(seen))
    assert memory.history.num_overwritten == 0


@pytest.mark.parametrize("name", RECIPES)
def test_decay_is_the_gradient_of_the_regulariser(name):
    recipe, dataset, _ = small(name)
    model = recipe.model(dataset, derived_generator(0, "weights"))
    assert isinstance(model, LabModel)
    decay = model.weight_decay()
    regulariser = model.regulariser()
    gradients = dict.fromkeys(dict(model.named_parameters()))
    if regulariser.requires_grad:
        found = torch.autograd.grad(regulariser, list(model.parameters()), allow_unused=True)
        gradients = dict(zip(gradients, found, strict=True))
    assert set(decay) == {name for name, gradient in gradients.items() if gradient is not None}
    for name, strength in decay.items():
        torch.testing.assert_close(gradients[name], strength * model.get_parameter(name))


def test_what_vmap_maps_over_joins_the_models():
    @torch.library.custom_op("activebias_tests::scaled", mutates_args=())
    def scaled(
        values: torch.Tensor, scale: torch.Tensor | None, power: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (K, B) values times (K,) scale, and (2, K) sums of them."""
        outputs = values**power * (1 if scale is None else scale[:, None])
        return outputs, torch.stack([outputs.sum(1), (outputs**2).sum(1)])

    @torch.library.custom_op("activebias_tests::negative", mutates_args=())
    def negative(values: torch.Tensor) -> torch.Tensor:
        return -values

    join_models(scaled, 0, 1)
    join_models(negative)
    values, scale = torch.arange(6.0).view(3, 2), torch.tensor([1.0, -1.0, 2.0])

    def one(values, scale):
        outputs, sums = scaled(values[None], None if scale is None else scale[None], 2)
        return outputs[0], sums[:, 0]

    for own, expected in zip(torch.func.vmap(one)(values, scale), scaled(values, scale, 2), strict=True):
        assert torch.equal(own, expected if own.shape == expected.shape else expected.T)
    alike, _ = torch.func.vmap(one, in_dims=(None, 0))(values[1], scale)  # one batch for all models
    assert torch.equal(alike, values[1] ** 2 * scale[:, None])
    without, _ = torch.func.vmap(lambda values: one(values, None))(values)
    assert torch.equal(without, values**2)
    assert torch.equal(torch.func.vmap(lambda values: negative(values[None])[0])(values), -values)


@pytest.mark.parametrize("names", [("wd", "scan"), ("scan", "wd", "wtc"), ("wd", "scan", "wtc"), ("scan",)])
def test_scores_wherever_a_baseline_stands(names, monkeypatch):
    monkeypatch.setattr(stacked_memory, "_ROWS", 6)  # all scores anew: of two models at a time
    methods = [ab.METHODS[name] for name in names]
    memory = stacked_memory.StackedMemory(methods, 3, num_classes=2, window=None, device=CPU)
    for prob in ([[0.9, 0.3]], [[0.7, 0.4]]):
        index = torch.tensor([[0, 2]])
        memory.record(index.expand(len(names), -1), torch.tensor(prob).expand(len(names), -1), None)
    mean = torch.tensor([0.7, 0.5, 0.4])
    scores = {"scan": torch.zeros(3), "wd": 1 - mean, "wtc": mean * (1 - mean)}
    expected = torch.stack([scores[name] for name in names])
    torch.testing.assert_close(memory.scores, expected)
    memory.scores.fill_(0)
    memory.rescore()
    torch.testing.assert_close(memory.scores, expected)


def test_a_state_holds_where_the_augmentation_stands():
    """Also that of a part: the second trial of two goes on as it would have among both."""
    recipe, dataset, _ = small("cifar100-rn27")
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]

    def begin(positions):
        seeds = [SEEDS[position] for position in positions]
        trials = TrialData(recipe, [prepared[position] for position in positions], seeds, CPU)
        return SideBySide.begin(trials, [Lane(seed, ab.METHODS["wpv"]) for seed in seeds], emphasises=True)

    run = begin([0, 1])
    run.train_epoch()
    state = copy.deepcopy(run.state_dict())  # a checkpoint's would be in its file
    part = part_of_state(state, [1], [1])
    run.train_epoch()
    for positions, known, tolerance in (([0, 1], state, 0.0), ([1], part, 1e-6)):
        other = begin(positions)
        other.load_state_dict(known)
        other.train_epoch()
        for name, value in other.stack.parameters.items():
            torch.testing.assert_close(
                value, run.stack.parameters[name][positions], rtol=tolerance, atol=tolerance, msg=name
            )


def test_a_branch_keeps_the_window_and_the_time_it_took():
    recipe, dataset, _ = small("qt-cnn")
    recipe = replace(recipe, window=2, burn_in=2, epochs=4)
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    run = together(recipe, prepared, [ab.METHODS["wpv"]])
    assert run.memory.history.window == 2
    for position, seed in enumerate(SEEDS):
        alone = build_run(recipe, prepared[position], [ab.METHODS["wpv"]], seed=seed)
        while alone.epoch < recipe.epochs:
            alone.train_epoch()
        assert_same(run, position, alone, tolerance=2e-4)


def test_seconds_are_a_models_share_and_count_the_burn_in(monkeypatch):
    """A model's share of what its group takes; of the burn-in, which several methods share, all of it."""
    clock = iter(range(0, 1000, 6))  # an epoch asks twice
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    recipe, dataset, _ = small("qt-cnn")
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    run = together(recipe, prepared, [ab.METHODS[name] for name in ("scan", "wd", "wpv")])
    assert run.seconds == pytest.approx(6 / 2 + 2 * 6 / 6)
