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
def run_example() -> Callable[..., float]:
    """Return a function that runs an example and returns the final accuracy it printed."""

    def run(name: str, *arguments: str, processes: int | None = None, folder: Path | None = None) -> float:
        launcher = [sys.executable]
        if processes is not None:
            launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
        finished = subprocess.run(
            [*launcher, str(EXAMPLES / name), *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            env=environment,
            cwd=folder,
        )
        assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
        accuracies = re.findall(r"^final accuracy: (.*)$", finished.stdout, re.MULTILINE)
        assert len(accuracies) == 1, finished.stdout
        return float(accuracies[0])

    return run


@pytest.fixture(scope="session")
def plain_state(tmp_path_factory) -> Path:
    """Return where the plain loop's bias is saved; every other example is compared to that loop."""
    return tmp_path_factory.mktemp("plain") / "bias.pt"


@pytest.fixture(scope="session")
def plain_accuracy(run_example, plain_state) -> float:
    """Return the accuracy of the plain loop."""
    return run_example("plain_loop.py", "--save", str(plain_state))
