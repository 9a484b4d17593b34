"""Data for the experiments: readers, label noise, and where the files come from.

`load` gives a data set by its name, `with_noise` changes its training labels, `status` and `fetch` see to
the files.
"""

from activebias.lab.data.catalogue import SOURCES, Source
from activebias.lab.data.container import IGNORE, Dataset, Examples
from activebias.lab.data.download import fetch
from activebias.lab.data.errors import DataError
from activebias.lab.data.loading import LOADERS, load
from activebias.lab.data.noise import (
    NOISE_KINDS,
    class_dependent,
    flip_matrix,
    uniform,
    uniform_other,
    with_noise,
)
from activebias.lab.data.shapes import SHAPE_NAMES, word_shape
from activebias.lab.data.sources import Status, data_root, status
from activebias.lab.data.tags import bilou_names, from_bilou, to_bilou
from activebias.lab.data.vectors import Vocabulary, read_vectors, reduce_dimensions

__all__ = [
    "IGNORE",
    "LOADERS",
    "NOISE_KINDS",
    "SHAPE_NAMES",
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
    "from_bilou",
    "load",
    "read_vectors",
    "reduce_dimensions",
    "status",
    "to_bilou",
    "uniform",
    "uniform_other",
    "with_noise",
    "word_shape",
]
