"""Run every example and compare its accuracy with the plain loop's; for `make examples`."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

# Which may differ: another model, or other data, than the plain loop's network on digits.
COMMANDS = {
    "plain_loop.py": "same",
    "other_losses.py": "other",
    "lightning_trainer.py": "same",
    "lightning_trainer.py --devices 2": "same",
    "huggingface_sequence.py": "other",
    "torchrun huggingface_sequence.py": "other",
    "huggingface_tagging.py": "other",
    "torchrun huggingface_tagging.py": "other",
    "accelerate_loop.py": "same",
    "torchrun accelerate_loop.py": "same",
    "ddp_torchrun.py": "same",
    "torchrun ddp_torchrun.py": "same",
    "skorch_classifier.py --search": "other",
    "sklearn_sgd.py": "other",
    "stateful_dataloader.py": "same",
    "ray_train.py": "same",
}
NOISE = {"same": 0.0, "other": 0.05}  # 450 test instances at 95 %: one standard error is 1 %


def run(command: str) -> tuple[float, float]:
    """Return the accuracy and the seconds an example took."""
    launcher, *words = command.split() if command.startswith("torchrun") else ("", *command.split())
    arguments = [*(TORCHRUN if launcher else []), str(FOLDER / words[0]), *words[1:]]
    begin = time.perf_counter()
    finished = subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    seconds = time.perf_counter() - begin
    found = re.search(r"^final accuracy: (.*)$", finished.stdout, re.MULTILINE)
    if finished.returncode or not found:
        sys.exit(f"{command} failed:\n{finished.stdout[-5000:]}")
    return float(found[1]), seconds


def main() -> None:
    plain = None
    for command, kind in COMMANDS.items():
        accuracy, seconds = run(command)
        print(f"{command:36} accuracy {accuracy:.4f} {seconds:6.1f} s", flush=True)
        plain = accuracy if plain is None else plain
        if abs(accuracy - plain) > NOISE[kind]:
            sys.exit(f"{command}: {accuracy} is too far from the plain loop's {plain}.")


if __name__ == "__main__":
    main()
