"""What Active Bias costs as ranks and instances grow: bytes and time of a step, memory. Prints the numbers.

`python benchmarks/scaling.py` measures real gloo processes on this machine, works the bytes out for 64 GPUs
and a billion instances, and simulates 100 million instances (about 3 GB of memory; `--instances` for fewer).
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import activebias as ab

RANK_INSTANCES = 1_000_000


def step_times(bias: ab.ActiveBias, batch_size: int, num_steps: int, ranks: int = 1) -> dict[str, float]:
    """Return median microseconds of drawing, weighing and recording a batch of simulated probabilities."""
    rng = np.random.default_rng(dist.get_rank() if ranks > 1 else 0)
    batches = full_batches(bias, batch_size)
    times: dict[str, list[float]] = {"draw": [], "weight": [], "record": []}
    for _ in range(num_steps):
        prob = rng.random(batch_size, dtype=np.float32)
        moments = [time.perf_counter()]
        index = next(batches)
        moments.append(time.perf_counter())
        bias.weight(index)
        moments.append(time.perf_counter())
        bias.record(index, prob)
        moments.append(time.perf_counter())
        for name, begin, end in zip(times, moments, moments[1:], strict=False):
            times[name].append((end - begin) * 1e6)
    # The first steps draw a permutation, or warm up.
    kept = {name: values[num_steps // 10 :] for name, values in times.items()}
    medians = {name: round(statistics.median(values), 1) for name, values in kept.items()}
    # On a shared machine the median of a step that waits for other ranks is mostly other people's load.
    return {**medians, "record_p10": round(statistics.quantiles(kept["record"], n=10)[0], 1)}


def full_batches(bias: ab.ActiveBias, batch_size: int) -> Iterator[torch.Tensor]:
    """Yield batches for ever: a small data set has fewer in an epoch than are measured.

    The smaller batch at the end of an epoch is left out, since its time is not the time of a whole batch.
    """
    sampler = bias.sampler(batch_size=batch_size)
    for epoch in itertools.count(bias.epoch or 0):
        bias.set_epoch(epoch)
        indices = iter(sampler)
        for _ in range(len(sampler) // batch_size):
            yield torch.tensor([next(indices) for _ in range(batch_size)])


def bias_message(batch_size: int, num_ranks: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return a message of the size that the ranks exchange, and room for those of all ranks."""
    message = torch.zeros(2, batch_size, dtype=torch.int64)
    return message, list(message.new_empty(num_ranks, 2, batch_size).unbind(0))


def median_time(call: Callable[[], object]) -> float:
    """Return microseconds."""
    times = []
    for _ in range(100):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return round(statistics.median(times), 1)


def rank_main(arguments: argparse.Namespace) -> None:
    """Measure one of several ranks; count what it hands to torch.distributed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sent = {"calls": 0, "bytes": 0}
    all_gather = dist.all_gather

    def counted(outputs: list[torch.Tensor], message: torch.Tensor, group: object = None) -> object:
        sent["calls"] += 1
        sent["bytes"] += message.nbytes
        return all_gather(outputs, message, group=group)

    dist.all_gather = counted
    bias = ab.ActiveBias("wpv", num_instances=RANK_INSTANCES, num_classes=10, window=5)
    bias.set_epoch(0)
    num_steps = 300
    times = step_times(bias, arguments.batch_size, num_steps, ranks=dist.get_world_size())
    message, outputs = bias_message(arguments.batch_size, dist.get_world_size())
    gradient = torch.zeros(1_000_000)
    bare = {
        "bare_all_gather": median_time(lambda: all_gather(outputs, message)),
        "all_reduce_4MB": median_time(lambda: dist.all_reduce(gradient)),
    }
    if dist.get_rank() == 0:
        counts = {"sent_bytes": sent["bytes"] / num_steps, "collectives": sent["calls"] / num_steps}
        row = {**counts, **times, **bare}
        Path(arguments.rank_out).write_text(json.dumps(row))
    dist.barrier()
    os._exit(0)  # gloo in torch 2.13 sometimes aborts at interpreter exit


def measure_ranks(num_ranks: int, batch_size: int) -> dict[str, float]:
    """Start real processes and return what rank 0 measured."""
    if num_ranks == 1:
        bias = ab.ActiveBias("wpv", num_instances=RANK_INSTANCES, num_classes=10, window=5)
        bias.set_epoch(0)
        nothing = {"bare_all_gather": 0, "all_reduce_4MB": 0}
        return {"sent_bytes": 0, "collectives": 0, **step_times(bias, batch_size, 300), **nothing}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        options = ["--batch-size", str(batch_size), "--rank-out", str(out)]
        subprocess.run(
            [sys.executable, *launcher, __file__, *options],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
        return json.loads(out.read_text())


def worked_out(num_ranks: int, batch_size: int, num_instances: int) -> dict[str, float]:
    """Return a rank's traffic and memory by formula: 16 bytes a visit; window 5, float16 storage."""
    # int64 while a permutation's entries do not fit into int32.
    permutation = 4 if num_instances < 2**31 else 8
    return {
        "ranks": num_ranks,
        "batch_per_rank": batch_size,
        "instances": num_instances,
        "sent_bytes": 16 * batch_size,
        "received_bytes": 16 * batch_size * (num_ranks - 1),
        "history_GB": num_instances * (5 * 2 + 1) / 1e9,
        "scores_GB": num_instances * 4 / 1e9,
        "permutation_GB": num_instances * permutation / 1e9,
    }


