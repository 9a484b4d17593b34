"""An adapter whose framework is not installed has no doctests to run: importing it is an error."""

from importlib.util import find_spec

FRAMEWORKS = {"lightning": "lightning", "huggingface": "transformers", "sklearn": "skorch"}

collect_ignore_glob = [
    f"activebias/integrations/{adapter}{modules}"
    for adapter, framework in FRAMEWORKS.items()
    if find_spec(framework) is None
    for modules in (".py", "/*.py")
]
