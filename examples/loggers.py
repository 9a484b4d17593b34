"""Loggers: `bias.metrics()` is a dict of floats, here for TensorBoard and for a CSV file, once an epoch.

`tensorboard --logdir FOLDER` shows the curves. Weights & Biases and MLflow take the same dict in one line.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

import activebias as ab
import digits


def main(folder: Path) -> float:
    torch.set_num_threads(1)
    dataset, model = digits.train_set(), digits.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=digits.LEARNING_RATE, momentum=0.9)
    bias = ab.ActiveBias(
        "wtc", num_instances=len(dataset), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
    )
    loader = bias.loader(dataset, digits.BATCH_SIZE)
    rows = []
    with SummaryWriter(str(folder)) as board:
        for epoch in range(digits.EPOCHS):
            bias.set_epoch(epoch)
            for index, (x, y) in loader:
                loss = bias.loss(model(x), y, index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            # It reads every history: once an epoch, not at every step.
            metrics = {f"active_bias/{name}": value for name, value in bias.metrics().items()}
            for name, value in metrics.items():
                board.add_scalar(name, value, epoch)
            # Weights & Biases: wandb.log(metrics, step=epoch)
            # MLflow: mlflow.log_metrics(metrics, step=epoch)
            rows.append({"epoch": epoch, **metrics})
    with open(folder / "active_bias.csv", "w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    print(f"{len(rows)} epochs of {len(metrics)} metrics")
    return digits.accuracy(model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, help="for the logs; a temporary one unless given")
    given = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        digits.report(main(given or Path(temporary)))
