"""An adapter whose framework is not installed has no doctests to run: importing it is an error."""

from importlib.util import find_spec

FRAMEWORKS = {"lightning": "lightning", "huggingface": "transformers", "sklearn": "skorch"}

collect_ignore = [
    f"activebias/integrations/{adapter}.py"
    for adapter, framework in FRAMEWORKS.items()
    if find_spec(framework) is None
]
