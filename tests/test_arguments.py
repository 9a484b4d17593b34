"""docs/arguments.md lists the arguments of the calls in a training loop, with their defaults."""

import inspect
import re

import pytest

import activebias as ab
import blocks

CALLS = {
    "ActiveBias": ab.ActiveBias.__init__,
    "bias.loader": ab.ActiveBias.loader,
    "bias.sampler": ab.ActiveBias.sampler,
    "bias.loss": ab.ActiveBias.loss,
    "bias.weigh": ab.ActiveBias.weigh,
}


def documented():
    """Return for every call of the page its arguments and their defaults, as text."""
    page = (blocks.ROOT / "docs" / "arguments.md").read_text()
    calls = {}
    for section in page.split("\n## ")[1:]:
        rows = re.findall(r"^\| (`.*?`) \| (.*?) \|", section, flags=re.MULTILINE)
        calls[section[1:].partition("(")[0]] = {
            name: default.strip("`") for names, default in rows for name in re.findall(r"`(\w+)`", names)
        }
    return calls


@pytest.mark.parametrize("call", CALLS)
def test_arguments_and_defaults_are_those_of_the_code(call):
    _, *parameters = inspect.signature(CALLS[call]).parameters.values()  # the first is the bias
    expected = {each.name: "–" if each.default is each.empty else str(each.default) for each in parameters}
    found = {name: default.strip('"') for name, default in documented()[call].items()}
    assert found == expected
