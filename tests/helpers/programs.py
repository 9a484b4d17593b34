"""Programs in processes of their own, forked from one that has imported the frameworks already.

To import transformers takes longer than to train an example. A program finds itself as `python program.py`
would start it, or as torchrun would start a rank: its arguments, its folder, `__main__`, its output.
"""

import importlib
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

from torch.distributed import TCPStore

SECONDS = 240  # that a program may take
# Imported when the first program needs them. The first optimiser of a process imports torch._dynamo.
FRAMEWORKS = {
    "torch": ["torch._dynamo", "activebias", "sklearn.datasets"],
    "accelerate": ["accelerate"],
    "lightning": ["activebias.integrations.lightning"],
    "huggingface": ["activebias.integrations.huggingface", "transformers.models.bert.modeling_bert"],
}


class Rank(NamedTuple):
    """A program, and what it is started with."""

    program: str
    arguments: tuple[str, ...]
    folder: str
    output: str
    environment: dict[str, str]


class Programs:
    """Runs programs, one or several ranks at a time."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self, program: Path, *arguments: str, folder: Path, ranks: int = 1, framework: str = "torch"
    ) -> str:
        """Run a program, on several ranks as torchrun does; return its standard output."""
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False) if ranks > 1 else None
        started = [
            Rank(
                str(program),
                arguments,
                str(folder),
                str(folder / f"{rank}.out"),
                as_torchrun(rank, ranks, store.port) if store else {},
            )
            for rank in range(ranks)
        ]
        modules = FRAMEWORKS["torch"] + FRAMEWORKS[framework]
        self._server.stdin.write(json.dumps([modules, started]) + "\n")
        self._server.stdin.flush()
        codes = json.loads(self._server.stdout.readline())
        complaints = [Path(f"{rank.output}.err").read_text() for rank in started]
        assert codes == [0] * ranks, "\n".join(text[-4000:] for text in complaints)
        return "".join(Path(rank.output).read_text() for rank in started)

    def close(self) -> None:
        self._server.communicate(timeout=60)


def serve() -> None:
    """Fork a process for every rank that comes in, until nobody asks any more."""
    fork = multiprocessing.get_context("fork")
    for line in sys.stdin:
        modules, ranks = json.loads(line)
        for module in modules:
            importlib.import_module(module)
        processes = [fork.Process(target=run_rank, args=rank) for rank in ranks]
        for process in processes:
            process.start()
        end = time.monotonic() + SECONDS
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
        codes = [process.exitcode for process in processes]
        for process in processes:
            process.kill()
        print(json.dumps(codes), flush=True)


def run_rank(program, arguments, folder, output, environment) -> None:
    """Run the program in this process, as its `__main__`."""
    for stream, file in ((1, output), (2, f"{output}.err")):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ.update(environment)
    os.chdir(folder)
    warnings.simplefilter("default")
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(program))
    runpy.run_path(program, run_name="__main__")


def as_torchrun(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    """Return what torchrun tells a rank; the ranks meet at its store, not at one that rank 0 opens."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


if __name__ == "__main__":
    serve()
