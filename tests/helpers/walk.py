"""The walk of one probability: the calls that one `bias.loss` makes inside activebias, on a CPU.

    PYTHONPATH=src python tests/helpers/walk.py [METHOD]

prints how many calls there are, in how many files, and how often each file is entered from another one.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, TensorDataset

import activebias as ab

ROOT = str(Path(ab.__file__).parent)


class Walk(NamedTuple):
    num_calls: int
    entries: Counter[str]


def walk(method: str) -> Walk:
    """Follow one loss of the third epoch, in the sampler's order."""
    inputs, targets = torch.randn(256, 8), torch.randint(10, (256,))
    bias = ab.ActiveBias(method, num_instances=256, num_classes=10, window=5)  # which never grows
    data = ab.with_index(TensorDataset(inputs, targets))
    loader = DataLoader(data, batch_size=64, sampler=bias.sampler(batch_size=64))
    model = torch.nn.Linear(8, 10)
    calls: list[tuple[str, str]] = []

    def follow(frame, event, argument):
        if event == "call" and ours(frame):
            caller = frame.f_back
            while caller is not None and not ours(caller):
                caller = caller.f_back
            calls.append((name_of(frame), "" if caller is None else name_of(caller)))

    for epoch in range(3):
        bias.set_epoch(epoch)
        for number, (index, (x, y)) in enumerate(loader):
            logits = model(x)
            if (epoch, number) == (2, 1):
                sys.setprofile(follow)
            bias.loss(logits, y, index)
            sys.setprofile(None)
    return Walk(len(calls), Counter(here for here, before in calls if here != before))


def ours(frame) -> bool:
    return frame.f_code.co_filename.startswith(ROOT)


def name_of(frame) -> str:
    return Path(frame.f_code.co_filename).relative_to(ROOT).as_posix()


if __name__ == "__main__":
    found = walk(sys.argv[1] if len(sys.argv) > 1 else "wpv")
    entries = ", ".join(f"{file} {number}" for file, number in found.entries.items())
    print(f"{found.num_calls} calls in {len(found.entries)} files; entered: {entries}")
