"""What `bias.learn` adds to an epoch: the same training with and without it, turn by turn in one run.

python benchmarks/auto_cost.py --device cuda [--instances 50000] [--rounds 20]
python benchmarks/auto_cost.py --calls    # torch's operations in a step and in a round of learning, on a CPU
"""

import argparse
import statistics
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

import activebias as ab


def net():
    """Return a small convolutional net, of the size of the paper's for MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 49, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


class Training:
    """A training on made-up images in the device's memory, so that reading them costs nothing."""

    def __init__(self, method, arguments):
        device, number = arguments.device, arguments.instances
        num_images = number + min(1024, number)
        torch.manual_seed(0)
        labels = torch.randint(10, (num_images,), device=device)
        # From easy to impossible, so that p̄ spreads over the knots as in a real training.
        patterns = torch.randn(10, 1, 28, 28, device=device)
        signal = torch.rand(num_images, 1, 1, 1, device=device) * patterns[labels]
        images = torch.rand(num_images, 1, 28, 28, device=device) + signal
        self.train = TensorDataset(images[:number], labels[:number])
        self.validation = TensorDataset(images[number:], labels[number:])
        self.loader = DataLoader(self.train, batch_size=128)
        self.model = net().to(device)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.learns, self.device, self.epoch = method == "auto", device, 0
        self.bias = None
        if method != "plain":
            self.bias = ab.ActiveBias("auto", num_instances=number, num_classes=10, device=device)
            self.sampler = self.bias.sampler(batch_size=128)

    def run_epoch(self):
        """Train an epoch, and return its seconds."""
        self.synchronise()
        started = time.perf_counter()
        images, labels = self.train.tensors
        if self.bias is None:
            batches = torch.randperm(len(labels)).split(128)
        else:
            self.bias.set_epoch(self.epoch)
            batches = map(torch.tensor, BatchSampler(self.sampler, 128, drop_last=False))
        for index in batches:
            logits, targets = self.model(images[index]), labels[index]
            loss = F.cross_entropy(logits, targets) if self.bias is None else None
            loss = loss if loss is not None else self.bias.loss(logits, targets, index)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        if self.learns:
            self.bias.learn(self.model, self.loader, self.validation)
        self.epoch += 1
        self.synchronise()
        return time.perf_counter() - started

    def synchronise(self):
        if self.device != "cpu":
            torch.cuda.synchronize()


class Calls(TorchDispatchMode):
    """Counts torch's operations, views included: where the host limits the speed, each takes its time."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += 1
        return func(*args, **(kwargs or {}))


def count_calls(arguments):
    """Return the operations of a step, and of a round of learning in which every knot has instances."""
    run = Training("auto", arguments)
    number = arguments.instances
    run.learns = False
    run.run_epoch()
    with Calls() as of_epoch:
        run.run_epoch()
    run.bias.set_epoch(2)
    for _ in range(20):  # until p̄ is spread over all knots
        run.bias.record(torch.arange(number), torch.linspace(-7, 9, number).sigmoid())
    run.bias._memory.curve.num_learnt = 1  # the first time has three rounds
    with Calls() as of_round:
        run.bias.learn(run.model, run.loader, run.validation)
    return of_epoch.number / -(-number // 128), of_round.number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--instances", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", action="store_true")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "Method 'auto' has learnt nothing")  # one of the sides never learns
    if arguments.calls:
        instances = argparse.Namespace(device="cpu", instances=min(arguments.instances, 2048))
        step, learning = count_calls(instances)
        share = learning / (step * -(-arguments.instances // 128))
        print(f"{step:.0f} operations a step, {learning} a round: {100 * share:.1f} % of an epoch's")
        return
    runs = {name: Training(name, arguments) for name in ("plain", "without learn", "auto")}
    times = {name: [] for name in runs}
    for number in range(arguments.rounds + 2):
        for name, run in runs.items():
            seconds = run.run_epoch()
            if number > 1:  # the first epochs compile, and learn three times
                times[name].append(seconds)
    for name, base in (("auto", "without learn"), ("auto", "plain")):
        ratios = [ours / theirs for ours, theirs in zip(times[name], times[base], strict=True)]
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        print(f"{name} / {base}: {statistics.mean(ratios):.3f} ± {error:.3f} (n = {len(ratios)})")
    print({name: round(statistics.median(each), 3) for name, each in times.items()}, "s an epoch")
    print(f"learnt {runs['auto'].bias._memory.curve.num_learnt} times")


if __name__ == "__main__":
    main()
