"""Active Bias: train better classifiers by emphasising the instances the model is uncertain about."""

from activebias._version import __version__ as __version__
from activebias.active_bias import ActiveBias as ActiveBias
from activebias.history import PredictionHistory as PredictionHistory
from activebias.indexing import TokenIndex as TokenIndex
from activebias.indexing import collate_with_index as collate_with_index
from activebias.indexing import with_index as with_index
from activebias.methods import METHODS as METHODS
from activebias.methods import Method as Method
from activebias.statistics import Estimate as Estimate
