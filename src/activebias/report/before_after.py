"""Two runs in one report: their comparison on common validation rows, in place of errors that mislead."""

from typing import Any

from activebias.runs.before_after import BeforeAfter
from activebias.runs.contents import THINGS, Kind


def with_before_after(table: dict[str, Any], found: BeforeAfter | None, kind: Kind) -> dict[str, Any]:
    """Return the table of the comparison with sentences about the common rows.

    If the validation parts of the runs differ, the errors of the whole parts are left out: the last two
    columns of the table, and the chart. Runs that repeat each other with other seeds are left as they are.
    """
    if found is None or table.get("means"):
        return table
    sentences = found.sentences(THINGS[kind])
    if found.is_same_part:
        return table | {"sentences": sentences}
    rows = [[*row[:-2], "not comparable", "not comparable"] for row in table["rows"]]
    return table | {"rows": rows, "sentences": sentences, "hides_errors": True}
