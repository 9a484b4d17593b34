"""Runs the examples as a user does: as a program of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def run_example(programs, tmp_path_factory) -> Callable[..., float]:
    """Return a function that runs an example and returns the final accuracy it printed."""

    def run(name: str, *arguments: str, **options) -> float:
        folder = tmp_path_factory.mktemp("example")
        return final_accuracy(programs.run(EXAMPLES / name, *arguments, folder=folder, **options))

    return run


@pytest.fixture(scope="session")
def run_by_torchrun() -> Callable[..., float]:
    """Return a function that runs an example on two ranks that torchrun starts, each in a new Python."""

    def run(name: str, *arguments: str) -> float:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        finished = subprocess.run(
            [sys.executable, *launcher, str(EXAMPLES / name), *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "PYTHONWARNINGS": "default"},
        )
        assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
        return final_accuracy(finished.stdout)

    return run


def final_accuracy(printed: str) -> float:
    accuracies = re.findall(r"^final accuracy: (.*)$", printed, re.MULTILINE)
    assert len(accuracies) == 1, printed
    return float(accuracies[0])


@pytest.fixture(scope="session")
def plain_state(tmp_path_factory) -> Path:
    """Return where the plain loop's bias is saved; every other example is compared to that loop."""
    return tmp_path_factory.mktemp("plain") / "bias.pt"


@pytest.fixture(scope="session")
def plain_accuracy(run_example, plain_state) -> float:
    """Return the accuracy of the plain loop."""
    return run_example("plain_loop.py", "--save", str(plain_state))
