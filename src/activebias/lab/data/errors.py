"""The one error of this package."""


class DataError(ValueError):
    """A data file is missing, damaged or not what it should be; the message is one sentence with the fix.

    >>> raise DataError("train.bin has 3 bytes")
    Traceback (most recent call last):
    activebias.lab.data.errors.DataError: train.bin has 3 bytes
    """
