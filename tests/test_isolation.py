"""The core stands alone, and the rooms around it import each other along the arrows only."""

import importlib
import json
import sys
from pathlib import Path

import pytest

import activebias
from rooms import ARROWS, read_graph

SOURCE = Path(activebias.__file__).parent.parent

# Runs in a process of its own: this one has imported everything already. What torch and NumPy bring in by
# themselves is the baseline.
SCRIPT = """
import json, pkgutil, sys
before = set(sys.modules)
package = __import__(sys.argv[1])
for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    # The rooms around the core are sub-packages; these two modules are the door to them.
    if not module.ispkg and module.name.rpartition(".")[2] not in ("cli", "__main__"):
        __import__(module.name)
print(json.dumps([sorted(before), sorted(set(sys.modules) - before)]))
"""
ROOMS = ("training", "runs", "own", "lab", "report", "integrations", "commands", "cli")
NEVER = {"matplotlib", "sklearn", "scipy", "rich", "typer"}


def strangers(fresh_python, package, folder):
    """Return what importing the core of `package` brings in and must not."""
    code, printed, complaint = fresh_python(SCRIPT, package, path=[folder])
    assert code == 0, complaint
    before, added = json.loads(printed)
    assert "torch" in before
    assert not [name for name in before if name.startswith("activebias")]
    allowed = sys.stdlib_module_names | {package, "torch", "numpy"}
    outside = {name.partition(".")[0] for name in added} - allowed
    outside |= {name.partition(".")[0] for name in before} & NEVER
    rooms = {name for name in added if name.startswith(tuple(f"{package}.{room}" for room in ROOMS))}
    return outside | rooms


def test_the_core_brings_in_nothing_else(fresh_python):
    assert strangers(fresh_python, "activebias", SOURCE) == set()


def test_the_test_can_fail(fresh_python, tmp_path):
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
    found = strangers(fresh_python, "corelike", tmp_path)
    assert found >= {"sklearn", "rich", "corelike.lab", "corelike.lab.tables"}
    assert found.isdisjoint({"math", "torch", "numpy", "corelike", "corelike.cli"})


def test_the_rooms_import_along_the_arrows():
    graph = read_graph(SOURCE)
    assert graph.wrong() == []
    assert {graph.room(module) for module in graph.lines} == set(ARROWS)


def test_the_arrows_lead_one_way():
    """Rooms can be put in an order in which each imports from rooms before it only."""
    waiting = dict(ARROWS)
    while waiting:
        ready = [room for room, imported in waiting.items() if not set(imported) & set(waiting)]
        assert ready, f"a cycle among {sorted(waiting)}"
        for room in ready:
            del waiting[room]


def test_the_test_of_arrows_can_fail(tmp_path):
    package = tmp_path / "houselike"
    for file, text in {
        "__init__.py": "from houselike.own import tables\nfrom houselike.report import page",
        "history.py": "from houselike import own",
        "internal.py": "from houselike.history import Visits",
        "own/__init__.py": "",
        "own/train.py": "def train():\n    from houselike.lab.trials import run\n    from . import tables",
        "own/tables.py": "from houselike.internal import Visits\nfrom houselike.history import Visits",
        "lab/__init__.py": "",
        "lab/trials.py": "from houselike.lab.side_by_side import run\nfrom .side_by_side.schedule import run",
        "lab/side_by_side/__init__.py": "",
        "lab/side_by_side/schedule.py": "if TYPE_CHECKING:\n    from .. import trials",
        "report/__init__.py": "",
        "report/page.py": "",
        "cellar/__init__.py": "",
        "cellar/wine.py": "import houselike.own.tables",
        "cli.py": "import houselike.own, houselike.lab.trials",
    }.items():
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(text + "\n")
    found = {sentence.partition(":")[0] for sentence in read_graph(tmp_path, "houselike").wrong()}
    assert found == {
        "houselike imports houselike.report.page",
        "houselike.history imports houselike.own",
        "houselike.own.train imports houselike.lab.trials",
        "houselike.own.tables imports houselike.history",
        "houselike.lab.trials imports houselike.lab.side_by_side.schedule",
        "houselike.lab.side_by_side.schedule imports houselike.lab.trials",
        "houselike.cellar.wine imports houselike.own.tables",
    }


# Imports a room and all its modules in a process of its own, and prints the rooms that came with it.
ROOM_SCRIPT = """
import importlib, pkgutil, sys
room = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    if not module.name.endswith("_kernels"):
        importlib.import_module(module.name)
print(*{name.split(".")[1] for name in sys.modules if name.startswith("activebias.")})
"""


@pytest.mark.parametrize(
    ("room", "others"),
    [
        ("training", {"runs", "own", "lab", "report", "commands"}),
        ("runs", {"training", "own", "lab", "report", "commands"}),
        ("own", {"lab", "report", "commands"}),
        ("report", {"training", "own", "lab", "commands"}),
        ("lab", {"own", "report", "commands"}),
    ],
)
def test_a_room_brings_in_no_room_that_it_must_not(room, others, fresh_python):
    code, printed, complaint = fresh_python(ROOM_SCRIPT, f"activebias.{room}", path=[SOURCE])
    assert code == 0, complaint
    brought = set(printed.split())
    assert room in brought
    assert brought.isdisjoint(others)


@pytest.mark.parametrize("room", ["", ".lab", ".own", ".runs", ".report"])
def test_the_names_at_the_top_of_a_room_are_there(room):
    package = importlib.import_module(f"activebias{room}")
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match=f"module 'activebias{room}' has no attribute 'nothing'"):
        _ = package.nothing
