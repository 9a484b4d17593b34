"""Active Bias: train better classifiers by emphasising the instances the model is uncertain about.

The names are imported when they are first used: `import torch` takes seconds, which `activebias --help`
should not.
"""

from typing import TYPE_CHECKING

from activebias._lazy import lazy_names
from activebias._version import __version__ as __version__

if TYPE_CHECKING:
    from activebias import emphasis as emphasis
    from activebias import statistics as statistics
    from activebias.active_bias import ActiveBias as ActiveBias
    from activebias.history import PredictionHistory as PredictionHistory
    from activebias.indexing import TokenIndex as TokenIndex
    from activebias.indexing import collate_with_index as collate_with_index
    from activebias.indexing import with_index as with_index
    from activebias.lab.own_model import compare as compare
    from activebias.methods import METHODS as METHODS
    from activebias.methods import Method as Method
    from activebias.methods import get_method as get_method
    from activebias.own.find import Issues as Issues
    from activebias.own.find import find_issues as find_issues
    from activebias.runs.auditing import Audit as Audit
    from activebias.runs.auditing import audit as audit
    from activebias.statistics import Estimate as Estimate
    from activebias.validation import MemorisationWarning as MemorisationWarning
    from activebias.validation import NothingRightWarning as NothingRightWarning

_MODULES = {
    "emphasis": None,
    "statistics": None,
    "ActiveBias": "active_bias",
    "Audit": "runs.auditing",
    "audit": "runs.auditing",
    "Issues": "own.find",
    "find_issues": "own.find",
    "compare": "lab.own_model",
    "PredictionHistory": "history",
    "TokenIndex": "indexing",
    "collate_with_index": "indexing",
    "with_index": "indexing",
    "METHODS": "methods",
    "Method": "methods",
    "get_method": "methods",
    "Estimate": "statistics",
    "MemorisationWarning": "validation",
    "NothingRightWarning": "validation",
}

__all__ = ["__version__", *_MODULES]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
