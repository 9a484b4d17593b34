"""What emphasis costs: ratios measured side by side in one run, printed as a table and written as JSON.

    python benchmarks/overhead.py [--device cuda] [--rounds 200] [--out out/overhead.json] [--quick]

Every ratio alternates its sides, step by step or round by round, so that a noisy machine disturbs both.
"""

import argparse
import gc
import json
import os
import platform
import random
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import WeightedRandomSampler

import activebias as ab
from activebias.lab.models import MnistCNN, ResidualNet

HISTORY = 80  # entries of a full history: the paper's 80 epochs on MNIST


def fill(bias, num_visits, seed=0):
    """Give every instance that many more entries."""
    generator = torch.Generator().manual_seed(seed)
    everything = torch.arange(bias.num_instances, device=bias.device)
    bias.set_epoch(0)
    if bias.device.type != "cpu":
        bias.history.make_room(num_visits + 64)
    for _ in range(num_visits):
        bias.record(everything, torch.rand(bias.num_instances, generator=generator).to(bias.device))
    return bias


def in_turn(sides, num_rounds, repeat=1):
    """Run the sides in turn, in a new order every round; return each one's seconds a call, by round."""
    seconds = {name: [] for name in sides}
    order, shuffle = list(sides.items()), random.Random(0).shuffle
    gc.collect()
    gc.disable()  # as timeit does: whose turn it is when the collector comes is chance
    for number in range(num_rounds + 3):
        shuffle(order)
        for name, call in order:
            started = time.perf_counter()
            for _ in range(repeat):
                call()
            if number >= 3:
                seconds[name].append((time.perf_counter() - started) / repeat)
    gc.enable()
    return seconds


def alternate(sides, num_rounds, repeat=1):
    """Run the sides in turn; return each one's median seconds a call."""
    return {name: statistics.median(each) for name, each in in_turn(sides, num_rounds, repeat).items()}


def ratio_of(seconds, others):
    """Return the median ratio of the rounds, and how far chance may have moved it: a standard error."""
    ratios = [one / other for one, other in zip(seconds, others, strict=True)]
    if len(ratios) < 2:
        return ratios[0], float("nan")
    # The median of a normal sample spreads 1.25 times as far as its mean.
    return statistics.median(ratios), 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5


