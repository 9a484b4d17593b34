"""Active Bias: train better classifiers by emphasising the instances the model is uncertain about."""

from activebias._version import __version__ as __version__
