"""Does it pay to train the judges together, with torch.func? A step of five models, one by one and at once.

    python benchmarks/judges_side_by_side.py [--device cpu]

Forward, backward and Adam on batches of their own, without the bookkeeping of the histories. Milliseconds per
step of all five, the median of 200 steps.
"""

import argparse
import time

import torch
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from activebias.own.models import build_model

NUM_JUDGES = 5
MODELS = {
    "RowNet": ({"num_features": 64, "num_words": 0, "num_classes": 10}, lambda n: torch.randn(n, 64)),
    "LinearHead": ({"num_features": 384, "num_classes": 10}, lambda n: torch.randn(n, 384)),
    "SmallCNN": (
        {"num_channels": 3, "num_classes": 10, "mean": [127.5] * 3, "std": [64.0] * 3},
        lambda n: torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8),
    ),
}


def milliseconds(step, device, steps=200):
    times = []
    for _ in range(steps):
        started = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - started))
    return float(torch.tensor(times[steps // 4 :]).median())


def measure(name, batch_size, device):
    arguments, draw = MODELS[name]
    description = {"name": name, "arguments": arguments}
    models = [
        build_model(description, torch.Generator().manual_seed(k)).eval().to(device)
        for k in range(NUM_JUDGES)
    ]
    inputs = torch.stack([draw(batch_size) for _ in models]).to(device)
    targets = torch.randint(10, (NUM_JUDGES, batch_size), device=device)
    optimisers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]

    def one_by_one():
        for model, optimiser, x, y in zip(models, optimisers, inputs, targets, strict=True):
            optimiser.zero_grad()
            cross_entropy(model(x), y).backward()
            optimiser.step()

    parameters, buffers = stack_module_state(models)
    optimiser = torch.optim.Adam(parameters.values(), lr=1e-3)

    def loss_of(parameters, buffers, x, y):
        return cross_entropy(functional_call(models[0], (parameters, buffers), (x,)), y)

    def at_once():
        gradients = vmap(grad(loss_of))(parameters, buffers, inputs, targets)
        for key, parameter in parameters.items():
            parameter.grad = gradients[key]
        optimiser.step()

    return milliseconds(one_by_one, device), milliseconds(at_once, device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    print("| model | batch | one by one | at once | ratio |\n|---|---:|---:|---:|---:|")
    for name in MODELS:
        for batch_size in (32, 128):
            apart, together = measure(name, batch_size, device)
            ratio = together / apart
            print(f"| {name} | {batch_size} | {apart:.1f} | {together:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