def in_epochs(bias, batch_size, device):
    """Yield the indices of the sampler's batches, epoch after epoch, as training does."""
    sampler = bias.sampler(batch_size=batch_size)
    while True:
        bias.set_epoch(bias.epoch + 1)
        order = torch.tensor(list(sampler)).to(device)
        yield from order[: len(order) // batch_size * batch_size].split(batch_size)  # as drop_last does


def training_step(device, num_rounds):
    """One whole training step with WPV, against the same step with plain cross-entropy."""
    generator = torch.Generator().manual_seed(0)
    if device == "cpu":
        name, model, shape, batch = "MNIST CNN, batch 64", MnistCNN(generator=generator), (1, 28, 28), 64
        num_instances, num_classes = 60_000, 10
    else:
        name, model = "32-layer residual net, batch 128", ResidualNet(5, generator=generator)
        shape, batch, num_instances, num_classes = (3, 32, 32), 128, 50_000, 100
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    biases = {
        where: fill(
            ab.ActiveBias("wpv", num_instances=num_instances, num_classes=num_classes, device=device),
            HISTORY - 1,
        )
        for where in {"cpu", device}
    }
    images = torch.randint(256, (batch, *shape), dtype=torch.uint8, device=device)
    labels = torch.randint(num_classes, (batch,), device=device)
    indices = {where: in_epochs(bias, batch, where) for where, bias in biases.items()}

    def step(loss_of):
        loss = loss_of(model(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def emphasised(where):
        index = next(indices[where])
        step(lambda logits: biases[where].loss(logits, labels, index))

    def plain():
        step(lambda logits: cross_entropy(logits, labels))

    def ten(call):
        # As training runs on a GPU: the host goes ahead, and is waited for only now and then.
        for _ in range(10):
            call()
        if device != "cpu":
            torch.cuda.synchronize()

    sides = {"wpv": lambda: ten(lambda: emphasised(device)), "plain": lambda: ten(plain)}
    if device != "cpu":  # as a DataLoader yields it
        sides["wpv_index_on_cpu"] = lambda: ten(lambda: emphasised("cpu"))
    seconds = in_turn(sides, num_rounds // 10)
    row = {"what": f"training step, {name}, full {HISTORY}-entry history", "device": device}
    row |= {f"{side}_ms": 1e3 * statistics.median(each) / 10 for side, each in seconds.items()}
    for side in sides:
        if side != "plain":
            ratio = side.replace("wpv", "ratio")
            row[ratio], row[f"{ratio}_se"] = ratio_of(seconds[side], seconds["plain"])
    return row


class PlainPython:
    """The same bookkeeping as one would write it at first: a list per instance, a loop per sample."""

    def __init__(self, num_instances, window):
        self.window = window
        self.histories = [[0.1] for _ in range(num_instances)]
        self.scores = [0.0] * num_instances
        self.total = 0.0

    def weigh(self, losses, probs, index):
        mean = self.total / len(self.scores)
        loss = 0.0
        for one, i in zip(losses.tolist(), index.tolist(), strict=True):
            loss += one * (0.5 + 0.5 * self.scores[i] / mean if mean else 1.0)
        for prob, i in zip(probs.tolist(), index.tolist(), strict=True):
            history = self.histories[i]
            history.append(prob)
            if self.window:
                del history[: -self.window]
            mean = sum(history) / len(history)
            distances = [abs(p - mean) for p in history]
            limit = 2 * statistics.median(distances) + 1e-6
            kept = [p for p, distance in zip(history, distances, strict=True) if distance <= limit]
            score = statistics.stdev(kept) if len(kept) > 1 else 0.0
            self.total += score - self.scores[i]
            self.scores[i] = score
        return loss / len(index)


def straightforward_torch(bias, losses, probs, index, state):
    """The same in eager torch, without the library's care: what a first vectorised version looks like."""
    scores, values, count = state
    mean = scores.mean() if bias.history.window is None else scores.sum() / len(scores)
    weight = 0.5 + 0.5 * scores[index] / mean
    loss = (weight * losses).mean()
    width = values.shape[1]
    values[index, count[index] % width] = probs
    count[index] += 1
    rows, number = values[index], count[index].clamp(max=width)
    valid = torch.arange(width) < number[:, None]
    average = (rows * valid).sum(1) / number
    distance = torch.where(valid, (rows - average[:, None]).abs(), float("inf"))
    ordered = distance.sort(1).values
    middle = ordered.gather(1, torch.stack([(number - 1) // 2, number // 2], 1)).sum(1)
    kept = distance <= middle[:, None] + 1e-6
    number = kept.sum(1)
    average = (rows * kept).sum(1) / number
    variance = (((rows - average[:, None]) * kept) ** 2).sum(1) / (number - 1).clamp(min=1)
    scores[index] = (variance + variance**2 / (number - 1).clamp(min=1)).sqrt()
    return loss


def bookkeeping(window, num_rounds):
    """`weigh` + `record` of a batch of 128 among 50,000 instances, on one CPU thread."""
    num_instances, entries = 50_000, window or HISTORY
    bias = ab.ActiveBias("wpv", num_instances=num_instances, num_classes=10, window=window)
    bias.set_epoch(0)
    fill(bias, entries - 1)
    python = PlainPython(num_instances, window)
    for i, row in enumerate(bias.history.values()[0].tolist()):
        python.histories[i] = row
    state = [bias.scores, torch.rand(num_instances, entries), torch.full((num_instances,), entries)]
    losses, probs = torch.rand(128), torch.rand(128)
    order = torch.randperm(num_instances).split(128)
    positions = {name: iter(range(10**9)) for name in ("library", "torch", "lists")}

    def batch(name):
        return order[next(positions[name]) % (len(order) - 1)]

    sides = {
        "library": lambda: bias.weigh(losses, probs, batch("library")),
        "torch": lambda: straightforward_torch(bias, losses, probs, batch("torch"), state),
        "lists": lambda: python.weigh(losses, probs, batch("lists")),
    }
    # Twenty calls in a row: a single one after 10 ms of Python lists would measure cold caches.
    seconds = alternate(sides, num_rounds // 10, repeat=20)
    return {
        "what": f"weigh + record, batch 128 of 50,000, {'window 5' if window else f'full {HISTORY} entries'}",
        "library_us": 1e6 * seconds["library"],
        "straightforward_torch_us": 1e6 * seconds["torch"],
        "python_lists_us": 1e6 * seconds["lists"],
        "ratio_to_straightforward_torch": seconds["library"] / seconds["torch"],
        "ratio_of_python_lists": seconds["lists"] / seconds["library"],
    }


def draws_of_a_loader(num_instances, num_rounds):
    """Batches of 128 as a loader draws them, against torch's WeightedRandomSampler.

    Ours follows the emphasis, which changes with every batch. WeightedRandomSampler draws a whole epoch from
    the weights at its beginning; to follow the emphasis it must be made anew for every batch.
    """
    bias = ab.ActiveBias("sd", num_instances=num_instances, num_classes=10, window=1, burn_in=1)
    bias.set_epoch(0)
    bias.record(torch.arange(num_instances), torch.rand(num_instances))
    bias.set_epoch(1)
    weights, prob = bias.probabilities(), torch.rand(128)
    order = iter(bias.sampler(batch_size=128))
    whole_epoch = []

    def ours():
        return [next(order) for _ in range(128)]

    def ours_and_update():
        bias.record(ours(), prob)

    def theirs_anew():
        list(WeightedRandomSampler(weights, 128))

    for _ in range(3):
        started = time.perf_counter()
        for _ in WeightedRandomSampler(weights, num_instances):
            pass
        whole_epoch.append((time.perf_counter() - started) / (num_instances / 128))
    sides = {"draw": ours, "draw_and_update": ours_and_update, "torch_anew": theirs_anew}
    seconds = alternate(sides, num_rounds)
    return {
        "what": f"a loader's batch of 128 of {num_instances:,}, drawn by emphasis",
        "library_us": 1e6 * seconds["draw"],
        "library_with_update_us": 1e6 * seconds["draw_and_update"],
        "weighted_random_sampler_fixed_weights_us": 1e6 * min(whole_epoch),
        "weighted_random_sampler_made_anew_us": 1e6 * seconds["torch_anew"],
        "ratio_to_fixed_weights": seconds["draw"] / min(whole_epoch),
        "ratio_of_made_anew": seconds["torch_anew"] / seconds["draw"],
    }


def draw_and_update(num_instances, num_rounds):
    """Draw a batch of 128 and update its scores: the cost must not follow the size of the data set."""
    bias = ab.ActiveBias("spv", num_instances=num_instances, num_classes=10, window=5, storage="float16")
    bias.set_epoch(0)
    for part in torch.arange(num_instances).split(2_000_000):
        bias.record(part, torch.rand(len(part)))
    sampler = iter(bias.sampler(batch_size=128))
    prob = torch.rand(128)

    def batch():
        bias.record([next(sampler) for _ in range(128)], prob)

    seconds = alternate({"batch": batch}, num_rounds)["batch"]
    return {
        "what": f"draw and update a batch of 128 of {num_instances:,}",
        "ms": 1e3 * seconds,
        "bytes_an_instance": bias.num_bytes / num_instances,
    }


def bounded_weights(max_weight, num_rounds):
    """Weights of a batch of 128 of a million with `max_weight`, which passes over all scores, and without."""
    everything, index = torch.arange(1_000_000), torch.randint(1_000_000, (128,))
    biases = {
        name: ab.ActiveBias("wpv", num_instances=len(everything), num_classes=10, window=5, max_weight=bound)
        for name, bound in (("bounded", max_weight), ("free", None))
    }
    for bias in biases.values():
        bias.set_epoch(0)
        for seed in range(4):
            probs = torch.rand(len(everything), generator=torch.Generator().manual_seed(seed)) ** 3
            bias.record(everything, probs)
    seconds = alternate(
        {name: lambda bias=bias: bias.weight(index) for name, bias in biases.items()}, num_rounds
    )
    return {
        "what": f"weights of 128 of 1,000,000, max_weight {max_weight}",
        "bounded_ms": 1e3 * seconds["bounded"],
        "free_ms": 1e3 * seconds["free"],
        "largest_weight": biases["free"].weights().max().item(),
    }


def memory():
    """Bytes an instance, all told, for the usual choices."""
    rows = []
    for window, storage in ((5, "float16"), (5, "float32"), (None, "float16"), (None, "float32")):
        for method in ("wpv", "spv"):
            bias = ab.ActiveBias(
                method, num_instances=100_000, num_classes=10, window=window, storage=storage
            )
            bias.set_epoch(0)
            if window is None:
                fill(bias, HISTORY - 1)
            next(iter(bias.sampler(batch_size=1)))
            order = 4 * bias.num_instances if bias.method.order == "scan" else 0  # a permutation in int32
            kept = f"window {window}" if window else f"full, {HISTORY} entries"
            rows.append(
                {
                    "what": f"memory: {method}, {kept}, {storage}",
                    "bytes_an_instance": (bias.num_bytes + order) / 100_000,
                }
            )
    return rows


def show(row):
    figures = ", ".join(f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
    print(f"{row['what']:<70} {figures}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/overhead.json"))
    parser.add_argument("--rounds", type=int, default=200, help="how often each side is measured")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no size above a million")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rounds = 20 if arguments.quick else arguments.rounds
    rows = []

    def measure(*results):
        for row in results:
            rows.append(row)
            show(row)

    measure(training_step(arguments.device, rounds))
    if arguments.device == "cpu":
        measure(bookkeeping(5, rounds), bookkeeping(None, rounds))
        sizes = [100_000, 1_000_000, *([] if arguments.quick else [10_000_000, 100_000_000])]
        measure(draws_of_a_loader(min(sizes[-1], 10_000_000), rounds // 4))
        for size in sizes:
            measure(draw_and_update(size, rounds))
        measure(*(bounded_weights(bound, rounds) for bound in (1.5, 5.0)))
        measure(*memory())
    machine = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": 1,
        "rounds": rounds,
    }
    if arguments.device != "cpu":
        machine["gpu"] = torch.cuda.get_device_name()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
