"""The run folder, and its readers: suspected labels and exports of the history."""

from typing import TYPE_CHECKING

from activebias._lazy import lazy_names

if TYPE_CHECKING:
    from activebias.runs.contents import Inputs as Inputs
    from activebias.runs.contents import Instances as Instances
    from activebias.runs.contents import Predictions as Predictions
    from activebias.runs.contents import RunInfo as RunInfo
    from activebias.runs.exports import export_history as export_history
    from activebias.runs.folder import RunFolder as RunFolder
    from activebias.runs.folder import read_run as read_run
    from activebias.runs.folder import write_run as write_run
    from activebias.runs.suspects import audit_run as audit_run

_MODULES = {
    "RunFolder": "folder",
    "RunInfo": "contents",
    "Instances": "contents",
    "Inputs": "contents",
    "Predictions": "contents",
    "read_run": "folder",
    "write_run": "folder",
    "audit_run": "suspects",
    "export_history": "exports",
}

__all__ = [*_MODULES]

__getattr__ = lazy_names(__name__, _MODULES)
