"""The user's data (folders of images, tables, tagged text), and a small model trained on it."""

from typing import TYPE_CHECKING

from activebias._lazy import lazy_names

if TYPE_CHECKING:
    from activebias.own.data import OwnData as OwnData
    from activebias.own.folds import cross_fit as cross_fit
    from activebias.own.images import read_images as read_images
    from activebias.own.models import load_model as load_model
    from activebias.own.tables import read_table as read_table
    from activebias.own.tagged import read_tagged as read_tagged
    from activebias.own.train import train_own as train_own

_MODULES = {
    "OwnData": "data",
    "cross_fit": "folds",
    "load_model": "models",
    "read_images": "images",
    "read_table": "tables",
    "read_tagged": "tagged",
    "train_own": "train",
}

__all__ = [*_MODULES]

__getattr__ = lazy_names(__name__, _MODULES)
