"""The method `auto`: the forms of data and models that it learns from."""

import gc

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import activebias as ab
from activebias import alignments, learning
from activebias.distributed import Ranks
from activebias.learning_data import Part
from learning_run import Training


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Learn in every epoch: the data set is so small that it would be every 20th."""
    monkeypatch.setattr(learning, "PART", 10.0)


class Counted(TensorDataset):
    """A data set of the user's own, which is read example by example."""

    def __getitem__(self, number):
        assert isinstance(number, int)
        return super().__getitem__(number)


@pytest.mark.parametrize("loads", ["a data set", "a loader", "the bias's loader"])
def test_all_ways_to_read_examples_give_the_same_batch(loads):
    tensors = torch.rand(50, 3), torch.arange(50)
    number = torch.tensor([7, 3, 3, 49])
    bias = ab.ActiveBias("auto", num_instances=50, num_classes=50)
    wrap = {
        "a data set": lambda data: data,
        "a loader": lambda data: DataLoader(data, batch_size=8),
        "the bias's loader": lambda data: bias.loader(data, batch_size=8),
    }[loads]
    data = TensorDataset(*tensors), Subset(TensorDataset(*tensors), range(50)), Counted(*tensors)
    batches = [Part("training", wrap(each)).batch(number) for each in data]
    for batch in batches:
        assert isinstance(batch, list)
        assert torch.equal(batch[0], tensors[0][number])
        assert torch.equal(batch[1], number)


def test_dicts_with_labels_and_loaders_are_read():
    class Rows(Dataset):
        def __init__(self, data):
            self.data = data

        def __len__(self):
            return len(self.data)

        def __getitem__(self, number):
            inputs, target = self.data[number]
            return {"inputs": inputs, "labels": target}

    class Net(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs)

    run = Training(burn_in=0)
    run.model = Net(64, 10)
    run.bias.set_epoch(0)
    run.bias.learn(run.model, Rows(run.train), DataLoader(Rows(run.validation), batch_size=7))
    assert run.curve.num_learnt == learning.FIRST_ROUNDS


def test_words_learn_a_curve_too():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 7, (40,), generator=generator)
    words = torch.randint(1, 30, (40, 6), generator=generator)
    tags = torch.where(torch.arange(6) < lengths[:, None], words % 3, -100)
    tokens = ab.TokenIndex(lengths.tolist())
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 3))
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    bias = ab.ActiveBias("auto", num_instances=tokens.num_instances, num_classes=3)
    data = TensorDataset(words, tags)
    loader = bias.loader(data, 8, num_sequences=40)
    for epoch in range(6):
        bias.set_epoch(epoch)
        for index, (inputs, targets) in loader:
            loss = bias.loss(model(inputs), targets, tokens(index, 6))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        bias.learn(model, loader, TensorDataset(words, tags), tokens=tokens)
    assert bias._memory.curve.num_learnt > 3
    assert bias.weights().std() > 0.01
    with pytest.raises(ValueError, match=r"but got 40; in tagging, give `tokens=` too"):
        bias.learn(model, loader, data)


def test_the_settings_of_cudnn_are_the_users(monkeypatch):
    """A run that asked for deterministic convolutions must not learn by others."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    run, seen = Training(burn_in=0), set()

    def forward(model, batch):
        cudnn = torch.backends.cudnn
        seen.add((cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32))
        return model(batch[0]), batch[1]

    run.bias.set_epoch(0)
    run.bias.learn(run.model, run.train, run.validation, forward=forward)
    assert seen == {(torch.backends.cudnn.enabled, True, False)}


def test_a_recurrent_net_learns():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.output = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 10)

        def forward(self, inputs):
            return self.output(self.net(inputs.view(-1, 8, 8))[0][:, -1])

    run = Training(burn_in=0)
    run.model = Tagger()
    run.bias.set_epoch(0)
    run.bias.learn(run.model, run.train, run.validation)
    assert run.curve.num_learnt == learning.FIRST_ROUNDS
    assert run.model.net.training


def test_whole_sequences_learn_a_curve():
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(1, 30, (80, 6), generator=generator)
    targets = torch.where(torch.rand(80, 6, generator=generator) < 0.2, -100, words % 3)
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 3))
    bias = ab.ActiveBias("auto", num_instances=80, num_classes=3)
    bias.set_epoch(0)
    bias.loss(model(words), targets, torch.arange(80), sequences=True)
    data = TensorDataset(words, targets)
    bias.learn(model, data, TensorDataset(words, targets))
    assert bias._memory.curve.num_learnt == learning.FIRST_ROUNDS


@pytest.mark.parametrize("part", ["the model", "a part of it"])
def test_a_compiled_model_learns_the_curve_of_the_model(part):
    """Its graph lasts for one backward pass, and learning needs two."""
    torch.compiler.reset()
    plain, compiled = (Training(burn_in=0) for _ in range(2))
    compiled.model = torch.compile(compiled.model, backend="aot_eager")
    if part == "a part of it":
        compiled.model = nn.Sequential(compiled.model)
    for run in (plain, compiled):
        run.model.eval()  # without draws of dropout
        run.epochs(0, 1)
    torch.testing.assert_close(compiled.bias.curve(), plain.bias.curve())


class Complex(nn.Module):
    """Class scores |W x|², in which W is a parameter of complex numbers, or of pairs of real numbers."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.clone())

    def forward(self, inputs):
        pairs = self.weight if not self.weight.is_complex() else torch.view_as_real(self.weight)
        return (inputs @ pairs[..., 0].T).square() + (inputs @ pairs[..., 1].T).square()


