"""A program for torchrun on two ranks: DeepSpeed's ZeRO, from stage 0 to stage 3."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from trainer_worker import GLOBAL_BATCH, Wrapped, compare_with_plain
from training import make_model


def train_by_deepspeed(num_ranks, num_instances, stage):
    """Train with states (1), gradients (2) and parameters (3) divided among the ranks."""
    import deepspeed  # the tests' doctests read this file where it is not installed

    config = {
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH // num_ranks,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,  # torch's SGD
        "gradient_clipping": 0.0,  # 1.0 is the default
    }

    def wrap():
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        assert engine.zero_optimization_stage() == stage

        def learn(loss):
            engine.backward(loss)
            engine.step()

        def weights():
            parameters = list(engine.module.parameters())
            with deepspeed.zero.GatheredParameters(parameters, enabled=stage == 3):
                return [parameter.detach().clone() for parameter in parameters]

        return Wrapped(engine, learn, weights)

    return compare_with_plain(wrap, num_ranks, num_instances)


def main():
    import deepspeed

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank, folder, num_instances = dist.get_rank(), Path(sys.argv[1]), int(sys.argv[2])
    for stage in range(4):
        result = train_by_deepspeed(dist.get_world_size(), num_instances, stage)
        (folder / f"{stage}.{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit


if __name__ == "__main__":
    main()
