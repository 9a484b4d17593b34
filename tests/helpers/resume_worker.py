"""Trains on digits with checkpoints, until the end or until somebody kills it."""

import json
import time
from pathlib import Path

import torch

from activebias.checkpoint import write_checkpoint
from training import digits, flat_weights, make_bias, make_loader, make_model, step


def train(folder, method, num_workers, seconds_per_step):
    torch.set_num_threads(1)
    folder = Path(folder)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    bias = make_bias(method, num_instances=150)
    order, first_epoch = [], 0
    if (folder / "checkpoint.pt").exists():
        state = torch.load(folder / "checkpoint.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        bias.load_state_dict(state["bias"])
        order, first_epoch = state["order"], bias.epoch
    inputs, targets = digits(150)
    # As a program of a user's has them on Linux. A process of a fork server would start a server of its own,
    # which imports torch anew for every worker.
    context = "fork" if num_workers else None
    loader = make_loader(
        bias, inputs=inputs, targets=targets, num_workers=num_workers, multiprocessing_context=context
    )
    for epoch in range(first_epoch, 3):
        bias.set_epoch(epoch)
        for index, (batch, labels) in loader:
            step(model, optimizer, bias, batch, labels, index)
            order += index.tolist()
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "bias": bias.state_dict(),
                "order": order,
            }
            write_checkpoint(state, folder / "checkpoint.pt")
            time.sleep(seconds_per_step)
    values, valid = bias.history.values()
    result = {
        "weights": flat_weights(model).tolist(),
        "values": values.tolist(),
        "valid": valid.tolist(),
        "scores": bias.scores.tolist(),
        "order": order,
    }
    (folder / "result.json").write_text(json.dumps(result))
