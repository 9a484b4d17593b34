"""Run every example and compare its accuracy with the plain loop's; for `make examples`."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

# "other": the model or the data differ from the plain loop's. "alone": the example prints no accuracy.
COMMANDS = {
    "plain_loop.py": "same",
    "loggers.py": "same",
    "other_losses.py": "other",
    "lightning_trainer.py": "same",
    "lightning_trainer.py --devices 2": "same",
    "huggingface_sequence.py": "other",
    "torchrun huggingface_sequence.py": "other",
    "huggingface_tagging.py": "other",
    "torchrun huggingface_tagging.py": "other",
    "language_model.py --methods wtc": "other",
    "accelerate_loop.py": "same",
    "torchrun accelerate_loop.py": "same",
    "fabric_loop.py": "same",
    "torchrun fabric_loop.py": "same",
    "ddp_torchrun.py": "same",
    "torchrun ddp_torchrun.py": "same",
    "skorch_classifier.py --search": "other",
    "sklearn_sgd.py": "other",
    "stateful_dataloader.py": "same",
    "ray_train.py": "same",
    "stream.py": "other",
    "pass_rate_prompts.py": "alone",
    "sft_packing.py": "alone",
}
# In no extra of this package: run where they are installed.
NEEDS = {"sft_packing.py": ("trl", "peft")}
NOISE = {"same": 0.0, "other": 0.05}  # 450 test instances at 95 %: one standard error is 1 %


def run(command: str) -> tuple[float | None, float]:
    """Return the accuracy, if the example has one, and the seconds it took."""
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
    if finished.returncode or (not found and COMMANDS[command] != "alone"):
        sys.exit(f"{command} failed:\n{finished.stdout[-5000:]}")
    return float(found[1]) if found else None, seconds


def main() -> None:
    plain = None
    for command, kind in COMMANDS.items():
        missing = [name for name in NEEDS.get(command, ()) if importlib.util.find_spec(name) is None]
        if missing:
            print(f"{command:36} skipped: {' and '.join(missing)} not installed", flush=True)
            continue
        accuracy, seconds = run(command)
        if accuracy is None:
            print(f"{command:36} ran           {seconds:6.1f} s", flush=True)
            continue
        print(f"{command:36} accuracy {accuracy:.4f} {seconds:6.1f} s", flush=True)
        plain = accuracy if plain is None else plain
        if abs(accuracy - plain) > NOISE[kind]:
            sys.exit(f"{command}: {accuracy} is too far from the plain loop's {plain}.")


if __name__ == "__main__":
    main()
