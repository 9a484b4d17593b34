"""A stream: samples have no positions but ids, and new samples come later.

A W* method changes the weights and not the order, so it needs no sampler. `bias.rows(ids)` returns the rows
of the ids in the history, and adds a row for every new id. The ids are part of the state.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset

import activebias as ab
from digits import (
    BATCH_SIZE,
    BURN_IN,
    EPOCHS,
    IMAGES,
    LABELS,
    LEARNING_RATE,
    NUM_CLASSES,
    TRAIN,
    accuracy,
    make_model,
    report,
)

HALF = len(TRAIN) // 2


class Stream(IterableDataset):
    """Half of the digits in the first two epochs, then all of them, in an order of its own."""

    def __init__(self, epoch: int) -> None:
        self.known = TRAIN[:HALF] if epoch < 2 else TRAIN
        self.generator = torch.Generator().manual_seed(epoch)

    def __iter__(self) -> Iterator[dict]:
        for i in self.known[torch.randperm(len(self.known), generator=self.generator)].tolist():
            yield {"id": f"digit-{i}", "x": IMAGES[i], "y": LABELS[i]}


def main() -> float:
    torch.set_num_threads(1)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    bias = ab.ActiveBias("wtc", num_instances=HALF, num_classes=NUM_CLASSES, burn_in=BURN_IN)
    for epoch in range(EPOCHS):
        bias.set_epoch(epoch)
        if epoch == 2:
            bias.grow(len(TRAIN))  # at once: one by one the history would be copied for every new id
        for batch in DataLoader(Stream(epoch), batch_size=BATCH_SIZE):
            loss = bias.loss(model(batch["x"]), batch["y"], bias.rows(batch["id"]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        bias.save(Path(folder) / "bias.pt")
        other = ab.ActiveBias("wtc", num_instances=len(TRAIN), num_classes=NUM_CLASSES, burn_in=BURN_IN)
        other.load(Path(folder) / "bias.pt")
    late = f"digit-{TRAIN[-1]}"  # it came in the third epoch
    assert bool((other.rows([late]) == bias.rows([late])).all())
    print(f"{bias}: {late} weighs {float(bias.weight(bias.rows([late]))):.2f}")
    return accuracy(model)


if __name__ == "__main__":
    report(main())
