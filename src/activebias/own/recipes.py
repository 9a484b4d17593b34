"""A recipe of the lab, trained into a run folder like data of one's own."""

from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from activebias import Method
from activebias.lab.data import IGNORE, Dataset
from activebias.lab.prepared import Prepared, load_data, prepare
from activebias.lab.recipe import Recipe, is_tagging
from activebias.lab.trainer import Run
from activebias.lab.trials import Listener, Place, teacher_probabilities
from activebias.own.training import Beliefs, report_error
from activebias.report.folder import Inputs, Kind, require_pandas


@final
class RecipeLearner:
    """One method of a recipe in training; the numbers are those of `activebias compare`.

    The recipe's test part is what a run folder calls its validation part. The burn-in is the recipe's.
    """

    def __init__(self, recipe: Recipe, data: Prepared, method: Method, *, seed: int) -> None:
        """Build the run as the lab does."""
        self.run, self.data = Run(recipe, data, [method], seed=seed), data
        self.model = self.run.model
        (self.bias,) = self.run.biases.values()
        self.beliefs = Beliefs(data.num_instances, data.dataset.num_classes, data.device)
        self.curves: dict[str, list[float]] = {"train_error": [], "validation_error": []}
        self.warnings: list[str] = []

    def train_epoch(self) -> None:
        """Train an epoch as the lab does, and look at the training set once more."""
        self.run.train_epoch()
        self.beliefs.add(self.model, self.data.train, self.data.instances)
        self.curves = {
            "train_error": list(self.run.train_error),
            "validation_error": list(self.run.test_error),
        }
        self.warnings += report_error(self.bias, self.run.test_error[-1] / 100)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the following epochs depend on."""
        return {"run": self.run.state_dict(), "beliefs": self.beliefs.sum, "warnings": self.warnings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` stood."""
        self.run.load_state_dict(state["run"])
        self.beliefs.sum.copy_(state["beliefs"])
        self.beliefs.num_epochs = self.run.epoch
        self.warnings = list(state["warnings"])
        self.curves = {
            "train_error": list(self.run.train_error),
            "validation_error": list(self.run.test_error),
        }


def prepare_recipe(recipe: Recipe, *, seed: int, place: Place) -> Prepared:
    """Load a recipe's data, draw its noise, and train its teacher where it has one."""
    dataset = load_data(recipe, place.data)
    teacher = None
    if recipe.teacher is not None:
        teacher = teacher_probabilities(recipe.teacher, dataset, place, Listener())
    device = torch.device(place.device)
    return prepare(recipe, dataset, seed=seed, device=device, root=place.data, teacher=teacher)


def kind_of(dataset: Dataset) -> Kind:
    """Return what a recipe's data is: tagged text, images or text."""
    if is_tagging(dataset):
        return "tagging"
    return "images" if dataset.train.inputs[0].dim() == 4 else "text"


def inputs_of(dataset: Dataset) -> Inputs:
    """Return what shows the training instances of a recipe to a person."""
    kind = kind_of(dataset)
    first = dataset.train.inputs[0]
    if kind == "images":
        return Inputs(images=_pixels(first.numpy()))
    pd = require_pandas("A run folder of text")
    vocabulary = np.array(dataset.vocabulary or (), dtype=object)
    if kind == "tagging":
        words = first[dataset.train.targets != IGNORE].numpy()
        return Inputs(rows=pd.DataFrame({"word": vocabulary[words]}))
    texts = [" ".join(vocabulary[row[row != 0]]) for row in first.numpy()]
    return Inputs(rows=pd.DataFrame({"text": texts}))


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images (N, C, H, W) as (N, H, W) or (N, H, W, 3), stretched where they hold 0 to 16 (digits)."""
    if images.max(initial=0) <= 16:
        images = (images.astype(np.uint16) * 255 // 16).astype(np.uint8)
    return images[:, 0] if images.shape[1] == 1 else np.ascontiguousarray(images.transpose(0, 2, 3, 1))
