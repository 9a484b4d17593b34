"""Cells of CSV files that a person may open in a spreadsheet."""

from typing import Any

# A spreadsheet takes a cell that begins with one of these for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_cell(value: Any) -> Any:
    """Return a text so that no spreadsheet runs it: with an apostrophe before what looks like a formula.

    Numbers stay as they are, also those that come as text.

    >>> [safe_cell(value) for value in ("=1+1", "-dash", "-1", -0.5, "plain")]
    ["'=1+1", "'-dash", '-1', -0.5, 'plain']
    """
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value if value[0] in "+-" else "'" + value
