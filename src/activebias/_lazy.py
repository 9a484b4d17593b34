"""Names of a package that are imported when they are first used: `import torch` takes seconds."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str | None]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`; `modules` says where a name is, None for a module of that name.

    >>> lazy_names("activebias", {"METHODS": "methods", "emphasis": None})("emphasis").__name__
    'activebias.emphasis'
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place = modules[name]
        if place is None:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(f"{package}.{place}"), name)

    return get
