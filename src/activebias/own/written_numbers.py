"""Numbers as people write them and no parser reads them: 0,3 and 1,234 and 0.35 %.

They are only named, never converted: 1,234 is one number in London and another one in Berlin.
"""

import re
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from pandas import Series

# From this share on, the words of a column are numbers that are written in one of these ways.
MOSTLY = 0.9
# So many words tell how a column is written, also a long one.
NUM_LOOKED_AT = 1000


@final
class Writing(NamedTuple):
    """A way to write numbers: what it has, how to write them instead, and one of the words."""

    what: str
    fix: str
    example: str


# The first that fits is said: with three digits after every comma it is more likely of thousands.
_WRITINGS = {
    r"[+-]?[\d.,]*\d\s*%": ("a per cent sign", "write them without it"),
    r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?": (
        "a thousands comma",
        "write them without it (with a point, should it be a decimal comma)",
    ),
    r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?": ("a decimal comma", "write them with a point"),
}


def find_writing(words: "Series") -> Writing | None:
    """Return how the words of a column write numbers, or None where they are words.

    >>> import pandas as pd
    >>> [find_writing(pd.Series(words)).what for words in (["0,3", "1,25"], ["1,234", "12,000.5"], ["3.5 %"])]
    ['a decimal comma', 'a thousands comma', 'a per cent sign']
    >>> find_writing(pd.Series(["red", "1,2,3"]))
    """
    looked_at = words.head(NUM_LOOKED_AT).tolist()
    for pattern, (what, fix) in _WRITINGS.items():
        found = [word for word in looked_at if re.fullmatch(pattern, word.strip())]
        if found and len(found) >= MOSTLY * len(looked_at):
            return Writing(what, fix, found[0])
    return None
