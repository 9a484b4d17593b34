"""The core stands alone: importing it brings in torch, NumPy and the standard library, nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import activebias

SOURCE = Path(activebias.__file__).parent.parent

# Runs in a process of its own: this one has imported everything already. What torch and NumPy bring in by
# themselves is the baseline.
SCRIPT = """
import json, pkgutil, sys
import numpy, torch, torch.distributed, torch.utils.data
before = set(sys.modules)
package = __import__(sys.argv[1])
for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    # The rooms around the core are sub-packages; these two modules are the door to them.
    if not module.ispkg and module.name.rpartition(".")[2] not in ("cli", "__main__"):
        __import__(module.name)
print(json.dumps([sorted(before), sorted(set(sys.modules) - before)]))
"""
ROOMS = ("lab", "own", "report", "integrations", "commands", "cli")
NEVER = {"matplotlib", "sklearn", "scipy", "rich", "typer"}


def strangers(package, folder):
    """Return what importing the core of `package` brings in and must not."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, package],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    before, added = json.loads(result.stdout)
    allowed = sys.stdlib_module_names | {package, "torch", "numpy"}
    outside = {name.partition(".")[0] for name in added} - allowed
    outside |= {name.partition(".")[0] for name in before} & NEVER
    rooms = {name for name in added if name.startswith(tuple(f"{package}.{room}" for room in ROOMS))}
    return outside | rooms


def test_the_core_brings_in_nothing_else():
    assert strangers("activebias", SOURCE) == set()


def test_the_test_can_fail(tmp_path):
    package = tmp_path / "corelike"
    (package / "lab").mkdir(parents=True)
    for file, text in {
        "__init__.py": "",
        "emphasis.py": "import math, torch, numpy",
        "statistics.py": "import sklearn",
        "history.py": "from corelike.lab import tables",
        "cli.py": "import corelike.report",
        "lab/__init__.py": "",
        "lab/tables.py": "import rich",
    }.items():
        (package / file).write_text(text + "\n")
    found = strangers("corelike", tmp_path)
    assert found >= {"sklearn", "rich", "corelike.lab", "corelike.lab.tables"}
    assert found.isdisjoint({"math", "torch", "numpy", "corelike", "corelike.cli"})
