"""The method `auto` side by side: every model learns the curve that it would have learnt alone."""

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from activebias import get_method
from activebias.alignments import MEMBERS
from activebias.curve import Curve
from activebias.evidence import DECAY, NUM_KNOTS
from activebias.lab.experiment.prepared import prepare
from activebias.lab.experiment.splitting import Split
from activebias.lab.one_by_one import build_run
from activebias.lab.side_by_side import Lane, SideBySide, TrialData
from activebias.lab.side_by_side.lanes import burn_in_lanes
from activebias.lab.side_by_side.training import part_of_state
from side_by_side_cases import CPU, SEEDS, assert_same, burnt_in, made_up, small, together


def learnable(name):
    """Return a small recipe with a validation part, and the data of its trials."""
    recipe, dataset, teacher = small(name)
    recipe = replace(recipe, validation=0.2)
    return recipe, [prepare(recipe, dataset, seed=seed, device=CPU, teacher=teacher) for seed in SEEDS]


@pytest.mark.parametrize("name", ["qt-cnn", "conll2003-cnn"])
@pytest.mark.parametrize("method", ["auto", "sauto"])
def test_curves_side_by_side_are_those_of_single_runs(name, method, monkeypatch):
    if (name, method) == ("conll2003-cnn", "sauto"):
        pytest.skip("the words of a sentence train together: nothing to draw")
    # The data sets are so small that learning would cost too much in most epochs.
    monkeypatch.setattr("activebias.learning.PART", 2.0)
    monkeypatch.setattr("activebias.evidence.LARGEST_STEPS", 0.8)  # the steps of every model are limited
    recipe, prepared = learnable(name)
    methods = [get_method(method), get_method("wtc" if method == "auto" else "stc")]
    run = together(recipe, prepared, methods)
    burn_ins = [burnt_in(recipe, data, methods, seed) for seed, data in zip(SEEDS, prepared, strict=True)]
    for position, (seed, each, _) in enumerate(run.lanes):
        alone = build_run(recipe, prepared[SEEDS.index(seed)], [each], seed=seed)
        alone.load_state_dict(burn_ins[SEEDS.index(seed)])
        while alone.epoch < recipe.epochs:
            alone.train_epoch()
        assert_same(run, position, alone, tolerance=1e-3)
        factor = run.memory.factors[position].item()
        assert factor < 1 if each.learns else factor == 1
        if each.learns:
            curve = alone.bias._memory.curve
            assert factor == pytest.approx(float(curve.factor), rel=1e-3)
            assert curve.num_learnt > 1
            assert alone.model.training  # as after an epoch without learning
            ours = run.memory.curves[position]
            torch.testing.assert_close(ours, torch.as_tensor(curve.scores), rtol=1e-3, atol=1e-3)
            trust = curve.trust
            assert torch.equal(run.curves.trust.labels[position], trust.labels)
            robust = run.curves.trust.robust.total[position]
            torch.testing.assert_close(robust, trust.robust.total, rtol=1e-3, atol=1e-3)


