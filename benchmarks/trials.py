"""Seconds a trial, one by one and side by side, in one run, with the floor of the machine beside them.

    python benchmarks/trials.py --recipes digits mnist-fc --out out/trials.json
    python benchmarks/trials.py --device cuda
    python benchmarks/trials.py --device cuda --recipes mnist-cnn --models 40 --orders

Both sides train a few epochs of the recipe on part of its data (made-up pixels and words: values do not
matter for time) and are measured in turn, in the middle of the training: with histories of half the
recipe's epochs. A trial's seconds are those of an iteration and of an evaluated
example, times as many as the recipe has; the burn-in is not shared here, as methods share it in earnest.
With `--orders` the sides are the methods that scan and the methods that draw, both side by side; one instance
in a hundred is hard, so that SD draws it some forty times an epoch, as on MNIST.
The floor is what the arithmetic of forward and backward pass takes at the rate of a large matrix product,
or its memory traffic at the rate of a large copy, whichever is longer.
"""

import argparse
import json
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from activebias import METHODS
from activebias.lab import get_recipe
from activebias.lab.data import Dataset, Examples
from activebias.lab.experiment.prepared import prepare
from activebias.lab.one_by_one import build_run
from activebias.lab.side_by_side import Lane, SideBySide, TrialData, training
from activebias.training.evaluation import error_of

# Examples for training and testing as the recipe has them, and what a batch looks like.
SIZES = {
    "digits": (1437, 360, (1, 8, 8)),
    "mnist-fc": (60_000, 10_000, (1, 28, 28)),
    "mnist-cnn": (60_000, 10_000, (1, 28, 28)),
    "cifar100-rn27": (50_000, 10_000, (3, 32, 32)),
    "cifar100-rn63": (50_000, 10_000, (3, 32, 32)),
    "cifar10-lr": (50_000, 10_000, (3, 32, 32)),
    "qt-cnn": (1_000, 500, (37,)),
}
AT_ONCE = {
    "digits": 50,
    "mnist-fc": 110,
    "mnist-cnn": 50,
    "cifar100-rn27": 25,
    "cifar100-rn63": 15,
    "cifar10-lr": 150,
    "qt-cnn": 500,
}
CPU = torch.device("cpu")


def made_up(recipe, num_train, num_test, shape, num_classes):
    generator = torch.Generator().manual_seed(0)

    def examples(number):
        high = 1000 if len(shape) == 1 else 256
        inputs = torch.randint(1, high, (number, *shape), generator=generator)
        inputs = inputs if len(shape) == 1 else inputs.to(torch.uint8)
        return Examples((inputs,), torch.randint(num_classes, (number,), generator=generator))

    vectors = torch.randn(1000, 50, generator=generator) if len(shape) == 1 else None
    names = tuple(str(number) for number in range(num_classes))
    return Dataset(recipe.data, examples(num_train), examples(num_test), num_classes, names, vectors)


def timed(call, device):
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


