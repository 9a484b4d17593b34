"""The memory of full histories: bytes against visits × 4, for methods that draw and that scan.

    python benchmarks/histories.py [--instances 20000] [--out out/histories.json]

One instance in twenty is hard, so that SD draws it ten times as often as the others. No model is trained:
the probability of an instance is a fixed number with a little noise. The table is what one row for every
instance, as long as the longest, would take.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import activebias as ab

EPOCHS = (10, 20, 40, 80)
BATCH = 128


def measure(method, num_instances, storage):
    """Yield a row after some of the epochs."""
    rng = np.random.default_rng(0)
    hard = rng.random(num_instances) < 0.05
    level = np.where(hard, 0.5 * rng.random(num_instances), 1 - 0.02 * rng.random(num_instances))
    bias = ab.ActiveBias(method, num_instances=num_instances, num_classes=10, burn_in=1, storage=storage)
    sampler, seconds = bias.sampler(batch_size=BATCH), 0.0
    for epoch in range(max(EPOCHS)):
        bias.set_epoch(epoch)
        order = iter(sampler)
        started = time.process_time()
        for first in range(0, num_instances, BATCH):
            index = torch.tensor([next(order) for _ in range(min(BATCH, num_instances - first))])
            prob = level[index] + 0.02 * rng.standard_normal(len(index))
            bias.record(index, prob.clip(0, 1).astype(np.float32))
        seconds += time.process_time() - started
        if epoch + 1 in EPOCHS:
            longest = int(bias.history.values()[1].sum(1).max())
            size = 4 if storage == "float32" else 2
            visits = num_instances * (epoch + 2)  # with the first entry
            yield {
                "what": f"{method}, {storage}, {epoch + 1} epochs",
                "longest": longest,
                "bytes_by_visits": bias.history.num_bytes / (visits * size),
                "table_by_visits": longest * num_instances / visits,
                "cpu_seconds_an_epoch": seconds / (epoch + 1),
            }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("out/histories.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for method, storage in (("sd", "float32"), ("isd", "float32"), ("sd", "float16"), ("wpv", "float32")):
        for row in measure(method, arguments.instances, storage):
            rows.append(row)
            print(
                f"{row['what']:<24} longest {row['longest']:>4}, bytes a visit {row['bytes_by_visits']:.2f} "
                f"(a table: {row['table_by_visits']:.1f}), {row['cpu_seconds_an_epoch']:.3f} s an epoch",
                flush=True,
            )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
