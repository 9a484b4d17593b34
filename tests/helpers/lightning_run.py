"""A small run under Lightning's Trainer."""

import inspect
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab
from activebias.integrations.lightning import ActiveBiasCallback

USUAL_WARNINGS = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    # Said of every loader that is not stateful itself; the bias knows where its epoch stands.
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended:UserWarning"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is smaller than the logging interval:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork\\(\\) may lead to deadlocks:DeprecationWarning"),
]

NUM_INSTANCES, BATCH_SIZE, EPOCHS = 50, 8, 3
NO_FILES = {"enable_checkpointing": False}
TAKES_WEIGHTS_ONLY = "weights_only" in inspect.signature(Trainer.fit).parameters  # since Lightning 2.6


def make_data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NUM_INSTANCES, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] + 0.5 * torch.randn(NUM_INSTANCES, generator=generator) > 0).long())


class Classifier(LightningModule):
    def __init__(self, bias: ab.ActiveBias, batch_size: int = BATCH_SIZE, **loader_options) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 2)
        self.bias, self.batch_size, self.loader_options = bias, batch_size, loader_options

    def train_dataloader(self):
        sampler = self.bias.sampler(batch_size=self.batch_size * self.trainer.accumulate_grad_batches)
        data = ab.with_index(make_data())
        return DataLoader(data, batch_size=self.batch_size, sampler=sampler, **self.loader_options)

    def val_dataloader(self):
        return DataLoader(make_data(), batch_size=BATCH_SIZE)

    def training_step(self, batch, batch_idx):
        index, (x, y) = batch
        return self.bias.loss(self.layer(x), y, index)

    def validation_step(self, batch, batch_idx):
        self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def make_bias(method: str = "wpv") -> ab.ActiveBias:
    return ab.ActiveBias(method, num_instances=NUM_INSTANCES, num_classes=2, burn_in=1)


def fit(bias, folder: Path, *, callback=None, callbacks=(), ckpt_path=None, module=None, **options) -> tuple:
    module = module or Classifier(bias)
    trainer = Trainer(
        **{
            "accelerator": "cpu",
            "max_epochs": EPOCHS,
            "default_root_dir": folder,
            "logger": False,
            "enable_checkpointing": bool(callbacks),
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "callbacks": [callback or ActiveBiasCallback(bias), *callbacks],
            **options,
        }
    )
    safely = {"weights_only": True} if TAKES_WEIGHTS_ONLY and ckpt_path is not None else {}
    trainer.fit(module, ckpt_path=ckpt_path, **safely)
    return module, trainer


def assert_same(bias, module, other_bias, other_module) -> None:
    assert torch.equal(module.layer.weight, other_module.layer.weight)
    for ours, theirs in zip(bias.history.values(), other_bias.history.values(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(bias.scores, other_bias.scores)
