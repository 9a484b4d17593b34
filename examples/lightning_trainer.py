"""Lightning: one callback, `bias.loss` in the training step, the sampler in `train_dataloader`.

`python examples/lightning_trainer.py --devices 2` trains on two processes, with the same result.
"""

import argparse
import os
import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

import activebias as ab
import digits
from activebias.integrations.lightning import ActiveBiasCallback


class Classifier(LightningModule):
    def __init__(self, bias: ab.ActiveBias, batch_size: int) -> None:
        super().__init__()
        self.model = digits.make_model()
        self.bias = bias
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader:
        # Here the ranks are known. Accumulated batches are one step, so one batch for the bias.
        step_size = self.batch_size * self.trainer.accumulate_grad_batches
        return DataLoader(
            ab.with_index(digits.train_set()),
            batch_size=self.batch_size,
            sampler=self.bias.sampler(batch_size=step_size),
        )

    def training_step(self, batch: tuple, batch_idx: int) -> torch.Tensor:
        index, (x, y) = batch
        loss = self.bias.loss(self.model(x), y, index)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=digits.LEARNING_RATE, momentum=0.9)


def main(devices: int = 1, accumulate: int = 1, folder: str | None = None) -> float:
    torch.set_num_threads(1)
    bias = ab.ActiveBias(
        "wtc", num_instances=len(digits.train_set()), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
    )
    module = Classifier(bias, digits.BATCH_SIZE // (devices * accumulate))
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        accumulate_grad_batches=accumulate,
        max_epochs=digits.EPOCHS,
        callbacks=[ActiveBiasCallback(bias)],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module)
    if trainer.is_global_zero:
        size = trainer.callback_metrics["active_bias/effective_sample_size"]
        print(f"effective sample size {size:.0f} of {bias.num_instances}")
        digits.report(digits.accuracy(module.model))
    return digits.accuracy(module.model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1)
    arguments = parser.parse_args()
    main(arguments.devices, arguments.accumulate)
    sys.stdout.flush()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit, after correct results