def simulate(method: str, num_instances: int, batch_size: int) -> dict[str, float]:
    """Run steps over a huge data set that does not exist: its probabilities are random numbers."""
    batch_size = min(batch_size, num_instances)
    begin = time.perf_counter()
    bias = ab.ActiveBias(method, num_instances=num_instances, num_classes=1000, window=5, storage="float16")
    bias.set_epoch(0)
    made = time.perf_counter()
    next(iter(bias.sampler(batch_size=batch_size)))
    ordered = time.perf_counter()
    times = step_times(bias, batch_size, 200)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "method": method,
        "instances": num_instances,
        "batch": batch_size,
        "build_s": round(made - begin, 2),
        "first_batch_s": round(ordered - made, 2),
        **times,
        "state_bytes_per_instance": round(bias.num_bytes / num_instances, 2),
        "peak_process_GB": round(peak / 1e9, 2),
    }


def metrics_time() -> float:
    """Return the seconds of one call of `metrics`, which reads every history."""
    bias = ab.ActiveBias("wpv", num_instances=RANK_INSTANCES, num_classes=10, window=5)
    bias.set_epoch(0)
    begin = time.perf_counter()
    bias.metrics()
    return time.perf_counter() - begin


def show(title: str, rows: list[dict[str, float]]) -> None:
    print(f"\n{title}")
    widths = [max(len(name), *(len(str(row[name])) for row in rows)) for name in rows[0]]
    for line in (rows[0].keys(), *(row.values() for row in rows)):
        print("  ".join(str(entry).rjust(width) for entry, width in zip(line, widths, strict=True)))


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    ranks = [
        {"ranks": num, "batch_per_rank": size, **measure_ranks(num, size)}
        for size in (64, 256)
        for num in (1, 2, 4)
    ]
    show(f"Measured, gloo on {os.cpu_count()} cores, {RANK_INSTANCES:,} instances; times in µs", ranks)
    print(f"bias.metrics() on {RANK_INSTANCES:,} instances: {metrics_time():.2f} s")
    formula = [
        worked_out(2, 256, 10**6),
        worked_out(64, 256, 10**8),
        worked_out(64, 256, 10**9),
    ]
    show("Worked out, per rank and step (window 5, float16 storage)", formula)
    # A process each: the peak of one must not be the other's.
    simulated = []
    for method, size in (("wpv", 256), ("spv", 256), ("wpv", 16_384)):
        options = ["--simulate", method, "--batch-size", str(size), "--instances", str(arguments.instances)]
        output = subprocess.run(
            [sys.executable, __file__, *options], check=True, capture_output=True, text=True
        )
        simulated.append(json.loads(output.stdout))
    show("Simulated on one core; times of a step in µs (16,384 is the batch of 64 ranks of 256)", simulated)
    if arguments.json:
        rows = {"measured": ranks, "worked_out": formula, "simulated": simulated}
        Path(arguments.json).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=100_000_000, help="of the simulated run")
    parser.add_argument("--json", help="write the numbers to this file too")
    parser.add_argument("--batch-size", type=int, default=256, help=argparse.SUPPRESS)
    parser.add_argument("--rank-out", help=argparse.SUPPRESS)
    parser.add_argument("--simulate", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.instances < 1:
        parser.error(f"Expected `--instances` to be at least 1, but got {parsed.instances}.")
    if parsed.rank_out:
        rank_main(parsed)
    elif parsed.simulate:
        torch.set_num_threads(1)
        print(json.dumps(simulate(parsed.simulate, parsed.instances, parsed.batch_size)))
    else:
        main(parsed)
