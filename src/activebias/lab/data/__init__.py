"""Data for the experiments: readers, label noise, and downloads.

`load` returns a data set by its name, `with_noise` changes its training labels, `status` checks the files and
`fetch` downloads them.
"""

from activebias.lab.data.catalogue import SOURCES, Source
from activebias.lab.data.dataset import Dataset
from activebias.lab.data.download import fetch
from activebias.lab.data.loading import LOADERS, load
from activebias.lab.data.noise import (
    NOISE_KINDS,
    class_dependent,
    flip_matrix,
    uniform,
    uniform_other,
    with_noise,
)
from activebias.lab.data.sources import Status, data_root, status
from activebias.lab.data.tags import bilou_names, to_bilou
from activebias.lab.data.vectors import Vocabulary, read_vectors, reduce_dimensions
from activebias.training.examples import Examples
from activebias.training.reading import DataError

__all__ = [
    "LOADERS",
    "NOISE_KINDS",
    "SOURCES",
    "DataError",
    "Dataset",
    "Examples",
    "Source",
    "Status",
    "Vocabulary",
    "bilou_names",
    "class_dependent",
    "data_root",
    "fetch",
    "flip_matrix",
    "load",
    "read_vectors",
    "reduce_dimensions",
    "status",
    "to_bilou",
    "uniform",
    "uniform_other",
    "with_noise",
]
