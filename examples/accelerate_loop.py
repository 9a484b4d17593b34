"""Accelerate in a plain loop. Accelerate gives each process its batches, so the sampler has `shard=False`.

`torchrun --nproc-per-node 2 examples/accelerate_loop.py` gives the same result as one process. On GPUs
`accelerate launch` works too; on a CPU it starts several processes only through MPI.
"""

import argparse
import os
import sys
import tempfile

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

import activebias as ab
import digits


def main(method: str, save: str | None) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    dataset, model = digits.train_set(), digits.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=digits.LEARNING_RATE, momentum=0.9)
    bias = ab.ActiveBias(
        method, num_instances=len(dataset), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
    )
    batch_size = digits.BATCH_SIZE // accelerator.num_processes  # of this process
    sampler = bias.sampler(batch_size=batch_size, shard=False)
    loader = DataLoader(ab.with_index(dataset), batch_size=batch_size, sampler=sampler)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(bias)  # save_state and load_state then hold the bias too
    for epoch in range(digits.EPOCHS):
        loader.set_epoch(epoch)  # not bias.set_epoch alone: the loader counts by itself, from 0
        bias.set_epoch(epoch)  # on several processes Accelerate's loader tells the bias since 1.7
        for index, (x, y) in loader:
            loss = bias.loss(model(x), y, index)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    accelerator.wait_for_everyone()
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
    if accelerator.is_main_process:
        if save:
            bias.save(save)
        print(f"trained on {accelerator.num_processes} process(es)")
        digits.report(digits.accuracy(accelerator.unwrap_model(model)))
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="wtc")
    parser.add_argument("--save", help="a file for the bias's state at the end")
    arguments = parser.parse_args()
    main(arguments.method, arguments.save)
    sys.stdout.flush()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit, after correct results
