"""The loops that people write themselves: torchrun, Accelerate, NumPy. Two processes train like one."""

import csv

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab


def assert_same_history(first, second) -> None:
    first, second = (torch.load(path, weights_only=True)["history"] for path in (first, second))
    assert torch.equal(first["count"], second["count"])
    assert torch.allclose(first["values"], second["values"], atol=1e-5)


def test_torchrun_trains_like_the_plain_loop(run_by_torchrun, plain_accuracy, plain_state, tmp_path):
    saved = tmp_path / "bias.pt"
    assert run_by_torchrun("ddp_torchrun.py", "--save", str(saved)) == plain_accuracy
    assert_same_history(plain_state, saved)


def test_accelerate_trains_like_the_plain_loop(run_example, plain_accuracy, plain_state, tmp_path):
    pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")
    saved = tmp_path / "bias.pt"
    options = {"ranks": 2, "framework": "accelerate"}
    assert run_example("accelerate_loop.py", "--save", str(saved), **options) == plain_accuracy
    assert_same_history(plain_state, saved)


@pytest.mark.parametrize("method", ["wpv", "spv"])
def test_accelerate_resumes_mid_epoch(method, tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="not installed: activebias[huggingface]")

    def train(resume: bool) -> tuple:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
        data = ab.with_index(TensorDataset(x, (x[:, 0] > 0).long()))
        bias = ab.ActiveBias(method, num_instances=40, num_classes=2)
        loader = DataLoader(data, batch_size=8, sampler=bias.sampler(batch_size=8, shard=False))
        accelerator = accelerate.Accelerator(cpu=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        accelerator.register_for_checkpointing(bias)
        if resume:
            accelerator.load_state(str(tmp_path))
        for epoch in range(bias.epoch or 0, 3):
            loader.set_epoch(epoch)
            for step, (index, (inputs, labels)) in enumerate(loader):
                loss = bias.loss(model(inputs), labels, index)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                if not resume and (epoch, step) == (1, 2):
                    accelerator.save_state(str(tmp_path))
        return bias, model

    (bias, model), (resumed_bias, resumed_model) = train(resume=False), train(resume=True)
    assert torch.equal(model.weight, resumed_model.weight)
    assert torch.equal(bias.history.values()[0], resumed_bias.history.values()[0])


def test_accelerates_loader_does_not_send_a_resumed_bias_back(tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="not installed: activebias[huggingface]")
    bias = stopped_bias()
    loader = accelerate.Accelerator(cpu=True).prepare(bias.loader(small_data(), 8))
    bias.set_epoch(1)
    with pytest.raises(RuntimeError, match=r"stands in epoch 1, but the loader begins epoch 0"):
        next(iter(loader))
    loader.set_epoch(1)
    assert len(list(loader)) == 3


def small_data():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, 0] > 0).long())


def stopped_bias():
    """Return a bias with the state of a run that was stopped after two steps of epoch 1."""
    bias, resumed = (ab.ActiveBias("wtc", num_instances=40, num_classes=2) for _ in range(2))
    for epoch in range(2):
        bias.set_epoch(epoch)
        for step, (index, (inputs, _)) in enumerate(bias.loader(small_data(), 8)):
            bias.record(index, inputs[:, 0].sigmoid())
            if (epoch, step) == (1, 1):
                break
    resumed.load_state_dict(bias.state_dict())
    return resumed


def train_by_fabric(folder, *, resume, set_up):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    bias = ab.ActiveBias("stc", num_instances=40, num_classes=2)
    loader = bias.loader(small_data(), 8)
    loader = fabric.setup_dataloaders(loader) if set_up else loader
    state = {"model": model, "optimizer": optimizer, "bias": bias}
    if resume:
        fabric.load(folder / "state.ckpt", state)
    for epoch in range(bias.epoch or 0, 3):
        bias.set_epoch(epoch)
        for step, batch in enumerate(loader):
            index, (inputs, labels) = fabric.to_device(batch)
            optimizer.zero_grad()
            fabric.backward(bias.loss(model(inputs), labels, index))
            optimizer.step()
            if not resume and (epoch, step) == (1, 2):
                fabric.save(folder / "state.ckpt", state)
    return bias, model


def test_fabric_resumes_mid_epoch(tmp_path):
    pytest.importorskip("lightning", reason="not installed: pip install 'activebias[lightning]'")
    bias, model = train_by_fabric(tmp_path, resume=False, set_up=True)
    resumed_bias, resumed_model = train_by_fabric(tmp_path, resume=True, set_up=False)
    assert torch.equal(model.weight, resumed_model.weight)
    assert torch.equal(bias.history.values()[0], resumed_bias.history.values()[0])
    with pytest.raises(RuntimeError, match="with Fabric iterate over the DataLoader itself"):
        train_by_fabric(tmp_path, resume=True, set_up=True)


def test_example_of_fabric(run_example, plain_accuracy):
    assert run_example("fabric_loop.py", framework="lightning") == plain_accuracy


def test_example_of_a_stream(run_example, plain_accuracy):
    assert run_example("stream.py") == pytest.approx(plain_accuracy, abs=0.05)


def test_scikit_learn_through_weight_and_record(run_example, plain_accuracy):
    """A linear model, as good as the network of the plain loop on digits."""
    assert run_example("sklearn_sgd.py") == pytest.approx(plain_accuracy, abs=0.03)


def test_example_of_loggers(run_example, plain_accuracy, tmp_path):
    pytest.importorskip("tensorboard", reason="not installed: pip install 'activebias[dev]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run_example("loggers.py", "--folder", str(tmp_path)) == plain_accuracy
    with open(tmp_path / "active_bias.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    board = EventAccumulator(str(tmp_path)).Reload()
    names = [name for name in rows[0] if name != "epoch"]
    assert board.Tags()["scalars"] == names
    for name in names:
        shown = [event.value for event in board.Scalars(name)]
        assert shown == pytest.approx([float(row[name]) for row in rows], rel=1e-6)
    sizes = [float(row["active_bias/effective_sample_size"]) for row in rows]
    assert sizes[1] == 1347  # in the burn-in all weights are equal
    assert sizes[-1] < 1300
