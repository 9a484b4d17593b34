"""Cells of CSV files that are safe to open in a spreadsheet."""

from typing import Any

# A spreadsheet reads a cell that begins with one of these characters as a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_cell(value: Any) -> Any:
    """Return a text that no spreadsheet runs: a text that looks like a formula gets an apostrophe in front.

    Numbers do not change, not even numbers in a text.

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
