"""Lightning Fabric: Fabric wraps the model, and the bias makes the loader.

`fabric run --accelerator cpu --strategy ddp --devices 2 examples/fabric_loop.py`, or `torchrun
--nproc-per-node 2`, gives the same result as one process.
"""

import os
import sys
import tempfile

import torch
from lightning.fabric import Fabric

import activebias as ab
import digits


def main() -> None:
    torch.set_num_threads(1)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    fabric = Fabric(accelerator="cpu", strategy="ddp" if num_processes > 1 else "auto", devices=num_processes)
    fabric.launch()
    dataset, model = digits.train_set(), digits.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=digits.LEARNING_RATE, momentum=0.9)
    model, optimizer = fabric.setup(model, optimizer)
    bias = ab.ActiveBias(
        "wtc", num_instances=len(dataset), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
    )
    loader = bias.loader(dataset, digits.BATCH_SIZE // fabric.world_size)  # deals the batches out itself
    state = {"model": model, "optimizer": optimizer, "bias": bias}  # for fabric.save and fabric.load
    for epoch in range(digits.EPOCHS):
        bias.set_epoch(epoch)
        for batch in loader:
            index, (x, y) = fabric.to_device(batch)
            loss = bias.loss(model(x), y, index)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        path = fabric.broadcast(folder)
        fabric.save(f"{path}/state.ckpt", state)
        fabric.load(f"{path}/state.ckpt", state)  # training would go on here
        fabric.barrier()
    if fabric.is_global_zero:
        print(f"trained on {fabric.world_size} process(es)")
        digits.report(digits.accuracy(model.module))
    fabric.barrier()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit, after correct results
