"""The histories and scores of K models trained side by side, computed by the core's functions."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from activebias import Estimate, Method, PredictionHistory, emphasis
from activebias.internal import (
    UNIFORM,
    Visits,
    as_tensor,
    between,
    draw_directly,
    native,
    own_scores,
    rows_of_state,
    rule_scores,
    sort_visits,
    step_factor,
)
from activebias.lab.side_by_side.estimates import estimate_rows

# The number of rows whose scores are computed at once, to limit RAM.
_ROWS = 1 << 18


class _Which(NamedTuple):
    """The mask of the models, (K,), that fulfil a condition, and whether any does."""

    any: bool
    mask: Tensor


@final
class StackedMemory:
    """The memory of `ActiveBias` for K models: model k's instance i is row k · N + i of one history.

    The models of a method are consecutive, and all methods scan or all draw.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        num_instances: int,
        *,
        num_classes: int,
        window: int | None,
        device: torch.device,
    ) -> None:
        """Start with every history at {1 / num_classes}."""
        self.methods = tuple(methods)
        self.num_models, self.num_instances = len(methods), num_instances
        self.num_classes = num_classes
        self.history = PredictionHistory(
            self.num_models * num_instances, initial=1 / num_classes, window=window, device=device
        )
        # One more for the history's last row, which does not count.
        self._scores = torch.zeros(self.num_models * num_instances + 1, device=device)
        self.scores = self._scores[:-1].view(self.num_models, num_instances)
        self.device = self.history.device
        self._first_row = num_instances * torch.arange(self.num_models, device=device)
        self._groups = list(_runs(self.methods))
        self._undo_order = self._which(lambda method: method.weights == "importance")
        self._weigh_equally = self._which(lambda method: method.weights == "equal")
        self._draw_uniformly = self._which(lambda method: method.order == "uniform")
        self._uniform: float | Tensor = 0.5  # the part of the emphasis that all instances of a model share
        self.curves: Tensor | None = None  # of the methods that learn, (K, knots); one row for every model
        self.factors: Tensor | None = None  # of all weights of a model, which limit its steps, (K, 1)
        if any(method.learns for method in self.methods):
            curve = rule_scores().to(device)
            self.curves = curve.repeat(self.num_models, 1)
            self.factors = torch.ones(self.num_models, 1, device=device)
            parts = [[UNIFORM if method.learns else 0.5] for method in self.methods]
            self._uniform = torch.tensor(parts, dtype=torch.float64, device=device)
        self.has_own_statistic = any(each.is_own and each.statistic is not None for each in self.methods)
        self.rescore()

    def _which(self, condition: Callable[[Method], bool]) -> "_Which":
        holds = [condition(method) for method in self.methods]
        return _Which(any(holds), torch.tensor(holds, device=self.device))

    def select(self, positions: Tensor, methods: Sequence[Method]) -> "StackedMemory":
        """Return a new memory with copies of the given models' histories, for other methods."""
        chosen = StackedMemory(
            methods,
            self.num_instances,
            num_classes=self.num_classes,
            window=self.history.window,
            device=self.device,
        )
        rows = positions[:, None] * self.num_instances + torch.arange(self.num_instances, device=self.device)
        chosen.history.load_state_dict(rows_of_state(self.history.state_dict(), rows.flatten()))
        chosen.rescore()
        return chosen

    def _rows(self, index: Tensor) -> Tensor:
        """Return the rows in the history of the models' instances (K, …)."""
        return index + self._first_row.view(-1, *(1 for _ in index.shape[1:]))

    def make_room(self, *, emphasises: bool) -> None:
        """Make room for the visits of an epoch; waits for a GPU."""
        if self.device.type == "cpu":
            return
        if self.methods[0].order == "scan":
            self.history.make_room(2)
            return
        expected = torch.ones_like(self.scores)
        if emphasises:
            drawn = emphasis.weights(self.scores, self.scores.mean(-1, keepdim=True), self._uniform)
            expected = torch.where(self._draw_uniformly.mask.view(-1, 1), expected, drawn)
        self.history.make_room_for_draws(expected.flatten())

    def weights(self, index: Tensor) -> Tensor:
        """Return the current v of the given instances (K, …) of the models."""
        wide = (-1, *(1 for _ in index.shape[1:]))
        mean = self.scores.mean(-1, dtype=torch.float64).view(wide)
        found = self.scores.gather(1, index.flatten(1)).view(index.shape)
        # All models at once, because every call costs a launch. Without a statistic all scores are 0: v is 1.
        uniform = self._uniform.view(wide) if isinstance(self._uniform, Tensor) else self._uniform
        weights: Tensor = emphasis.weights(found, mean, uniform)
        if self._undo_order.any:
            weights = torch.where(self._undo_order.mask.view(wide), 1 / weights, weights)
        if self._weigh_equally.any:
            weights = torch.where(self._weigh_equally.mask.view(wide), 1.0, weights)
        return weights.float() if self.factors is None else weights.float() * self.factors.view(wide)

    def draw(self, uniform: Tensor, anywhere: Tensor) -> Tensor:
        """Return instances (K, B): drawn from P by `uniform` numbers, or `anywhere` for uniform methods."""
        drawn = draw_directly(self.scores, uniform, self._uniform)
        return torch.where(self._draw_uniformly.mask.view(-1, 1), anywhere, drawn)

    def record(self, index: Tensor, prob: Tensor, mask: Tensor | None) -> None:
        """Append p_t of the instances (K, …) of the models, then update the scores.

        The p_t of a model that has broken away is NaN, and counts as 0: a history is finite.
        """
        rows, prob = self._rows(index), prob.nan_to_num(0)
        if mask is not None:
            rows = torch.where(mask, rows, self.history.num_instances)  # the row that does not count
        rows, prob = rows.flatten(), prob.flatten()
        if self.methods[0].order == "scan":
            visits = Visits(native(rows), native(prob), 0, 1)  # a batch of a scan has no duplicates
        else:
            # Sorting keeps the visits of a model together, because its rows follow those of the model before.
            visits = sort_visits(native(rows), native(prob))
        # The storage may grow: the graphs that capture this call are dropped when it moves.
        with self.history.own_capture():
            self.history.append(visits)
        self._score(as_tensor(visits.index).view(self.num_models, -1), range(self.num_models))

    def means(self, models: slice) -> Tensor:
        """Return p̄ of all instances of some models, (k, N)."""
        every = torch.arange(self.num_instances, device=self.device)
        found = []
        for first_row in self._first_row[models]:
            found.append(estimate_rows(self.history, every + first_row).mean)
        return torch.stack(found)

    def follow(self, models: slice, curves: Tensor, means: Tensor) -> None:
        """Score the instances of models by new curves (k, knots), given their p̄."""
        assert self.curves is not None
        self.curves[models] = curves
        self.scores[models] = _on_curves(curves, means).float()

    def limit_steps(self, models: slice, means: Tensor) -> None:
        """Choose the factors of the weights of models for the next epoch, given their p̄ (k, N)."""
        assert self.factors is not None
        assert isinstance(self._uniform, Tensor)
        scores = self.scores[models]
        mean = scores.mean(-1, keepdim=True, dtype=torch.float64)
        weights = emphasis.weights(scores, mean, self._uniform[models]).float().double()
        self.factors[models, 0] = step_factor(weights, means).float()

    def rescore(self) -> None:
        """Compute every score from the histories."""
        size = max(1, _ROWS // self.num_instances)
        for start in range(0, self.num_models, size):
            models = range(start, min(start + size, self.num_models))
            every = torch.arange(self.num_instances, device=self.device)
            rows = every + self._first_row[models.start : models.stop, None]
            self._score(rows, models)

    def _score(self, rows: Tensor, models: range) -> None:
        """Update the scores at `rows`, which has one line per model of `models`."""
        scored = [model for model in models if self.methods[model].statistic is not None]
        if not scored:
            return
        # Skip leading and trailing baselines: their scores stay 0.
        rows = rows[scored[0] - models.start : scored[-1] + 1 - models.start]
        models = range(scored[0], scored[-1] + 1)
        estimated = Estimate(*(each.view(rows.shape) for each in estimate_rows(self.history, rows.flatten())))
        for method, group in self._groups:
            first, last = max(group.start, models.start), min(group.stop, models.stop)
            if method.statistic is not None and first < last:
                lines = slice(first - models.start, last - models.start)
                some = Estimate(*(each[lines] for each in estimated))
                if method.learns:
                    assert self.curves is not None
                    scores = _on_curves(self.curves[first:last], some.mean)
                else:
                    scores = _scores_of(method, some)
                self._scores[rows[lines]] = scores.float()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of histories and scores."""
        state = {"history": self.history.state_dict(), "scores": self.scores.clone()}
        if self.curves is not None:
            state["curves"] = self.curves.clone()
        if self.factors is not None:
            state["factors"] = self.factors.clone()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict`."""
        self.history.load_state_dict(state["history"])
        self.scores.copy_(state["scores"])
        if self.curves is not None:
            self.curves.copy_(state["curves"])
        if self.factors is not None:
            self.factors.copy_(state["factors"])


def _on_curves(curves: Tensor, means: Tensor) -> Tensor:
    """Return the scores of instances (k, …) by p̄, each model's on its own curve."""
    below, part = (each.flatten(1) for each in between(means))
    scores = (1 - part) * curves.gather(1, below) + part * curves.gather(1, below + 1)
    found: Tensor = scores.view(means.shape)
    return found


def _scores_of(method: Method, estimated: Estimate) -> Tensor:
    """Return the scores of a method's models (K, …)."""
    assert method.statistic is not None
    if not method.is_own:
        scores: Tensor = method.statistic(estimated)
        return scores
    # A user's statistic receives the instances of one model, so that trials are independent. Its result is
    # checked, as in a run of one model.
    lines = []
    for number in range(len(estimated.count)):
        line = Estimate(*(each[number].flatten() for each in estimated))
        lines.append(own_scores(method.name, method.statistic(line), line.count))
    return torch.stack(lines).view(estimated.count.shape)


def _runs(methods: Sequence[Method]) -> Iterator[tuple[Method, slice]]:
    """Yield every method with the slice of its models."""
    start = 0
    for _, group in groupby(methods, key=lambda method: method.name):
        members = list(group)
        yield members[0], slice(start, start + len(members))
        start += len(members)
