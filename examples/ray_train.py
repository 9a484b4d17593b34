"""Ray Train: the loop of `ddp_torchrun.py` on two local workers, one of which is killed.

Ray starts both again from the last checkpoint, in the middle of an epoch. The accuracy is that of an
undisturbed run.
"""

import os
import signal
import tempfile
from pathlib import Path

import torch

import digits

NUM_WORKERS = 2
STEPS_BETWEEN_CHECKPOINTS, KILL_AT_STEP = 40, 100


def train_worker(settings: dict) -> None:
    """Run on every worker; Ray has started torch.distributed."""
    import ray.train
    import ray.train.torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader

    import activebias as ab

    torch.set_num_threads(1)
    dataset = digits.train_set()
    model = ray.train.torch.prepare_model(digits.make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=digits.LEARNING_RATE, momentum=0.9)
    bias = ab.ActiveBias(
        "wtc", num_instances=len(dataset), num_classes=digits.NUM_CLASSES, burn_in=digits.BURN_IN
    )
    batch_size = digits.BATCH_SIZE // dist.get_world_size()
    # Not ray.train.torch.prepare_data_loader, which replaces the sampler.
    loader = DataLoader(
        ab.with_index(dataset), batch_size=batch_size, sampler=bias.sampler(batch_size=batch_size)
    )
    num_steps, resumed_at = 0, None
    parts = {"model": model.module, "optimizer": optimizer, "bias": bias}
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", weights_only=True)
        num_steps = resumed_at = state["num_steps"]
        for name, part in parts.items():
            part.load_state_dict(state[name])

    def report(**metrics: float | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if dist.get_rank() == 0:  # all ranks hold the same state
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({"num_steps": num_steps, **state}, Path(folder) / "state.pt")
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=saved)

    for epoch in range(bias.epoch or 0, digits.EPOCHS):
        bias.set_epoch(epoch)
        for index, (x, y) in loader:
            loss = bias.loss(model(x), y, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            num_steps += 1
            if checkpoint is None and num_steps == KILL_AT_STEP and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)  # a worker dies, as machines do
            if num_steps % STEPS_BETWEEN_CHECKPOINTS == 0:
                report(num_steps=num_steps)
    report(accuracy=digits.accuracy(model.module), resumed_at=resumed_at)


def main() -> float:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    # Workers are processes of their own: tell them where `digits` lies, and leave torch one thread each.
    variables = {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        ray.init(num_cpus=NUM_WORKERS + 1, include_dashboard=False, runtime_env={"env_vars": variables})
        trainer = TorchTrainer(
            train_worker,
            train_loop_config={},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=NUM_WORKERS),
            run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=1)),
        )
        metrics = trainer.fit().metrics
        ray.shutdown()
    if metrics["resumed_at"] is None:  # the worker did not die
        raise RuntimeError("Nothing was resumed: the example shows nothing.")
    print(f"a worker was killed at step {KILL_AT_STEP}, training resumed at step {metrics['resumed_at']}")
    return metrics["accuracy"]


if __name__ == "__main__":
    digits.report(main())
