"""Without an extra its adapter says what to install, and the core needs none of them."""

import subprocess
import sys

import pytest


def run_without(modules: str, statement: str) -> subprocess.CompletedProcess:
    hide = f"import sys; sys.modules.update(dict.fromkeys({modules.split()!r})); "
    return subprocess.run(
        [sys.executable, "-c", hide + statement], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("adapter", "modules"),
    [("lightning", "lightning"), ("huggingface", "transformers"), ("sklearn", "skorch")],
)
def test_the_error_names_the_install_command(adapter, modules):
    finished = run_without(modules, f"import activebias.integrations.{adapter}")
    assert finished.returncode == 1
    assert f"pip install 'activebias[{adapter}]'" in finished.stderr


def test_importing_the_package_of_adapters_imports_no_framework():
    statement = (
        "import sys, activebias, activebias.integrations; "
        "print([name for name in ('lightning', 'transformers', 'skorch', 'ray', 'torchdata') "
        "if sys.modules.get(name)])"
    )
    assert run_without("", statement).stdout.strip() == "[]"