class Side:
    """One way to train: seconds an iteration and an evaluated example, of one model."""

    def __init__(self, epoch, evaluate, num_models, iterations, examples, device):
        self.epoch, self.evaluate, self.device = epoch, evaluate, device
        self.scale_iteration, self.scale_example = num_models * iterations, num_models * examples
        self.iterations, self.examples = [], []

    def measure(self):
        self.iterations.append(timed(self.epoch, self.device) / self.scale_iteration)
        self.examples.append(timed(self.evaluate, self.device) / self.scale_example)

    def seconds(self, recipe, num_train, num_test):
        iterations = recipe.epochs * (num_train // recipe.batch_size)
        evaluated = evaluated_examples(recipe, num_train, num_test)
        return statistics.median(self.iterations) * iterations + statistics.median(self.examples) * evaluated


def evaluated_examples(recipe, num_train, num_test):
    """Return how many examples a trial evaluates: test examples, and training examples in some epochs."""
    return sum(num_test + num_train * recipe.has_train_error(epoch) for epoch in range(recipe.epochs))


def past(recipe, num_instances):
    """Yield the probabilities of half of the recipe's epochs: histories as long as they are on average."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(recipe.epochs // 2):
        yield torch.rand(num_instances, generator=generator)


def one_by_one(recipe, dataset, device):
    data = prepare(recipe, dataset, seed=0, device=device)
    run = build_run(recipe, data, [METHODS["wpv"]], seed=0)
    bias = run.biases["wpv"]
    for number, prob in enumerate(past(recipe, data.num_instances)):
        bias.set_epoch(number)
        bias.record(torch.arange(data.num_instances, device=device), prob.to(device))
    run.test_error = [0.0] * (recipe.epochs // 2)

    def epoch():
        run._train_epoch()
        run.test_error.append(0.0)  # which counts the epochs

    def evaluate():
        for part in (data.test, data.train):
            error_of(run.model, part)

    iterations = len(dataset.train) // recipe.batch_size
    return Side(epoch, evaluate, 1, iterations, len(dataset.train) + len(dataset.test), device)


def drawn(run, num_epochs):
    """Let histories grow as draws make them: hard instances come far more often than the others."""
    memory, generator = run.memory, torch.Generator().manual_seed(1)
    shape = (memory.num_models, run.trials.recipe.batch_size)
    level = 0.5 * torch.rand(memory.num_instances, generator=generator)
    level[torch.rand(memory.num_instances, generator=generator) > 0.01] = 0.995
    level = level.to(memory.device)
    for epoch in range(num_epochs):
        memory.make_room(emphasises=epoch > 0)
        for _ in range(run.trials.num_iterations):
            uniform = torch.rand(shape, dtype=torch.float64, generator=generator).to(memory.device)
            index = memory.draw(uniform, (uniform * memory.num_instances).long())
            memory.record(index, level[index], None)


def side_by_side(recipe, dataset, device, num_models, order="scan"):
    methods = [method for method in METHODS.values() if (method.order == "scan") == (order == "scan")]
    seeds = list(range(-(-num_models // len(methods))))
    prepared = [prepare(recipe, dataset, seed=seed, device=CPU) for seed in seeds]
    lanes = [Lane(seed, method) for method in methods for seed in seeds][:num_models]
    trials = TrialData(recipe, prepared, seeds, device)
    run = SideBySide.begin(trials, lanes, emphasises=True)
    if order == "draw":
        drawn(run, recipe.epochs // 2)
    else:
        every = torch.arange(trials.num_instances, device=device).expand(num_models, -1)
        for prob in past(recipe, trials.num_instances):
            run.memory.make_room(emphasises=True)
            run.memory.record(every, prob.to(device).expand(num_models, -1), None)
    run.test_error = [torch.zeros(num_models)] * (recipe.epochs // 2)

    def epoch():
        run._prepare_epoch()
        run._train_epoch()
        run.test_error.append(torch.zeros(num_models))

    def evaluate():
        training.errors_of(run.stack, trials, run._trial)

    examples = len(dataset.train) + len(dataset.test)
    return Side(epoch, evaluate, num_models, trials.num_iterations, examples, device)


def peak_rates(device, dtype):
    """Return the operations and bytes a second of a large matrix product and a large copy."""
    size = 8192 if device.type == "cuda" else 1024
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    large = torch.empty(1 << (31 if device.type == "cuda" else 26), dtype=torch.uint8, device=device)
    other = torch.empty_like(large)
    product = min(timed(lambda: matrix @ matrix, device) for _ in range(5))
    copy = min(timed(lambda: other.copy_(large), device) for _ in range(5))
    return 2 * size**3 / product, 2 * large.numel() / copy


def floor(recipe, dataset, device, num_train, num_test):
    """Return the least seconds of a trial by operations and by bytes."""
    half = recipe.in_half_precision(device)
    operations_rate, bytes_rate = peak_rates(device, torch.bfloat16 if half else torch.float32)
    model = recipe.model(dataset, torch.Generator().manual_seed(0))
    inputs = tuple(tensor[: recipe.batch_size] for tensor in dataset.train.inputs)
    kept = 0

    def note(tensor):
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    with (
        FlopCounterMode(display=False) as counter,
        torch.autograd.graph.saved_tensors_hooks(note, lambda t: t),
    ):
        model(*inputs).sum().backward()
    forward_backward = counter.get_total_flops()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    # What is kept is written once and read once; weights, gradients and momentum are read and written.
    traffic = 2 * kept / (2 if half else 1) + 6 * weights
    iterations = recipe.epochs * (num_train // recipe.batch_size)
    evaluated = evaluated_examples(recipe, num_train, num_test) / recipe.batch_size
    operations = iterations * forward_backward + evaluated * forward_backward / 3
    return operations / operations_rate, iterations * traffic / bytes_rate


def in_turn(sides, num_rounds):
    for number in range(num_rounds + 2):
        for side in sides.values():
            side.measure()
            if number < 2:  # what a first epoch sets up
                side.iterations.clear()
                side.examples.clear()


def compare_orders(name, device, num_rounds, num_models=None):
    """Return the seconds a trial of methods that scan and of methods that draw, both side by side."""
    recipe, dataset, num_models = small(name, device, num_models)
    num_train, num_test, _ = SIZES[name]
    sides = {order: side_by_side(recipe, dataset, device, num_models, order) for order in ("scan", "draw")}
    in_turn(sides, num_rounds)
    seconds = {key: side.seconds(recipe, num_train, num_test) for key, side in sides.items()}
    return {
        "recipe": name,
        "models_at_once": num_models,
        "scan_s": seconds["scan"],
        "draw_s": seconds["draw"],
        "ratio": seconds["draw"] / seconds["scan"],
        "iteration_us": {key: 1e6 * statistics.median(side.iterations) for key, side in sides.items()},
    }


def small(name, device, num_models):
    """Return the recipe, part of made-up data of its kind, and how many models to train at once."""
    recipe = replace(get_recipe(name), burn_in=0)
    num_train, num_test, shape = SIZES[name]
    num_classes = {"cifar100-rn27": 100, "cifar100-rn63": 100, "qt-cnn": 6}.get(name, 10)
    # Setting an epoch up is part of it: on a GPU it would weigh too much in an epoch of few batches.
    batches = 100 if device.type == "cuda" else 4
    part = min(num_train, batches * recipe.batch_size)
    dataset = made_up(recipe, part, min(num_test, part), shape, num_classes)
    num_models = AT_ONCE[name] if num_models is None else num_models
    if device.type == "cpu":
        from activebias.lab.side_by_side.plan import most_models

        data = prepare(recipe, dataset, seed=0, device=CPU)
        num_models = min(num_models, most_models(recipe, data, device))
    return recipe, dataset, num_models


def compare(name, device, num_rounds, num_models=None):
    recipe, dataset, num_models = small(name, device, num_models)
    num_train, num_test, _ = SIZES[name]
    sides = {"one by one": one_by_one(recipe, dataset, device)}
    if num_models == 1 and device.type == "cpu":  # as the trials do it
        sides["side by side"] = one_by_one(recipe, dataset, device)
    else:
        sides["side by side"] = side_by_side(recipe, dataset, device, num_models)
    in_turn(sides, num_rounds)
    seconds = {key: side.seconds(recipe, num_train, num_test) for key, side in sides.items()}
    by_operations, by_bytes = floor(recipe, dataset, device, num_train, num_test)
    return {
        "recipe": name,
        "models_at_once": num_models,
        "one_by_one_s": seconds["one by one"],
        "side_by_side_s": seconds["side by side"],
        "ratio": seconds["one by one"] / seconds["side by side"],
        "iteration_us": 1e6 * statistics.median(sides["side by side"].iterations),
        "floor_operations_s": by_operations,
        "floor_bytes_s": by_bytes,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--recipes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--models", type=int, help="how many side by side (default: a number that fits)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--orders", action="store_true", help="compare methods that scan and that draw")
    parser.add_argument("--out", type=Path, default=Path("out/trials.json"))
    arguments = parser.parse_args()
    if arguments.models is not None and arguments.models < 1:
        parser.error("--models must be at least 1")
    device = torch.device(arguments.device)
    torch.set_num_threads(1)
    rows = []
    for name in arguments.recipes:
        if arguments.orders:
            row = compare_orders(name, device, arguments.rounds, arguments.models)
            rows.append(row)
            print(
                f"{name}: {row['scan_s']:.3g} s a trial of a method that scans, {row['draw_s']:.3g} s of one "
                f"that draws ({row['ratio']:.2f} times as long), {row['models_at_once']} models side by side",
                flush=True,
            )
            continue
        row = compare(name, device, arguments.rounds, arguments.models)
        rows.append(row)
        print(
            f"{name}: {row['one_by_one_s']:.3g} s a trial one by one, {row['side_by_side_s']:.3g} s with "
            f"{row['models_at_once']} side by side ({row['ratio']:.1f} times faster); floor: "
            f"{row['floor_operations_s']:.2g} s of operations, {row['floor_bytes_s']:.2g} s of memory",
            flush=True,
        )
    machine = {"machine": platform.machine(), "torch": torch.__version__, "threads": 1}
    if device.type == "cuda":
        machine["gpu"] = torch.cuda.get_device_name()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
