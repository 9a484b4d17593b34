"""Data for the experiments: readers, label noise, and where the files come from.

`load` gives a data set by its name, `with_noise` changes its training labels, `status` and `fetch` see to
the files.
"""

from .catalogue import SOURCES, Source
from .container import IGNORE, Dataset, Examples
from .download import fetch
from .errors import DataError
from .loading import LOADERS, load
from .noise import NOISE_KINDS, class_dependent, flip_matrix, uniform, uniform_other, with_noise
from .shapes import SHAPE_NAMES, word_shape
from .sources import Status, data_root, status
from .tags import bilou_names, from_bilou, to_bilou
from .vectors import Vocabulary, read_vectors, reduce_dimensions

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