def test_a_complex_number_is_a_pair_of_real_numbers():
    weight = torch.randn(10, 64, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)) / 8
    curves = []
    for each in (weight, torch.view_as_real(weight)):
        run = Training(burn_in=0)
        run.bias.set_epoch(0)
        run.bias.record(range(len(run.train)), torch.linspace(0, 1, len(run.train)))
        run.bias.learn(Complex(each), run.train, run.validation)
        curves.append(run.bias.curve()[1])
    assert torch.equal(*curves)


@pytest.mark.parametrize("smooth", [0.0, 0.1])
def test_binary_targets_that_are_shares_have_no_class(smooth):
    labels = torch.arange(20) % 2
    data = TensorDataset(torch.randn(20, 3), labels * (1 - smooth) + smooth / 2)
    bias = ab.ActiveBias("auto", num_instances=20, num_classes=2)
    bias.set_epoch(0)
    bias.record(range(20), torch.linspace(0, 1, 20))
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    bias.learn(model, data, TensorDataset(*data.tensors))
    number = bias._memory.curve.trust.labels / learning.FIRST_ROUNDS
    assert number.tolist() == ([0, 0, 20] if smooth else [10, 10, 0])


class Sizes(TorchDispatchMode):
    """Notes the size of the largest float64 tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.dtype == torch.float64:
            self.largest = max(self.largest, found.numel())
        return found


def test_gradients_are_not_copied_whole_to_float64(monkeypatch):
    run = Training().epochs(0, 3)
    state, totals = run.bias.state_dict(), []
    for size in (10**6, 500):
        monkeypatch.setattr(alignments, "IN_FLOAT64", size)
        run.bias.load_state_dict(state)
        run.bias.set_epoch(3)
        with Sizes() as sizes:
            run.bias.learn(run.model, run.loader, run.validation)
        totals.append(run.curve.evidence.total)
    assert sizes.largest < sum(value.numel() for value in run.model.parameters())
    torch.testing.assert_close(*totals, rtol=1e-12, atol=1e-12)


def test_on_several_ranks_too_the_validation_gradients_are_held_once(monkeypatch):
    monkeypatch.setattr(Ranks, "summed", lambda self, numbers: numbers.clone())
    run, held = Training(burn_in=0), []
    size = 2 * sum(value.numel() for value in run.model.parameters())

    def forward(model, batch):
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        held.append(sum(each.numel() == size for each in tensors))
        return model(batch[0]), batch[1]

    run.bias.set_epoch(0)
    run.bias.learn(run.model, run.train, run.validation, forward=forward)
    assert set(held) == {1}


class OneByOne(Subset):
    """A data set that takes back the reading of many examples at once, as torch's DataLoader allows."""

    __getitems__ = None


def test_a_data_set_without_many_at_once_is_read_one_by_one():
    data = OneByOne(TensorDataset(torch.rand(50, 3), torch.arange(50)), range(50))
    number = torch.tensor([7, 3, 3, 49])
    assert torch.equal(next(iter(DataLoader(data, batch_sampler=[number.tolist()])))[1], number)
    assert torch.equal(Part("training", data).batch(number)[1], number)
