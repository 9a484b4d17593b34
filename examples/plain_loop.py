"""The plain PyTorch loop: Active Bias adds four lines. All other examples are compared with this one."""

import argparse

import torch
from torch.utils.data import DataLoader

import activebias as ab
from digits import (
    BATCH_SIZE,
    BURN_IN,
    EPOCHS,
    LEARNING_RATE,
    NUM_CLASSES,
    accuracy,
    make_model,
    report,
    train_set,
)


def main(save: str | None = None) -> float:
    torch.set_num_threads(1)
    dataset, model = train_set(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    bias = ab.ActiveBias("wtc", num_instances=len(dataset), num_classes=NUM_CLASSES, burn_in=BURN_IN)
    loader = DataLoader(
        ab.with_index(dataset), batch_size=BATCH_SIZE, sampler=bias.sampler(batch_size=BATCH_SIZE)
    )
    for epoch in range(EPOCHS):
        bias.set_epoch(epoch)
        for index, (x, y) in loader:
            loss = bias.loss(model(x), y, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        size = bias.metrics()["effective_sample_size"]
        print(f"epoch {epoch}: effective sample size {size:.0f} of {len(dataset)}")
    if save:
        bias.save(save)
    return accuracy(model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", help="a file for the bias's state at the end")
    report(main(parser.parse_args().save))
