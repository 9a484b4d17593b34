"""The beliefs of a model about examples, observed after every epoch of its training."""

from typing import Any, final

import torch
from torch import Tensor

from activebias import PredictionHistory, TokenIndex
from activebias.internal import IGNORED, sort_visits
from activebias.training.evaluation import Outputs
from activebias.training.examples import Examples


@final
class Observer:
    """Sums the class probabilities of every instance over the epochs (`beliefs`, (N, C)).

    For examples that are not trained on, `keep_history` also keeps p(y|x) after every epoch, in the form of
    the history of training. `keep_epochs` keeps the class probabilities of every epoch one by one (`epochs`,
    half precision, in RAM).
    """

    def __init__(self, examples: Examples, num_classes: int) -> None:
        """Observe examples; in tagging every word is an instance."""
        self._tokens = None
        if examples.is_tagging and examples.lengths is not None:
            self._tokens = TokenIndex(examples.lengths.tolist())
        number = len(examples) if self._tokens is None else self._tokens.num_instances
        self.beliefs = torch.zeros(number, num_classes, device=examples.targets.device)
        self.history: PredictionHistory | None = None
        self.epochs: list[Tensor] | None = None
        self._num_seen = 0

    def keep_history(self, window: int | None) -> None:
        """Keep p(y|x) of every epoch, or of the latest epochs only."""
        number, num_classes = self.beliefs.shape
        self.history = PredictionHistory(number, initial=1 / num_classes, window=window)

    def keep_epochs(self) -> None:
        """Keep the class probabilities of every epoch."""
        self.epochs = []

    def see(self, outputs: Outputs) -> None:
        """Take in a batch of outputs; every instance comes once an epoch."""
        counted = outputs.targets != IGNORED
        instances = outputs.positions
        if self._tokens is not None:
            instances = self._tokens(instances, outputs.targets.shape[-1])
        index, prob = instances[counted], outputs.logits.softmax(-1)[counted]
        self.beliefs[index] += prob
        if self.epochs is not None:
            if self._num_seen % len(self.beliefs) == 0:
                self.epochs.append(torch.zeros(self.beliefs.shape, dtype=torch.float16))
            self.epochs[-1][index.cpu()] = prob.cpu().half()
            self._num_seen += len(index)
        if self.history is not None:
            label_prob = prob.gather(1, outputs.targets[counted][:, None]).squeeze(1)
            self.history.append(sort_visits(index.cpu().numpy(), label_prob.cpu().numpy()))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything observed."""
        return {
            "beliefs": self.beliefs.clone(),
            "history": None if self.history is None else self.history.state_dict(),
            "epochs": list(self.epochs or ()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state that `state_dict` returned."""
        self.beliefs.copy_(state["beliefs"])
        if self.history is not None:
            self.history.load_state_dict(state["history"])
        if self.epochs is not None:
            self.epochs = list(state["epochs"])
            self._num_seen = len(self.epochs) * len(self.beliefs)

    def mean_beliefs(self, epochs: int) -> Tensor:
        """Return the class probabilities, averaged over the epochs, (N, C)."""
        return self.beliefs / max(epochs, 1)
