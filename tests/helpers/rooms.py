"""The import graph between the rooms of a source tree, from its text: `python tests/helpers/rooms.py src`.

Imports inside functions and for type checkers count too.
"""

import ast
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

# What a room may import from. The core may not import any room.
ARROWS = {
    "core": (),
    "training": ("core",),
    "runs": ("core",),
    "own": ("core", "training", "runs"),
    "lab.data": ("core", "training"),
    "lab.models": ("core", "training"),
    "lab.peers": ("core", "training"),
    "lab.experiment": ("core", "training", "lab.data", "lab.peers"),
    "lab.side_by_side": ("core", "training", "lab.data", "lab.models", "lab.peers", "lab.experiment"),
    "lab": (
        "core",
        "training",
        "runs",
        "lab.data",
        "lab.models",
        "lab.peers",
        "lab.experiment",
        "lab.side_by_side",
    ),
    "report": ("core", "runs"),
    "integrations": ("core",),
    "commands": (
        "core",
        "training",
        "runs",
        "own",
        "lab",
        "lab.data",
        "lab.experiment",
        "report",
    ),
}
# Rooms that are entered through their package only, never through one of its modules.
DOORS = ("lab.side_by_side",)
# The core's modules that a room may import beside the public names of the package.
CORE_DOORS = ("internal", "emphasis", "statistics", "_lazy")
# Adapters stand for a user's code, and reach into the core where a framework needs it.
FREE_OF_CORE_DOORS = ("core", "integrations")
ON_TOP = ("cli", "__main__")
# Rooms whose names the package itself offers. It imports them when they are first used.
OFFERED = ("runs", "own", "lab")


class Import(NamedTuple):
    """One module imports another, both by their dotted names."""

    importer: str
    imported: str


class Graph(NamedTuple):
    """The modules of a package with their number of lines, and who imports whom."""

    package: str
    lines: dict[str, int]
    imports: set[Import]

    def room(self, module):
        """Return the room of a module: the longest known name of a package that it is in."""
        inside = module.split(".")[1:]
        if inside and inside[0] in ON_TOP:
            return "commands"
        for length in (2, 1):
            if (name := ".".join(inside[:length])) in ARROWS and len(inside) >= length:
                return name
        # A package that the table does not know is a room too: nothing may import it, nor it anything.
        is_package = inside and any(other.startswith(f"{self.package}.{inside[0]}.") for other in self.lines)
        return inside[0] if is_package else "core"

    def edges(self):
        """Return how many imports lead from one room to another."""
        pairs = ((self.room(each.importer), self.room(each.imported)) for each in self.imports)
        return Counter(pair for pair in pairs if pair[0] != pair[1])

    def wrong(self):
        """Return the imports that no arrow allows, as sentences."""
        found = []
        for importer, imported in sorted(self.imports):
            here, there = self.room(importer), self.room(imported)
            if here == there:
                continue
            place = imported.removeprefix(self.package).removeprefix(".")
            if importer == self.package and there in OFFERED:
                continue
            if there not in ARROWS.get(here, ()):
                found.append(f"{importer} imports {imported}: no arrow leads from {here} to {there}.")
            elif there in DOORS and place != there:
                found.append(f"{importer} imports {imported}: {there} is entered through its package only.")
            elif there == "core" and here not in FREE_OF_CORE_DOORS and place not in ("", *CORE_DOORS):
                found.append(f"{importer} imports {imported}: rooms use `{self.package}.internal`.")
        return found


def read_graph(source, package="activebias"):
    """Read the import graph of a package under the folder `source`."""
    source = Path(source)
    files = {_name(path, source): path for path in sorted((source / package).rglob("*.py"))}
    lines, imports = {}, set()
    for module, path in files.items():
        text = path.read_text(encoding="utf-8")
        lines[module] = len(text.splitlines())
        parent = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(text)):
            for name in _imported(node, parent, files):
                if name.partition(".")[0] == package and name != module:
                    imports.add(Import(module, name))
    return Graph(package, lines, imports)


def _name(path, source):
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _imported(node, parent, known):
    """Yield the modules that an import statement names; `from a import b` is a.b where that is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            around = parent.split(".")[: len(parent.split(".")) - node.level + 1]
            base = ".".join([*around, *([base] if base else [])])
        for alias in node.names:
            inside = f"{base}.{alias.name}"
            yield inside if inside in known else base


def main():
    graph = read_graph(sys.argv[1] if len(sys.argv) > 1 else "src")
    for (here, there), number in sorted(graph.edges().items()):
        print(f"{here:18} -> {there:18} {number}")
    lines = Counter()
    for module, number in graph.lines.items():
        lines[graph.room(module)] += number
    print(dict(lines))
    print(*graph.wrong(), sep="\n")


if __name__ == "__main__":
    main()
