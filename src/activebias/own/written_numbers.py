"""Numbers in formats that no parser reads: 0,3 and 1,234 and 0.35 %.

They are reported, and converted only where the column leaves no doubt: 1,234 is 1234 in London and 1.234 in
Berlin, but 40,50 is a decimal comma everywhere.
"""

import re
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from pandas import Series

# The words of a column are numbers in a format if at least this share of them matches the format.
MOSTLY = 0.9
# The number of words to look at: enough to find the format of a long column.
NUM_LOOKED_AT = 1000


@final
class Writing(NamedTuple):
    """A format of numbers: its name, the fix, and an example from the column."""

    what: str
    fix: str
    example: str


_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?"
_DECIMAL = r"[+-]?(?:\d*|\d{1,3}(?:\.\d{3})+),\d+(?:[eE][+-]?\d+)?"
# The first match wins: with three digits after every comma, a thousands comma is more likely.
_WRITINGS = {
    r"[+-]?[\d.,]*\d\s*%": ("a per cent sign", "write them without it"),
    _THOUSANDS: (
        "a thousands comma",
        "write them without it (with a point if it is a decimal comma)",
    ),
    _DECIMAL: ("a decimal comma", "write them with a point"),
}


def find_writing(words: "Series") -> Writing | None:
    """Return the number format of the words of a column, or None if they are ordinary words.

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


def decimal_commas(texts: "Series") -> "Series | None":
    """Return the numbers of a column with decimal commas; None if a cell or the meaning is not certain.

    It is certain if every cell is such a number or a whole number, and a comma cannot separate thousands.

    >>> import pandas as pd
    >>> decimal_commas(pd.Series(["1,234", "0,5", "1.000,5", "7", None])).tolist()
    [1.234, 0.5, 1000.5, 7.0, nan]
    >>> decimal_commas(pd.Series(["1,234", "2,500"])), decimal_commas(pd.Series(["0,5", "1.5"]))
    (None, None)
    """
    texts = texts.str.strip()
    present = texts.dropna()
    with_comma = present[present.str.contains(",", regex=False)]
    if with_comma.str.fullmatch(_THOUSANDS).all() or not present.str.fullmatch(rf"{_DECIMAL}|[+-]?\d+").all():
        return None
    points = texts.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return points.astype("float64")
