"""Dates as people write them in a table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import Series

# Year, month and day, with or without a time: only this order is certain.
ISO = r"\s*\d{4}-\d{1,2}-\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?)?\s*"
# Day and month, or month and day: 03/04/2024.
OTHER = (
    r"\s*(?:\d{1,2}([./-])\d{1,2}\1(?:\d{4}|\d{2})|\d{4}([./])\d{1,2}\2\d{1,2})(?:[T ]\d{1,2}:\d{2}.*)?\s*"
)
# A column with at least this share of dates is a column of dates; the other values are mistakes.
MOSTLY = 0.9


def find_dates(texts: "Series") -> "Series | None":
    """Return the seconds since the earliest date, NaN for other values; None if most values are no dates.

    >>> import pandas as pd
    >>> find_dates(pd.Series(["2024-01-01", "2024-01-02 12:00"])).tolist()
    [0.0, 129600.0]
    """
    import pandas as pd

    if not _mostly(texts, ISO):
        return None
    dates = pd.to_datetime(
        texts.where(texts.str.fullmatch(ISO).eq(True)), errors="coerce", utc=True, format="ISO8601"
    )
    if dates.notna().sum() < MOSTLY * texts.notna().sum():
        return None
    return (dates - dates.min()) / pd.Timedelta(seconds=1)


def unclear_date(texts: "Series") -> str | None:
    """Return a date whose order of day and month is not certain, if most of the texts are such dates.

    >>> import pandas as pd
    >>> unclear_date(pd.Series(["03/04/2024", "05/04/2024"])), unclear_date(pd.Series(["1.5", "2.5"]))
    ('03/04/2024', None)
    """
    return str(texts.dropna().iloc[0]) if _mostly(texts, OTHER) else None


def are_dates(column: "Series") -> bool:
    """Tell whether most values of a column are dates, as dates or as text."""
    import pandas as pd

    kinds = pd.api.types
    if kinds.is_datetime64_any_dtype(column):
        return True
    if kinds.is_numeric_dtype(column) or kinds.is_bool_dtype(column):
        return False
    texts = column.map(str, na_action="ignore")
    return _mostly(texts, ISO) or _mostly(texts, OTHER)


def _mostly(texts: "Series", pattern: str) -> bool:
    present = texts.dropna()
    return len(present) > 0 and bool(present.str.fullmatch(pattern).mean() >= MOSTLY)
