"""The report: one HTML page about one or more run folders."""

from typing import TYPE_CHECKING

from activebias._lazy import lazy_names

if TYPE_CHECKING:
    from activebias.report.page import write_report as write_report

_MODULES = {
    "write_report": "page",
}

__all__ = [*_MODULES]

__getattr__ = lazy_names(__name__, _MODULES)
