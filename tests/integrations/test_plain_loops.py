"""The loops that people write themselves: torchrun, Accelerate, NumPy. Two processes train like one."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab


def assert_same_history(first, second) -> None:
    first, second = (torch.load(path, weights_only=True)["history"] for path in (first, second))
    assert torch.equal(first["count"], second["count"])
    assert torch.allclose(first["values"], second["values"], atol=1e-5)


@pytest.mark.parametrize("example", ["ddp_torchrun.py", "accelerate_loop.py"])
def test_two_ranks_train_like_the_plain_loop(example, run_example, plain_accuracy, plain_state, tmp_path):
    if "accelerate" in example:
        pytest.importorskip("accelerate", reason="not installed: pip install 'activebias[huggingface]'")
    saved = tmp_path / "bias.pt"
    assert run_example(example, "--save", str(saved), processes=2) == plain_accuracy
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


def test_scikit_learn_through_weight_and_record(run_example, plain_accuracy):
    """A linear model, as good as the network of the plain loop on digits."""
    assert run_example("sklearn_sgd.py") == pytest.approx(plain_accuracy, abs=0.03)
