"""One rank of torchrun's launcher: it dies and is started again; then Fabric and Accelerate train.

Together, because to start takes longer than to train. The frameworks are imported where they are used: the
first attempt does not need them.
"""

import inspect
import json
import os
import signal

import torch
import torch.distributed as dist

from trainer_worker import Wrapped, compare_with_plain, learn_by, train_to
from training import make_model

SAVE_EVERY, KILL_AT = 3, 7


def train_through_a_crash(rank, num_ranks, num_instances, folder):
    """Train three epochs; once, rank 1 ends as by `kill -9`.

    A file remembers it, not the number of the attempt: on a busy machine the ranks of the first attempt do
    not always find each other, and the second would train from the start to the end.
    """
    killed = folder / "killed"

    def after_step(number, save):
        if number % SAVE_EVERY == 0:
            save()
        if rank == 1 and number == KILL_AT and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    result = train_to(rank, num_ranks, folder / "elastic.pt", "wtc", 15, after_step=after_step)
    return {**result, "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}


def train_by_fabric(rank, num_ranks, num_instances, folder):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=num_ranks)
    fabric.launch()

    def wrap():
        model = make_model()
        wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        learn = learn_by(optimizer, fabric.backward)
        return Wrapped(wrapped, learn, lambda: list(model.parameters()), fabric.setup_dataloaders)

    return compare_with_plain(wrap, num_ranks, num_instances)


def train_by_accelerate(rank, num_ranks, num_instances, folder):
    """On a CPU Accelerate wraps in DistributedDataParallel, also where sharding is asked for."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    takes_version = "fsdp_version" in inspect.signature(FullyShardedDataParallelPlugin).parameters
    plugin = FullyShardedDataParallelPlugin(**({"fsdp_version": 2} if takes_version else {}))
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)

    def wrap():
        model = make_model()
        wrapped, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        learn = learn_by(optimizer, accelerator.backward)
        return Wrapped(wrapped, learn, lambda: list(model.parameters()), accelerator.prepare, shard=False)

    result = compare_with_plain(wrap, num_ranks, num_instances)
    wrapper = type(accelerator.prepare(make_model()))
    return {**result, "wrapper": f"{wrapper.__module__}.{wrapper.__name__}"}


def run(folder, num_instances, *targets):
    """Call the targets one after the other, and write their results."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for target in targets:
        result = target(rank, dist.get_world_size(), num_instances, folder)
        (folder / f"{target.__name__}.{rank}.json").write_text(json.dumps(result))
    dist.barrier()
