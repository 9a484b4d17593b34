"""The nearest of some names, for errors."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest name, with a blank before it; "" where none is near.

    >>> did_you_mean("wvp", ["scan", "wpv"]), did_you_mean("foo", ["scan", "wpv"])
    (" Did you mean 'wpv'?", '')
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