def test_a_resumed_group_and_a_part_of_it_learn_on(monkeypatch):
    monkeypatch.setattr("activebias.learning.PART", 2.0)
    monkeypatch.setattr("activebias.evidence.LARGEST_STEPS", 0.8)
    recipe, prepared = learnable("qt-cnn")
    trials = TrialData(recipe, prepared, SEEDS, CPU)
    lanes = [Lane(seed, get_method(name)) for name in ("auto", "scan") for seed in SEEDS]
    run = SideBySide.begin(trials, lanes, emphasises=True)
    run.train_epoch()
    state = run.state_dict()
    state = {**state, "optimiser": [{k: v.clone() for k, v in each.items()} for each in state["optimiser"]]}
    state["stack"] = {
        kind: {name: value.clone() for name, value in values.items()}
        for kind, values in state["stack"].items()
    }
    again = SideBySide.begin(TrialData(recipe, prepared, SEEDS, CPU), lanes, emphasises=True)
    again.load_state_dict(state)
    part_lanes = [lanes[1], lanes[3]]
    part = SideBySide.begin(TrialData(recipe, prepared[1:], SEEDS[1:], CPU), part_lanes, emphasises=True)
    part.load_state_dict(part_of_state(state, [1, 3], [1]))
    for each in (run, again, part):
        each.train_epoch()
    assert (run.curves.evidence.total != state["curves"]["total"][:2]).any()
    for ours, theirs in zip(again.curves.evidence, run.curves.evidence, strict=True):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(again.curves.trust.robust, run.curves.trust.robust, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(again.curves.trust.labels, run.curves.trust.labels)
    assert run.curves.trust.labels.sum() > 0
    torch.testing.assert_close(part.curves.evidence.total[0], run.curves.evidence.total[1])
    torch.testing.assert_close(again.memory.curves, run.memory.curves)
    torch.testing.assert_close(again.memory.scores, run.memory.scores)
    torch.testing.assert_close(again.memory.factors, run.memory.factors)
    assert (state["memory"]["factors"].squeeze(1) < 1).tolist() == [True, True, False, False]
    torch.testing.assert_close(part.memory.factors, run.memory.factors[[1, 3]], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(part.memory.curves[0], run.memory.curves[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(part.memory.scores[0], run.memory.scores[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("part", ["some gradients", "the model"])
def test_lanes_beside_a_lane_with_nan_learn_as_without_it(part, monkeypatch):
    monkeypatch.setattr("activebias.learning.PART", 2.0)
    recipe, prepared = learnable("qt-cnn")
    lanes = [Lane(seed, get_method("auto")) for seed in SEEDS]
    runs = [
        SideBySide.begin(TrialData(recipe, prepared, SEEDS, CPU), lanes, emphasises=True) for _ in range(2)
    ]
    broken, whole = runs
    for run in runs:
        run.train_epoch()
    before = broken.curves.evidence
    if part == "the model":
        for value in broken.stack.parameters.values():
            value.data[0] = math.nan
    else:
        measured = broken.curves._alignments

        def with_nan(*arguments):
            aligned, labels = measured(*arguments)
            aligned[:, 0, 3] = math.nan
            return aligned, labels

        monkeypatch.setattr(broken.curves, "_alignments", with_nan)
    for run in runs:
        run.train_epoch()
    ours, theirs = (run.curves for run in runs)
    for name in ("total", "weight"):
        assert torch.equal(getattr(ours.evidence, name)[1], getattr(theirs.evidence, name)[1])
    assert torch.equal(broken.memory.curves[1], whole.memory.curves[1])
    assert torch.equal(broken.memory.scores[1], whole.memory.scores[1])
    assert broken.memory.curves.isfinite().all()
    if part == "the model":
        assert torch.equal(ours.evidence.total[0], before.total[0])
        assert ours.last_epoch.tolist() == [1, 1]
    else:
        assert ours.evidence.weight[0, 3] == DECAY * before.weight[0, 3]
        others = [knot for knot in range(NUM_KNOTS) if knot != 3]
        assert torch.equal(ours.evidence.weight[0, others], theirs.evidence.weight[0, others])


@pytest.mark.parametrize("names", [("auto", "wtc"), ("sauto", "stc")])
def test_a_model_that_breaks_away_in_the_burn_in_does_not_end_the_others(names, monkeypatch):
    """Its search at a high learning rate is one of many: they branch and train as without it."""
    monkeypatch.setattr("activebias.learning.PART", 2.0)
    recipe, prepared = learnable("qt-cnn")
    lanes = [Lane(seed, get_method(name)) for name in names for seed in SEEDS]
    runs = []
    for breaks in (True, False):
        run = SideBySide.begin(
            TrialData(recipe, prepared, SEEDS, CPU), burn_in_lanes(lanes), emphasises=False
        )
        if breaks:
            for value in run.stack.parameters.values():
                value.data[0] = math.nan
        run.train_epoch()
        run = run.branch(lanes)
        run.train_epoch()
        runs.append(run)
    broken, whole = runs
    assert broken.stack.parameters["output.weight"][::2].isnan().all()
    assert broken.memory.history.values()[0].isfinite().all()
    for ours, theirs in (
        (broken.memory.scores, whole.memory.scores),
        (broken.memory.curves, whole.memory.curves),
        (torch.stack(broken.test_error, 1), torch.stack(whole.test_error, 1)),
        *zip(broken.stack.parameters.values(), whole.stack.parameters.values(), strict=True),
    ):
        assert torch.equal(ours[1::2], theirs[1::2])


def test_splits_learn_from_their_validation_parts_and_never_from_the_test_parts(monkeypatch):
    """Other labels of rows that both splits test on change the test errors, and nothing else."""
    monkeypatch.setattr("activebias.learning.PART", 2.0)
    recipe = replace(small("qt-cnn")[0], split=Split(0.2, 0.3))
    dataset = made_up("text", count=100)
    before = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in SEEDS]
    rows = sorted(set(before[0].parts.test.tolist()) & set(before[1].parts.test.tolist()))
    assert len(rows) > 3
    targets = dataset.train.targets.clone()
    targets[rows] = (targets[rows] + 1) % 6
    whole = replace(dataset.train, targets=targets)
    after = [replace(data, whole=whole, test=whole.select(data.parts.test)) for data in before]
    method = get_method("auto")
    runs = [together(recipe, prepared, [method]) for prepared in (before, after)]
    assert torch.equal(runs[0].memory.curves, runs[1].memory.curves)
    assert torch.equal(runs[0].memory.scores, runs[1].memory.scores)
    assert not torch.equal(*(torch.stack(run.test_error) for run in runs))
    for position, seed in enumerate(SEEDS):
        alone = build_run(recipe, after[position], [method], seed=seed)
        while alone.epoch < recipe.epochs:
            alone.train_epoch()
        assert alone.bias._memory.curve.num_learnt > 1
        assert_same(runs[1], position, alone, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_of_the_rule_is_that_of_a_curve_alone(dtype, monkeypatch):
    """Rounds several epochs apart, in which instances harm; torch's default dtype is no matter."""
    monkeypatch.setattr("activebias.learning.PART", 1.0)
    recipe, prepared = learnable("qt-cnn")
    trials = TrialData(recipe, prepared, SEEDS, CPU)
    curves = SideBySide.begin(
        trials, [Lane(seed, get_method("auto")) for seed in SEEDS], emphasises=True
    ).curves
    alone = [Curve(CPU, 6) for _ in SEEDS]

    def measured(epoch, number, knot, count):
        generator = torch.Generator().manual_seed(10 * epoch + number)
        aligned = torch.randn(2, len(SEEDS), NUM_KNOTS, generator=generator, dtype=torch.float64)
        labels = torch.ones(len(SEEDS), 7, dtype=torch.float64)
        share, known = count.double() / knot.shape[1], count.clamp(max=MEMBERS).double() / MEMBERS
        for lane, curve in enumerate(alone):
            curve.learn(aligned[:, lane], labels[lane], share[lane], known[lane], epoch)
        return aligned, labels

    monkeypatch.setattr(curves, "_alignments", measured)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        for epoch in (0, 7, 11, 30):
            curves.learn(epoch)
    finally:
        torch.set_default_dtype(before)
    assert [curve.num_learnt for curve in alone] == curves.num_learnt.tolist() == [6, 6]
    found = torch.stack([curve.rule_share for curve in alone])
    assert found.min() < 0.5 * 0.9**6  # instances harm
    torch.testing.assert_close(curves.rule_share, found, rtol=1e-12, atol=0)


def test_a_lane_whose_first_round_tells_nothing_learns_as_alone(monkeypatch):
    """It stops after that round, and takes the three first rounds the next time."""
    monkeypatch.setattr("activebias.learning.PART", 2.0)
    recipe, prepared = learnable("qt-cnn")
    recipe = replace(recipe, burn_in=0)
    lanes = [Lane(seed, get_method("auto")) for seed in SEEDS]

    def measured(epoch, number):
        generator = torch.Generator().manual_seed(10 * epoch + number)
        aligned = torch.randn(2, len(SEEDS), NUM_KNOTS, generator=generator, dtype=torch.float64)
        if (epoch, number) == (0, 0):
            aligned[:, 0] = math.nan
        return aligned, torch.full((len(SEEDS), 7), 10.0 * epoch + number + 1, dtype=torch.float64)

    run = SideBySide.begin(TrialData(recipe, prepared, SEEDS, CPU), lanes, emphasises=True)
    monkeypatch.setattr(run.curves, "_alignments", lambda epoch, number, *_: measured(epoch, number))
    for _ in range(2):
        run.train_epoch()
    for position, seed in enumerate(SEEDS):
        alone = build_run(recipe, prepared[position], [get_method("auto")], seed=seed)
        rounds = []

        def of_lane(bias, *_, position=position, rounds=rounds):
            number = rounds.count(bias.epoch)
            rounds.append(bias.epoch)
            aligned, labels = measured(bias.epoch, number)
            return aligned[:, position], labels[position]

        monkeypatch.setattr("activebias.learning.alignments", of_lane)
        with pytest.warns(UserWarning, match="NaN") if position == 0 else nullcontext():
            for _ in range(2):
                alone.train_epoch()
        assert rounds == [[0, 1, 1, 1], [0, 0, 0, 1]][position]
        curve, ours = alone.bias._memory.curve, run.curves
        assert ours.num_learnt[position] == curve.num_learnt
        assert torch.equal(ours.trust.labels[position], curve.trust.labels)
        for theirs, stacked in ((curve.evidence, ours.evidence), (curve.trust.robust, ours.trust.robust)):
            torch.testing.assert_close(stacked.total[position], theirs.total)
        torch.testing.assert_close(run.memory.curves[position], torch.as_tensor(curve.scores))


def test_a_training_example_with_nan_spoils_its_knot_alone(monkeypatch):
    """A knot with few members is padded with its own instances, and not with those of the next knot."""
    monkeypatch.setattr("activebias.learning.PART", 2.0)
    recipe, prepared = learnable("qt-cnn")
    run = SideBySide.begin(
        TrialData(recipe, prepared, SEEDS, CPU),
        [Lane(seed, get_method("auto")) for seed in SEEDS],
        emphasises=True,
    )
    number = run.memory.num_instances
    knot = (torch.arange(number) % 3 + 4).expand(len(SEEDS), -1)
    count = torch.zeros(len(SEEDS), NUM_KNOTS, dtype=torch.int64).scatter_add(1, knot, torch.ones_like(knot))
    losses = run.curves._losses_of

    def with_nan(members, *arguments):
        loss, counts = losses(members, *arguments)
        return loss * torch.where(members == 1, math.nan, 1.0), counts  # instance 1 is at knot 5

    monkeypatch.setattr(run.curves, "_losses_of", with_nan)
    aligned, _ = run.curves._alignments(0, 0, knot, count)
    assert aligned[:, :, 5].isnan().all()
    assert aligned[:, :, [4, 6]].isfinite().all()
