"""The lab: the experiments of the paper as recipes, and the tools to run and compare them."""

from typing import TYPE_CHECKING

from activebias._lazy import lazy_names

if TYPE_CHECKING:
    from activebias.lab.cookbook import RECIPES as RECIPES
    from activebias.lab.cookbook import get_recipe as get_recipe
    from activebias.lab.experiment.place import Listener as Listener
    from activebias.lab.experiment.place import Place as Place
    from activebias.lab.experiment.recipe import Noise as Noise
    from activebias.lab.experiment.recipe import Optimiser as Optimiser
    from activebias.lab.experiment.recipe import Recipe as Recipe
    from activebias.lab.experiment.results import TrialResult as TrialResult
    from activebias.lab.experiment.store import ResultStore as ResultStore
    from activebias.lab.own_model import compare as compare
    from activebias.lab.result_tables import comparison_table as comparison_table
    from activebias.lab.run_folder import train_recipe as train_recipe
    from activebias.lab.split_comparison import SplitComparison as SplitComparison
    from activebias.lab.trials import run_trials as run_trials

_MODULES = {
    "RECIPES": "cookbook",
    "get_recipe": "cookbook",
    "Noise": "experiment.recipe",
    "Optimiser": "experiment.recipe",
    "Recipe": "experiment.recipe",
    "Listener": "experiment.place",
    "Place": "experiment.place",
    "ResultStore": "experiment.store",
    "TrialResult": "experiment.results",
    "comparison_table": "result_tables",
    "SplitComparison": "split_comparison",
    "compare": "own_model",
    "run_trials": "trials",
    "train_recipe": "run_folder",
}

__all__ = [*_MODULES]

__getattr__ = lazy_names(__name__, _MODULES)
