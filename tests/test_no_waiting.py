"""A step on a GPU neither waits for the device nor leaves the CUDA graphs behind. Real GPUs: tests/gpu."""

import pytest
import torch
from torch.utils.data import TensorDataset

import activebias as ab
from activebias import learning, statistics
from pretend_device import DEVICE, PretendDevice, WouldNotReplay, WouldWait

LABELS = torch.randint(5, (32,), generator=torch.Generator().manual_seed(0))
WEIGHT = torch.tensor([0.2, 1.0, 3.0, 0.0, 0.7])


@pytest.fixture
def device(monkeypatch):
    """Return a pretended GPU."""
    with PretendDevice(monkeypatch) as device:
        yield device


def there(*tensors):
    return [tensor.to(DEVICE) for tensor in tensors]


@pytest.mark.parametrize("method", ["scan", "wpv", "sd", "isd", "auto", "sauto"])
@pytest.mark.parametrize(("window", "accumulate"), [(None, 1), (5, 2)])
def test_a_training_does_not_wait(method, window, accumulate, device, monkeypatch):
    monkeypatch.setattr(learning, "PART", 100)  # `auto` learns after every epoch
    inputs, targets = torch.randn(64, 4), torch.randint(10, (64,))
    settings = {"num_instances": 64, "num_classes": 10, "burn_in": 1}
    bias = ab.ActiveBias(method, window=window, device=DEVICE, **settings)
    model, sampler = torch.nn.Linear(4, 10), bias.sampler(batch_size=16)
    for epoch in range(3):
        bias.set_epoch(epoch)
        for number, index in enumerate(torch.tensor([*sampler]).split(16 // accumulate)):
            logits = model(inputs[index]).detach().to(DEVICE).requires_grad_()
            labels = targets[index].to(DEVICE)
            index = index if number % 2 else index.to(DEVICE)  # from a loader, or on the GPU
            with device.step():
                bias.weight(index)
                bias.loss(logits, labels, index).backward()
        data = TensorDataset(inputs, targets)
        bias.learn(model, data, list(data))
    assert sum(graph.num_replays for graph in device.graphs) >= 12
    assert bias._memory.curve is None or bias._memory.curve.num_learnt == 5


LOSSES = {
    "ignored": ((), torch.where(torch.arange(32) % 5 == 0, -100, LABELS), {}),
    "another ignored": ((), LABELS, {"ignore_index": 2}),
    "class weight": ((), LABELS, {"class_weight": WEIGHT}),
    "class weight on the host": ((), LABELS, {"class_weight": WEIGHT.tolist()}),
    "smoothed": ((), LABELS, {"class_weight": WEIGHT, "label_smoothing": 0.1, "ignore_index": 2}),
    "sample weight": ((), LABELS, {"sample_weight": torch.linspace(0, 2, 32)}),
    "sample weight on the host": ((), LABELS, {"sample_weight": [0.5] * 32}),
    "shares": ((), torch.nn.functional.one_hot(LABELS, 5) * 0.8 + 0.04, {}),
    "words": ((3,), LABELS[:, None].repeat(1, 3), {"sample_weight": torch.linspace(0, 2, 32)}),
    "sequences": ((3,), LABELS[:, None].repeat(1, 3), {"sequences": True}),
    "each loss": ((), LABELS.to(torch.uint8), {"reduction": "none"}),
    "sum": ((), LABELS, {"reduction": "sum"}),
}


@pytest.mark.parametrize("case", LOSSES)
def test_a_loss_does_not_wait(case, device):
    shape, targets, options = LOSSES[case]
    words = shape and "sequences" not in options
    settings = {"num_classes": 5, "window": 5, "max_weight": 3, "device": DEVICE}
    bias = ab.ActiveBias("wpv", num_instances=96 if words else 32, **settings)
    targets, index = there(targets, torch.arange(96).view(32, 3) if words else torch.arange(32))
    options = {name: each.to(DEVICE) if torch.is_tensor(each) else each for name, each in options.items()}
    for epoch, num_steps in enumerate([4, 2]):
        bias.set_epoch(epoch)
        for _ in range(num_steps):
            logits = torch.randn(32, *shape, 5).to(DEVICE).requires_grad_()
            with device.step():
                bias.loss(logits, targets, index, **options).sum().backward()
    assert sum(graph.num_replays for graph in device.graphs) == 2
    assert bias.num_skipped == 0


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_loss_of_the_users_own_does_not_wait(multi_label, device):
    settings = {"num_classes": 5, "multi_label": multi_label, "device": DEVICE}
    bias = ab.ActiveBias("wpv", num_instances=32, **settings)
    targets = torch.nn.functional.one_hot(LABELS, 5).float() if multi_label else LABELS
    logits, targets, index = there(torch.randn(32, 5), targets, torch.arange(32))
    mask = (torch.arange(targets.numel()) % 3 > 0).view(targets.shape)
    losses, prob, on_device = there(torch.rand(targets.shape), torch.rand(targets.shape), mask)
    for epoch, num_steps in enumerate([4, 1]):
        bias.set_epoch(epoch)
        with device.step():
            for _ in range(num_steps):
                bias.weigh(losses.requires_grad_(), prob, index, mask=on_device).backward()
                bias.weigh(losses, (logits, targets), index, mask=mask, sample_weight=prob).backward()
                bias.weight(index, mask=on_device)
                bias.record(index, prob, mask=mask)
                bias.record(index, (logits, targets))
                if multi_label:
                    bias.loss(logits.requires_grad_(), targets, index, class_weight=WEIGHT).backward()
    assert sum(graph.num_replays for graph in device.graphs) >= 4


def test_binary_logits_do_not_wait(device):
    bias = ab.ActiveBias("wpv", num_instances=32, num_classes=2, device=DEVICE)
    logits, targets, shares, index = there(torch.randn(32), LABELS % 2, torch.rand(32), torch.arange(32))
    bias.set_epoch(0)
    with device.step():
        bias.loss(logits, targets, index)
        bias.loss(logits, shares, index, class_weight=[0.5, 2.0], label_smoothing=0.1)
    assert bias.history.values()[1].sum(1).tolist() == [3] * 32


@pytest.mark.filterwarnings("ignore:Method 'sd' emphasises by the order")
@pytest.mark.parametrize("method", ["wd", "sd"])
def test_rows_grow_in_a_step_without_waiting(method, device):
    made = [ab.ActiveBias(method, num_instances=300, num_classes=10, device=d) for d in ("cpu", DEVICE)]
    generator = torch.Generator().manual_seed(0)
    for epoch in range(3):
        for bias in made:
            bias.sampler(batch_size=16)
            bias.set_epoch(epoch)
        for _ in range(6):
            index = torch.cat([torch.randint(300, (13,), generator=generator), torch.tensor([7, 7, 8])])
            prob = torch.rand(16, generator=generator)
            made[0].record(index, prob)
            index, prob = there(index, prob)
            with device.step():
                made[1].record(index, prob)
    room = made[1].history._rows.room()
    overwritten = made[1].history.num_overwritten
    if method == "sd":  # an epoch of draws expects each instance about once
        assert room[7] > 36 > room[:7].max()
        assert overwritten == 0
        for ours, theirs in zip(made[1].history.values(), made[0].history.values(), strict=True):
            assert torch.equal(ours.cpu(), theirs)
    else:
        assert overwritten > 0


def test_a_wide_history_does_not_wait(device):
    bias = ab.ActiveBias("wpv", num_instances=4, num_classes=10, device=DEVICE)
    bias.history.make_room(2 * statistics.WIDE)
    bias.set_epoch(0)
    index, prob = there(torch.zeros(128, dtype=torch.int64), torch.rand(128))
    with device.step():
        for _ in range(3):
            bias.record(index, prob)
    assert bias.history.values()[1].sum(1).tolist() == [385, 1, 1, 1]


def test_a_step_in_a_graph_of_the_users_runs_the_same_kernels(device):
    bias = ab.ActiveBias("wpv", num_instances=32, num_classes=5, device=DEVICE)
    bias.set_epoch(0)
    logits, targets, index = there(torch.randn(8, 5), LABELS[:8], torch.arange(8))
    with device.capture() as graph:
        bias.loss(logits, targets, index)
    for epoch in range(12):  # the history must not move: the graph holds its address
        bias.set_epoch(epoch)
        index.copy_(torch.randint(32, (8,)))
        with device.capture() as again:
            bias.loss(logits, targets, index)
        graph.compare(again)


@pytest.mark.filterwarnings("ignore:Method 'sd' emphasises by the order")
@pytest.mark.parametrize(("method", "window", "most"), [("wpv", None, 2), ("sd", None, 8), ("wpv", 5, 0)])
def test_an_epoch_begins_with_little_waiting(method, window, most, device):
    bias = ab.ActiveBias(method, num_instances=32, num_classes=5, window=window, device=DEVICE)
    bias.set_epoch(0)
    bias.record(torch.arange(32), torch.rand(32))
    device.num_waits = 0
    bias.set_epoch(1)
    assert device.num_waits <= most


@pytest.mark.parametrize("method", ["wpv", "sd"])
def test_a_state_loaded_after_the_users_capture_leaves_the_room(method, device):
    made = [ab.ActiveBias(method, num_instances=32, num_classes=5, device=DEVICE) for _ in range(2)]
    logits, targets, index = there(torch.randn(8, 5), LABELS[:8], torch.arange(8))
    for bias in made:
        bias.set_epoch(0)
        bias.history.make_room(64)
    with device.capture() as graph:
        made[0].loss(logits, targets, index)
    for _ in range(5):
        made[1].record(torch.arange(32), torch.rand(32))
    made[0].load_state_dict(made[1].state_dict())
    for _ in range(50):
        made[0].record(index, torch.rand(8))
    with device.capture() as again:
        made[0].loss(logits, targets, index)
    graph.compare(again)
    assert made[0].history.num_overwritten == 0
    assert made[0].history.values()[1].sum(1).tolist() == [57] * 8 + [6] * 24


@pytest.mark.parametrize("method", ["wpv", "sd"])
def test_a_user_may_make_room_within_an_epoch(method, device):
    bias = ab.ActiveBias(method, num_instances=32, num_classes=5, device=DEVICE)
    bias.sampler(batch_size=8)
    bias.set_epoch(0)
    logits, targets, index = there(torch.randn(8, 5), LABELS[:8], torch.zeros(8, dtype=torch.int64))
    bias.loss(logits, targets, index)
    bias.history.make_room(64)
    for _ in range(8):
        bias.loss(logits, targets, index)  # not from a graph that holds the old storage
    assert bias.history.values([0])[1].sum() == 73
    assert bias.history.num_overwritten == 0
    num_graphs = len(device.graphs)
    bias.sampler(batch_size=8)
    assert len(device.graphs) == num_graphs + 1


WAITING = {
    "item": lambda mean: mean * mean.max().item(),
    "float": lambda mean: mean * float(mean.max()),
    "if": lambda mean: mean if (mean > 0).any() else mean * 0,
    "nonzero": lambda mean: mean + mean.nonzero().sum(),
    "mask": lambda mean: mean - mean[mean > 0].mean(),
    "masked assignment": lambda mean: mean.clone().__setitem__(mean > 0, 1.0),
    "masked_select": lambda mean: mean.masked_select(mean > 0),
    "unique": lambda mean: mean.unique(),
    "equal": lambda mean: torch.equal(mean, mean),
    "cpu": lambda mean: mean.cpu(),
    "copy to the host": lambda mean: torch.zeros(len(mean)).copy_(mean),
    "copy from the host": lambda mean: mean * torch.ones(len(mean)).to(mean.device),
    "new tensor": lambda mean: mean * torch.tensor(2.0, device=mean.device),
    "index on the host": lambda mean: mean[torch.arange(len(mean))],
    "list": lambda mean: mean.tolist(),
    "repeat_interleave": lambda mean: mean.repeat_interleave(torch.ones_like(mean).long()),
    "bincount": lambda mean: mean.long().bincount(),
}


def bias_of(look):
    """Return a bias with a statistic of the user's, which looks at the means, and a batch."""

    def statistic(estimate):
        look(estimate.mean)
        return estimate.mean

    method = ab.Method("own", statistic=statistic, weights="emphasis")
    bias = ab.ActiveBias(method, num_instances=32, num_classes=5, device=DEVICE)
    bias.set_epoch(0)
    return bias, there(torch.arange(8), torch.rand(8))


@pytest.mark.parametrize("case", WAITING)
def test_waiting_is_noticed(case, device):
    bias, batch = bias_of(WAITING[case])
    with device.step(), pytest.raises(WouldWait):
        bias.record(*batch)
    assert bias.history.values()[1].sum(1).tolist() == [1] * 32
    bias.record(*batch)  # outside of a step it may wait


def test_a_statistic_that_looks_at_nothing_does_not_wait(device):
    bias, batch = bias_of(lambda mean: mean.repeat_interleave((mean > 0).long(), output_size=len(mean)))
    with device.step():
        bias.record(*batch)
    assert bias.history.values()[1].sum(1).tolist() == [2] * 8 + [1] * 24


def moves_history(bias):
    bias.history._rows.values = bias.history._rows.values.clone()


def moves_scores(bias):
    bias._memory.scores._values = bias._memory.scores._values.clone()


def moves_curve(bias):
    bias._memory.curve.scores = bias._memory.curve.scores.clone()


def ends_emphasis(bias):
    bias._memory.emphasises = False


@pytest.mark.parametrize("change", [moves_history, moves_scores, moves_curve, ends_emphasis])
def test_a_graph_that_was_left_behind_is_noticed(change, device):
    bias = ab.ActiveBias("auto", num_instances=32, num_classes=5, device=DEVICE)
    bias.sampler(batch_size=8)
    bias.set_epoch(0)
    logits, targets, index = there(torch.randn(8, 5), LABELS[:8], torch.arange(8))
    bias.loss(logits, targets, index)
    bias.loss(logits, targets, index)
    change(bias)
    with pytest.raises(WouldNotReplay):
        bias.loss(logits, targets, index)
    bias._memory._gpu.forget()
    bias.loss(logits, targets, index)


def test_a_number_on_the_cpu_in_a_graph_is_noticed(device):
    bias = ab.ActiveBias("wpv", num_instances=32, num_classes=5, max_weight=3, device=DEVICE)
    bias._memory.scores.max_weight = torch.tensor(3.0)
    bias.sampler(batch_size=8)
    with pytest.raises(WouldNotReplay, match="on the CPU"):
        bias.set_epoch(0)
