"""A data set that grows, ids in place of positions, and streams."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import activebias as ab
from training import digits, make_model


def record(bias, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    bias.record(rows, torch.rand(len(rows), generator=generator))


@pytest.mark.parametrize("method", list(ab.METHODS))
@pytest.mark.parametrize("options", [{}, {"window": 3, "storage": "float16"}])
@pytest.mark.usefixtures("both_devices")
def test_a_grown_bias_is_one_made_for_all(method, options):
    grown = ab.ActiveBias(method, num_instances=10, num_classes=4, **options)
    whole = ab.ActiveBias(method, num_instances=15, num_classes=4, **options)
    for bias in (grown, whole):
        bias.set_epoch(0)
        for seed in range(4):
            record(bias, torch.arange(10), seed)
    grown.grow(15)
    for bias in (grown, whole):
        record(bias, torch.arange(5, 15), 9)
    torch.testing.assert_close(grown.scores, whole.scores)
    torch.testing.assert_close(grown.weights(), whole.weights())
    for here, there in zip(grown.history.values(), whole.history.values(), strict=True):
        assert torch.equal(here, there)
    if grown.probabilities() is not None:
        torch.testing.assert_close(grown.probabilities(), whole.probabilities())
    assert grown.metrics() == pytest.approx(whole.metrics())


@pytest.mark.parametrize("method", ["auto", "sauto"])
@pytest.mark.usefixtures("both_devices")
def test_new_instances_are_scored_by_the_curve_that_was_learnt(method):
    bias = ab.ActiveBias(method, num_instances=20, num_classes=4)
    bias.set_epoch(0)
    record(bias, torch.arange(15), 0)  # the last five have the mean of new instances
    inputs, targets = digits(20)
    bias.learn(
        make_model(num_classes=4), TensorDataset(inputs, targets % 4), TensorDataset(inputs, targets % 4)
    )
    before = bias.scores
    bias.grow(25)
    torch.testing.assert_close(bias.scores[:20], before)
    torch.testing.assert_close(bias.scores[20:], before[15:])
    assert float(bias._memory.scores.mean()) == pytest.approx(bias.scores.double().mean().item())


@pytest.mark.usefixtures("both_devices")
def test_draws_reach_the_new_instances():
    bias = ab.ActiveBias("se", num_instances=10, num_classes=4)
    bias.set_epoch(0)
    for index, _ in bias.loader(TensorDataset(torch.arange(10)), 10):
        bias.record(index, torch.full((10,), 0.01))
    bias.set_epoch(1)
    bias.grow(1000)
    dataset = TensorDataset(torch.arange(1000))
    drawn = [index for batch, _ in bias.loader(dataset, 100) for index in batch.tolist()]
    assert len(drawn) == 1000
    assert sum(index >= 10 for index in drawn) > 900


def test_it_grows_between_epochs_of_a_sampler():
    bias = ab.ActiveBias("wtc", num_instances=8, num_classes=4)
    loader = bias.loader(TensorDataset(torch.arange(8)), 4)
    bias.set_epoch(0)
    for index, _ in loader:
        record(bias, index, 0)
        with pytest.raises(ValueError, match="in the middle of an ordered epoch"):
            bias.grow(12)
    bias.set_epoch(1)
    bias.grow(12)
    loader = bias.loader(TensorDataset(torch.arange(12)), 4)
    seen = []
    for index, _ in loader:
        record(bias, index, 1)
        seen += index.tolist()
    assert sorted(seen) == list(range(12))
    assert bias.history.values()[1].sum(1).tolist() == [3] * 8 + [2] * 4


def test_waiting_visits_of_a_step_survive():
    bias = ab.ActiveBias("wpv", num_instances=8, num_classes=4)
    bias.sampler(batch_size=4)
    bias.set_epoch(0)
    bias.record([0, 1], [0.5, 0.6])
    bias.grow(9)
    bias.sampler(batch_size=4)
    bias.record([2, 3], [0.7, 0.8])
    bias.set_epoch(1)
    assert bias.history.values()[1].sum(1).tolist() == [2] * 4 + [1] * 5


def test_ids_take_rows_in_the_order_in_which_they_come():
    bias = ab.ActiveBias("wpv", num_instances=2, num_classes=4)
    bias.set_epoch(0)
    assert bias.rows(["b", "a", "b"]).tolist() == [0, 1, 0]
    assert bias.rows(["c", "a", 17, "c"]).tolist() == [2, 1, 3, 2]
    assert bias.num_instances == 4
    bias.record(bias.rows(["c"]), [0.9])
    assert bias.history.values([2])[0][0, 1] == pytest.approx(0.9)
    assert bias.rows(torch.tensor([17, 99])).tolist() == [3, 4]
    assert bias.rows([]).tolist() == []


def test_ids_are_part_of_the_state(tmp_path):
    bias = ab.ActiveBias("wpv", num_instances=1, num_classes=4)
    bias.set_epoch(0)
    for seed in range(3):
        record(bias, bias.rows(["x", "y", "z"]), seed)
    bias.save(tmp_path / "bias.pt")
    with pytest.raises(ValueError, match="num_instances=3 there, 1 here"):
        ab.ActiveBias("wpv", num_instances=1, num_classes=4).load(tmp_path / "bias.pt")
    resumed = ab.ActiveBias("wpv", num_instances=3, num_classes=4)
    resumed.load(tmp_path / "bias.pt")
    assert resumed.rows(["z", "new", "x"]).tolist() == [2, 3, 0]
    assert torch.equal(resumed.scores[:3], bias.scores)


class Name(str):
    """A string of the user's own class."""


