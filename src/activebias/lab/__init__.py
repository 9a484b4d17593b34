"""The lab: the experiments of the paper as recipes, and the tools to run and compare them."""

from activebias.lab.own import compare as compare
from activebias.lab.recipe import Noise as Noise
from activebias.lab.recipe import Optimiser as Optimiser
from activebias.lab.recipe import Recipe as Recipe
from activebias.lab.recipes import RECIPES as RECIPES
from activebias.lab.recipes import get_recipe as get_recipe
from activebias.lab.store import ResultStore as ResultStore
from activebias.lab.store import TrialResult as TrialResult
from activebias.lab.tables import comparison_table as comparison_table
from activebias.lab.trials import Listener as Listener
from activebias.lab.trials import Place as Place
from activebias.lab.trials import run_trials as run_trials
