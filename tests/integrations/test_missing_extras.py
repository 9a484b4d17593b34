"""Without an extra its adapter says what to install, and the core needs none of them."""

HIDDEN = ("lightning", "transformers", "skorch", "ray", "torchdata")
ADAPTERS = ("lightning", "huggingface", "sklearn")

# In a process of its own, where nothing has imported the frameworks yet.
PROGRAM = f"""
import importlib, sys
import activebias, activebias.integrations
print("imported:", [name for name in {HIDDEN} if name in sys.modules])
sys.modules.update(dict.fromkeys({HIDDEN}))  # as if they were not installed
for adapter in {ADAPTERS}:
    try:
        importlib.import_module("activebias.integrations." + adapter)
    except ImportError as error:
        print(error)
"""


def test_the_errors_name_the_install_commands(fresh_python):
    code, printed, complaint = fresh_python(PROGRAM)
    assert code == 0, complaint
    first, *messages = printed.splitlines()
    assert first == "imported: []"
    assert len(messages) == len(ADAPTERS)
    for adapter, message in zip(ADAPTERS, messages, strict=True):
        assert f"pip install 'activebias[{adapter}]'" in message
