"""The method `auto`: what it learns, when, and that it goes on exactly where it stopped."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, SubsetRandomSampler

import activebias as ab
from activebias import evidence as curves
from activebias import learning
from activebias.evidence import knot_means
from learning_run import NUM_TRAINING, Training
from pretend_gpu import pretend_gpu


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Learn in every epoch: the data set is so small that it would be every 20th."""
    monkeypatch.setattr(learning, "PART", 10.0)


def test_wrong_labels_come_to_weigh_little_and_the_error_falls():
    plain = np.mean([Training("scan", seed=seed).epochs(0, 25).error() for seed in range(2)])
    learnt = [Training("auto", seed=seed).epochs(0, 25) for seed in range(2)]
    assert np.mean([each.error() for each in learnt]) < plain - 0.01
    for each in learnt:
        weight = each.bias.weights()
        assert weight.mean() == pytest.approx(1, abs=1e-4)
        assert weight[each.wrong].mean() < 0.7 * weight[~each.wrong].mean()


def test_draws_follow_the_curve():
    run = Training("sauto").epochs(0, 12)
    chance = run.bias.probabilities()
    assert chance.sum() == pytest.approx(1)
    scores = run.bias.scores.double()
    expected = (curves.UNIFORM + (1 - curves.UNIFORM) * scores / scores.mean()) / NUM_TRAINING
    torch.testing.assert_close(chance, expected, rtol=1e-4, atol=1e-9)
    drawn = run.bias._memory.draw(200_000, torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=NUM_TRAINING) / 200_000
    assert (share - chance).abs().max() < 5 * math.sqrt(chance.max() / 200_000)
    few = run.bias._memory.draw(5, torch.Generator().manual_seed(0))  # through the tree of sums
    assert few.tolist() == drawn[:5].tolist()


@pytest.mark.parametrize("method", ["auto", "sauto"])
def test_a_resumed_run_is_the_run_that_never_stopped(method, tmp_path):
    whole = Training(method).epochs(0, 8)
    first = Training(method).epochs(0, 5)
    first.bias.save(tmp_path / "bias.pt")
    second = Training(method)
    second.model.load_state_dict(first.model.state_dict())
    second.optimiser.load_state_dict(copy.deepcopy(first.optimiser.state_dict()))
    second.bias.load(tmp_path / "bias.pt")
    torch.manual_seed(1)
    second.epochs(5, 8)
    third = Training(method).epochs(0, 5)
    torch.manual_seed(1)
    third.epochs(5, 8)
    assert second.curve.num_learnt == whole.curve.num_learnt == third.curve.num_learnt
    assert np.array_equal(second.curve.scores, third.curve.scores)
    assert torch.equal(second.bias.scores, third.bias.scores)
    assert torch.equal(second.bias.weights(), third.bias.weights())


@pytest.mark.parametrize("own_batches", [False, True])
def test_a_loader_that_picks_the_validation_examples_reads_no_others(own_batches):
    read, run = [], Training().epochs(0, 2)

    class Rows(Dataset):
        def __len__(self):
            return NUM_TRAINING + len(run.validation)

        def __getitem__(self, row):
            read.append(row)
            return (run.train + run.validation)[row]

    held_out = range(NUM_TRAINING, len(Rows()))
    sampler = SubsetRandomSampler(held_out)
    keywords = {"batch_sampler": BatchSampler(sampler, 7, False)} if own_batches else {"sampler": sampler}
    run.bias.set_epoch(2)
    run.bias.learn(run.model, run.loader, DataLoader(Rows(), **keywords))
    assert set(read) == set(held_out)


def test_learning_changes_neither_model_nor_random_state():
    run = Training().epochs(0, 2)
    run.bias.set_epoch(2)
    state = copy.deepcopy(run.model.state_dict())
    random = torch.get_rng_state()
    run.model[0].eval()  # a part that the user froze
    run.bias.learn(run.model, run.loader, run.validation)
    assert all(torch.equal(state[name], value) for name, value in run.model.state_dict().items())
    assert all(value.grad is None or value.grad.isfinite().all() for value in run.model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in run.model] == [False, True, True, True]


