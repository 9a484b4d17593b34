"""DistributedDataParallel in a plain loop: the ranks exchange the recorded probabilities by themselves.

`torchrun --nproc-per-node 2 examples/ddp_torchrun.py` gives the same result as one process, with or without
torchrun. On several nodes, start the same program by torchrun on every node.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import activebias as ab
import digits


def main(method: str, save: str | None) -> None:
    torch.set_num_threads(1)
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    dataset, model = digits.train_set(), digits.make_model()
    parallel = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=digits.LEARNING_RATE, momentum=0.9)
    bias = ab.ActiveBias(
        method, num_instances=len(dataset), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
    )
    batch_size = digits.BATCH_SIZE // world_size  # of this rank
    loader = DataLoader(
        ab.with_index(dataset), batch_size=batch_size, sampler=bias.sampler(batch_size=batch_size)
    )
    for epoch in range(digits.EPOCHS):
        bias.set_epoch(epoch)
        for index, (x, y) in loader:
            loss = bias.loss(parallel(x), y, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if not dist.is_initialized() or dist.get_rank() == 0:
        if save:
            bias.save(save)  # every rank holds the same state, so one rank writes it
        print(f"trained on {world_size} process(es)")
        digits.report(digits.accuracy(model))
    if dist.is_initialized():
        dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="wtc")
    parser.add_argument("--save", help="a file for the bias's state at the end")
    arguments = parser.parse_args()
    main(arguments.method, arguments.save)
    sys.stdout.flush()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit, after correct results
