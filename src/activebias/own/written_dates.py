"""Dates as people write them in a table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import Series

TIME = r"[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?"
# Year, month and day, with or without a time: only this order is always certain.
ISO = rf"\s*\d{{4}}-\d{{1,2}}-\d{{1,2}}(?:{TIME})?\s*"
# Day and month, or month and day: 03/04/2024.
OTHER = (
    r"\s*(?:\d{1,2}([./-])\d{1,2}\1(?:\d{4}|\d{2})|\d{4}([./])\d{1,2}\2\d{1,2})(?:[T ]\d{1,2}:\d{2}.*)?\s*"
)
# The same with a whole year, so that only day and month can change places.
_PARTS = (
    rf"^\s*(?P<one>\d{{1,2}})(?P<mark>[./-])(?P<two>\d{{1,2}})(?P=mark)(?P<year>\d{{4}})(?P<time>{TIME})?\s*$",
    rf"^\s*(?P<year>\d{{4}})(?P<mark>[./])(?P<one>\d{{1,2}})(?P=mark)(?P<two>\d{{1,2}})(?P<time>{TIME})?\s*$",
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


def as_iso(texts: "Series") -> "Series | None":
    """Return dates with the year first; None unless exactly one order of day and month reads every cell.

    >>> import pandas as pd
    >>> as_iso(pd.Series(["3.4.2018", "23.04.2018 12:00"])).tolist()
    ['2018-04-03', '2018-04-23 12:00']
    >>> as_iso(pd.Series(["03/04/2018", "05/04/2018"])), as_iso(pd.Series(["23.04.2018", "04.23.2018"]))
    (None, None)
    """
    import pandas as pd

    if not _mostly(texts, OTHER):
        return None
    is_present = texts.notna()
    for pattern in _PARTS:
        parts = texts.str.extract(pattern)
        if not parts["year"][is_present].notna().all():
            continue
        one, two = parts["one"].str.zfill(2), parts["two"].str.zfill(2)
        readings = [
            parts["year"] + "-" + month + "-" + day + parts["time"].fillna("")
            for month, day in ((one, two), (two, one))
        ]
        possible = [
            each
            for each in readings
            if pd.to_datetime(each[is_present], errors="coerce", utc=True, format="ISO8601").notna().all()
        ]
        # Two marks, as in 3/4/2018 and 23.04.2018, may stand for two orders.
        return possible[0] if len(possible) == 1 and parts["mark"].nunique() == 1 else None
    return None


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