def test_the_alignment_of_a_knot_is_the_loss_that_a_step_on_it_saves():
    """a_b = <G_b, g>: a step of size h along -G_b changes the validation loss by -h a_b."""
    run = Training().epochs(0, 3)
    model = run.model.double().eval()
    parameters = list(model.parameters())

    def losses(data, validates):
        inputs, targets = data.tensors
        return lambda index: (
            nn.functional.cross_entropy(model(inputs[index].double()), targets[index], reduction="none"),
            targets[index] if validates else index,
        )

    sources = learning.Sources(
        parameters, losses(run.train, False), NUM_TRAINING, losses(run.validation, True), 300
    )
    members = learning.Members.of(learning.means_of(run.bias._memory))
    generator = torch.Generator().manual_seed(3)
    trust = run.curve.trust
    both, _ = learning.alignments(run.bias, sources, members, trust, generator)
    order = torch.randperm(NUM_TRAINING, generator=torch.Generator().manual_seed(3))

    # How far a label is trusted is no part of the gradient.
    prob = sources.validation(torch.arange(300))[0].detach().neg().exp()
    below, part = curves.between(prob)
    knots = trust.at_knots(members.share)
    trusted = (1 - part) * knots[below] + part * knots[below + 1]

    def validation_losses():
        with torch.no_grad():
            loss, labels = sources.validation(torch.arange(300))
            bounded = loss.minimum(trust.bounds()[labels])
            return torch.stack([(trusted * bounded).mean(), (1 - loss.neg().exp()).mean()])

    step, checked = 1e-6, 0
    for knot, drawn in enumerate(members.drawn(order)):
        if members.number[knot] == 0:
            assert len(drawn) == 0
            assert not both[:, knot].any()
            assert members.known[knot] == 0
            continue
        assert len(drawn) == min(members.number[knot], learning.MEMBERS)
        gradient = torch.autograd.grad(sources.training(drawn)[0].mean(), parameters)
        before = validation_losses()
        with torch.no_grad():
            for value, change in zip(parameters, gradient, strict=True):
                value -= step * change
        saved = (before - validation_losses()) / step
        with torch.no_grad():
            for value, change in zip(parameters, gradient, strict=True):
                value += step * change
        torch.testing.assert_close(both[:, knot], saved, rtol=0.02, atol=2e-3)
        checked += 1
    assert checked >= 4


def test_it_learns_at_the_end_of_the_burn_in_and_not_before():
    run = Training(burn_in=3)
    learnt = []
    for epoch in range(5):
        run.epochs(epoch, epoch + 1)
        learnt.append(run.curve.num_learnt)
    assert learnt == [0, 0, learning.FIRST_ROUNDS, learning.FIRST_ROUNDS + 1, learning.FIRST_ROUNDS + 2]
    run.bias.learn(run.model, run.loader, run.validation)  # again in the same epoch
    assert run.curve.num_learnt == learnt[-1]


def test_learning_takes_its_part_of_the_examples(monkeypatch):
    monkeypatch.setattr(learning, "PART", 0.5)
    seen = []

    class Counted(Dataset):
        def __init__(self, data):
            self.data = data

        def __len__(self):
            return len(self.data)

        def __getitem__(self, number):
            seen.append(number)
            return self.data[number]

    run = Training(burn_in=0)
    run.train = Counted(run.train)
    run.loader = run.bias.loader(run.train, 50)
    run.validation = Counted(run.validation)
    run.epochs(0, 1)
    first, trained = len(seen), NUM_TRAINING
    assert first > trained
    run.epochs(1, 31)
    learnt = len(seen) - first - 30 * trained
    assert 0 < learnt <= 0.5 * 30 * trained