@pytest.mark.parametrize(
    "ids", [list(np.array(["1", "2"])), [Name("1"), Name("2")], list(np.array([1, 2])), [torch.tensor(1), 2]]
)
def test_ids_of_other_libraries_are_saved_as_pythons(ids, tmp_path):
    bias = ab.ActiveBias("wpv", num_instances=2, num_classes=4)
    bias.rows(ids)
    bias.save(tmp_path / "bias.pt")
    resumed = ab.ActiveBias("wpv", num_instances=2, num_classes=4)
    resumed.load(tmp_path / "bias.pt")
    plain = ["1", "2"] if isinstance(ids[0], str) else [1, 2]
    assert resumed.rows(plain[::-1]).tolist() == [1, 0]


def test_ids_of_examples_with_several_labels():
    bias = ab.ActiveBias("wtc", num_instances=2, num_classes=3, multi_label=True)
    assert bias.rows(["a", "b"]).tolist() == [0, 1]
    with pytest.raises(ValueError, match="cannot grow: make the bias for all of them"):
        bias.rows(["c"])
    assert bias.rows(["b"]).tolist() == [1]


@pytest.mark.parametrize("ids", [["a", "a"], ["a"] * 3, "ab", [1, 2, 3, 4]])
def test_damaged_ids_are_refused(ids):
    bias = ab.ActiveBias("wpv", num_instances=3, num_classes=4)
    with pytest.raises(ValueError, match="`ids` are not at most 3 different ids"):
        bias.load_state_dict({**bias.state_dict(), "ids": ids})


@pytest.mark.parametrize("ids", [[1.5], [None], [True], [("a", 1)]])
def test_ids_of_other_kinds(ids):
    with pytest.raises(TypeError, match="strings or integers"):
        ab.ActiveBias("wpv", num_instances=3, num_classes=4).rows(ids)


@pytest.mark.parametrize("ids", ["abc", 5, torch.tensor(5)])
def test_a_single_id_is_no_batch(ids):
    with pytest.raises(TypeError, match=r"to be a batch of ids, but got .*: for one id give `\[id\]`"):
        ab.ActiveBias("wpv", num_instances=3, num_classes=4).rows(ids)


def test_what_cannot_grow(tmp_path):
    bias = ab.ActiveBias("wpv", num_instances=3, num_classes=4)
    bias.grow(3)
    with pytest.raises(ValueError, match="can only grow, but got 2"):
        bias.grow(2)
    in_file = ab.ActiveBias("wpv", num_instances=3, num_classes=4, window=2, history_file=tmp_path / "h")
    with pytest.raises(ValueError, match="leave out `history_file`"):
        in_file.grow(4)
    labels = ab.ActiveBias("wpv", num_instances=3, num_classes=4, multi_label=True)
    with pytest.raises(ValueError, match="several labels"):
        labels.grow(24)


class Stream(IterableDataset):
    """Digits that come one after the other, in an order of the stream's own, each with its name."""

    def __init__(self, number, seed):
        self.number, self.seed = number, seed

    def __iter__(self):
        inputs, targets = digits(self.number)
        for i in torch.randperm(self.number, generator=torch.Generator().manual_seed(self.seed)).tolist():
            yield {"id": f"digit-{i}", "x": inputs[i], "y": targets[i]}


def test_a_stream_needs_no_sampler():
    """W* methods weigh: the same histories and losses as from a data set in the same order."""
    streamed = ab.ActiveBias("wtc", num_instances=1, num_classes=10)
    listed = ab.ActiveBias("wtc", num_instances=64, num_classes=10)
    models = [make_model(), make_model()]
    inputs, targets = digits(64)
    for epoch in range(3):
        for bias in (streamed, listed):
            bias.set_epoch(epoch)
        if epoch == 0:
            streamed.rows([f"digit-{i}" for i in range(64)])
        for batch in DataLoader(Stream(64, epoch), batch_size=16):
            index = torch.tensor([int(name.partition("-")[2]) for name in batch["id"]])
            losses = [
                streamed.loss(models[0](batch["x"]), batch["y"], streamed.rows(batch["id"])),
                listed.loss(models[1](inputs[index]), targets[index], index),
            ]
            assert losses[0] == losses[1]
            for model, loss in zip(models, losses, strict=True):
                loss.backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.1 * parameter.grad
                        parameter.grad = None
    assert torch.equal(streamed.scores, listed.scores)


def test_a_growing_stream_of_hugging_face():
    datasets = pytest.importorskip("datasets")

    def samples(number):
        for i in range(number):
            yield {"id": f"text-{i}", "label": i % 2}

    bias = ab.ActiveBias("wtc", num_instances=1, num_classes=2)
    for epoch, number in enumerate((20, 30)):
        bias.set_epoch(epoch)
        stream = datasets.IterableDataset.from_generator(samples, gen_kwargs={"number": number})
        for batch in stream.shuffle(seed=epoch, buffer_size=8).batch(5):
            labels = torch.tensor(batch["label"])
            bias.loss(torch.zeros(5, 2), labels, bias.rows(batch["id"]))
    assert bias.num_instances == 30
    assert sorted(bias.history.values()[1].sum(1).tolist()) == [2] * 10 + [3] * 20
