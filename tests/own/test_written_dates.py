"""Dates that begin with the day or the month: numbers where exactly one order reads every cell."""

import numpy as np
import pandas as pd
import pytest

from activebias.own.columns import read_column

DAYS = pd.Series(pd.Timestamp("2018-01-01") + pd.to_timedelta(np.arange(120) ** 2 % 997, unit="D"))
SECONDS = (DAYS - DAYS.min()).dt.total_seconds()


@pytest.mark.parametrize(
    ("write", "first"),
    [
        ("%d.%m.%Y", "01.01.2018"),
        ("%m/%d/%Y", "01/01/2018"),
        ("%d-%m-%Y 00:00", "01-01-2018 00:00"),
        ("%Y/%m/%d", "2018/01/01"),
    ],
)
def test_one_order_that_reads_every_cell_is_used(write, first):
    texts = DAYS.dt.strftime(write).rename("since")
    column = read_column(texts)
    assert (column.role, column.values.tolist()) == ("number", SECONDS.tolist())
    iso = "2018-01-01" + " 00:00" * first.endswith("00:00")
    assert column.note == (
        f"Column 'since' holds dates such as '{first}', read as {iso}: it is used as a number, the time "
        "since the earliest."
    )
    texts[5] = None
    found = read_column(texts).values
    assert found.isna().tolist() == [k == 5 for k in range(120)]
    assert found.drop(5).tolist() == SECONDS.drop(5).tolist()


@pytest.mark.parametrize(
    "cell",
    [
        "04.23.2018",  # the other order
        "31.02.2018",  # no day at all
        "23/04/2018",  # another mark: perhaps another order
        "23.04.18",  # perhaps the year comes first
        "soon",
    ],
)
def test_a_cell_in_doubt_leaves_the_dates_as_words(cell):
    texts = DAYS.dt.strftime("%d.%m.%Y").rename("since")
    texts[7] = cell
    column = read_column(texts)
    assert column.role != "number"
    assert "whose order of day and month is not certain" in column.note


def test_both_orders_are_possible():
    column = read_column(pd.Series([f"{k % 12 + 1}.{k % 7 + 1}.2018" for k in range(120)], name="since"))
    assert column.role == "category"
    assert "whose order of day and month is not certain" in column.note