@pytest.mark.parametrize(
    ("burn_in", "epoch"), [(0, 1), (2, 3)], ids=["from the first epoch", "after a burn-in"]
)
def test_without_validation_data_it_follows_a_rule_and_says_so(burn_in, epoch):
    bias = ab.ActiveBias("auto", num_instances=6, num_classes=4, burn_in=burn_in, remove_outliers=False)
    probs = torch.tensor([0.05, 0.2, 0.4, 0.6, 0.9, 0.99])
    for number in range(epoch):
        bias.set_epoch(number)
        bias.record(range(6), probs)
    with pytest.warns(UserWarning, match=r"by the rule p̄ \(1 - p̄\): call `bias\.learn\(model, training_set"):
        bias.set_epoch(epoch)
    means = (0.25 + epoch * probs) / (1 + epoch)
    scores = means * (1 - means)
    expected = curves.UNIFORM + (1 - curves.UNIFORM) * scores / scores.mean()
    torch.testing.assert_close(bias.weights(), expected, atol=0.05, rtol=0)  # linear between the knots
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bias.set_epoch(epoch + 1)  # once is enough


def test_other_methods_learn_nothing():
    run = Training("wtc").epochs(0, 3)
    assert run.curve is None
    with pytest.raises(ValueError, match="'wtc' has no curve: only 'auto' and 'sauto' learn one"):
        run.bias.curve()


def test_the_curve_explains_itself():
    run = Training().epochs(0, 25)
    means, weight = run.bias.curve()
    torch.testing.assert_close(means, knot_means())
    share = learning.Members.of(learning.means_of(run.bias._memory)).share
    assert (share * weight).sum() == pytest.approx(1, abs=0.05)
    text = run.bias.explain()
    assert text.startswith("Emphasises p̄ from ")
    assert "count for little and may be mislabelled: " in text
    metrics = run.bias.metrics()
    assert metrics["weight_max"] <= curves.MOST * 1.5
    assert metrics["weight_at_0.5"] == pytest.approx(weight[5].item())
    shown = [float(name.removeprefix("weight_at_")) for name in metrics if name.startswith("weight_at_")]
    assert shown == [0.05, 0.25, 0.5, 0.75, 0.95]
    own = learning.weights_at(run.bias, learning.means_of(run.bias._memory).tolist())
    torch.testing.assert_close(torch.tensor(own), run.bias.weights(), rtol=0.1, atol=0.02)


def test_the_effective_sample_size_of_draws_follows_the_learnt_emphasis():
    run = Training("sauto").epochs(0, 6)
    drawn = run.bias.probabilities()
    assert run.curve.num_learnt > 0
    assert run.bias.metrics()["effective_sample_size"] == pytest.approx(float(1 / (drawn**2).sum()), rel=1e-4)


def test_a_curve_that_has_learnt_nothing_says_so():
    bias = ab.ActiveBias("auto", num_instances=6, num_classes=4)
    assert bias.explain().startswith("Nothing is learnt yet, and the rule p̄ (1 - p̄) holds. Emphasises ")


def test_the_curve_is_bounded_as_the_weights_are():
    bias = ab.ActiveBias("auto", num_instances=100, num_classes=2, max_weight=3, remove_outliers=False)
    bias.set_epoch(0)
    for _ in range(20):
        bias.record(range(100), torch.tensor([0.5] * 4 + [0.99] * 96))
    weight, knot = bias.weights(), 5  # p̄ = ½
    assert weight.max() == pytest.approx(3)
    assert bias.curve()[1][knot] == pytest.approx(3, abs=1e-3)
    assert "(weight 3.0)" in bias.explain()


def test_the_code_of_a_gpu_learns_the_same_curve(monkeypatch):
    expected = Training().epochs(0, 6).bias.weights()
    pretend_gpu(monkeypatch)
    torch.testing.assert_close(Training().epochs(0, 6).bias.weights(), expected, atol=1e-4, rtol=0)
