"""What is known about the instances: their histories and scores, looked up before a step, grown after it."""

from typing import Any

import numpy as np
import torch

from activebias import checks
from activebias._arrays import Array, as_tensor, native
from activebias.graphs import Graphed, Shape
from activebias.history import PredictionHistory, sort_visits
from activebias.losses import IGNORED
from activebias.methods import METHODS, Method
from activebias.scores import Scores
from activebias.statistics import Estimate, estimate

Visited = tuple[Array, Array]


def _counts(index: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return torch.ones_like(index, dtype=torch.bool) if mask is None else mask


class InstanceMemory:
    """Histories and the scores that follow from them, for one method.

    On a CPU input is checked and errors are raised. On a GPU looking would wait for the device: visits that
    cannot be used go to the history's last row, which does not count, and are counted as skipped.
    """

    def __init__(self, method: Method, history: PredictionHistory, *, remove_outliers: bool) -> None:
        """Begin with what `history` holds for every instance alike."""
        self.method = method
        self.history = history
        self.remove_outliers = remove_outliers
        self.emphasises = False  # not before the burn-in is over
        self._own_statistic = METHODS.get(method.name) is not method
        self.device = history.device
        self.num_instances = history.num_instances
        self.num_skipped = torch.zeros((), dtype=torch.int64, device=self.device)
        first = native(torch.zeros(1, dtype=torch.int64, device=self.device))
        initial = float(self._score(*history.entries(first))[0])
        self.scores = Scores(method, self.num_instances, initial=initial, device=self.device)
        self._graphed_append = Graphed(self._append, self._idle_visits)
        self._graphed_look_up = Graphed(self._look_up_without_waiting, self._idle_batch)
        self._graphed_step = Graphed(self._step_without_waiting, self._idle_batch)
        self._graphed_mean = Graphed(self._mean_without_waiting, self._idle_losses)

    def weight(self, index: Array) -> torch.Tensor:
        """Return v of the given instances."""
        if not self.emphasises:
            return torch.ones(index.shape, dtype=torch.float32, device=self.device)
        return self.scores.weight(index)

    def step(
        self, index: torch.Tensor, prob: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Look up, then append: a whole step at once. Returns the weights as `look_up` does.

        On a GPU the next step may overwrite them.
        """
        if self.device.type != "cpu":
            weight, mean_weight = self._graphed_step(index, prob, _counts(index, mask))
            return weight, mean_weight
        visits, weight = self._look_up_checked(index, prob, mask)
        self.append(visits)
        return weight, None

    def weighted_mean(
        self, index: torch.Tensor, surprisal: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean of v · (-log p) over a whole step on a GPU, and take p in.

        What `step` and a weighted mean do, with the fewest launches: they bound a small model's step.
        """
        (mean_weight,) = self._graphed_mean(index, surprisal.detach(), targets)
        return torch.dot(mean_weight.clone(), surprisal)  # the next step may overwrite the graph's own

    def _mean_without_waiting(
        self, index: torch.Tensor, surprisal: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return self._step_without_waiting(index, torch.exp(-surprisal), targets != IGNORED)[1:]

    def look_up(
        self, index: torch.Tensor, prob: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[Visited, torch.Tensor, torch.Tensor | None]:
        """Return the visits that count, flat; the weights, 0 for what does not count; and on a GPU the
        weights divided by the number that counts. Nothing changes before the checks.
        """
        if self.device.type != "cpu":
            rows, kept, weight, mean_weight = self._graphed_look_up(index, prob, _counts(index, mask))
            return (rows.clone(), kept.clone()), weight, mean_weight
        (rows, kept), weight = self._look_up_checked(index, prob, mask)
        # They wait for the rest of their step, and whoever gave them may use their memory again.
        return (as_tensor(rows.copy()), as_tensor(kept.copy())), weight, None

    def _look_up_checked(
        self, index: torch.Tensor, prob: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[Visited, torch.Tensor]:
        """Do what `look_up` does on a CPU, in NumPy: many small calls, each cheaper than torch's."""
        rows, kept = native(index), native(prob)
        if mask is None:
            weighed, rows, kept = rows, rows.reshape(-1), kept.reshape(-1)
        else:
            counts = native(mask)
            weighed = np.where(counts, rows, 0)  # padding may carry any index
            rows, kept = rows[counts], kept[counts]
        checks.index_range(rows, self.num_instances)
        if not checks.all_probabilities(kept):
            finite = np.isfinite(kept)
            self.num_skipped += int((~finite).sum())
            rows, kept = rows[finite], kept[finite].clip(0, 1)
        weight = self.weight(weighed)
        return (rows, kept), weight if mask is None else torch.where(mask, weight, 0)

    def _look_up_without_waiting(
        self, index: torch.Tensor, prob: torch.Tensor, counts: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        exists = (index >= 0) & (index < self.num_instances)
        usable = counts & exists & checks.is_probability(prob)
        self.num_skipped += (counts ^ usable).sum()
        rows = torch.where(usable, index, self.num_instances)
        kept = torch.where(usable, prob.clamp(0, 1), 0)
        weight = torch.where(counts, self.weight(torch.where(exists, index, 0)), 0)
        return rows.view(-1), kept.view(-1), weight, weight / counts.sum().clamp(min=1)

    def _step_without_waiting(
        self, index: torch.Tensor, prob: torch.Tensor, counts: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        rows, kept, weight, mean_weight = self._look_up_without_waiting(index, prob, counts)
        self._append(rows, kept)
        return weight, mean_weight

    def append(self, visits: Visited) -> None:
        """Append p_t to the histories, then let s, ε, P and v follow."""
        if len(visits[0]) == 0:
            return
        if self.device.type == "cpu":
            self._append(*visits)
        else:
            self._graphed_append(*visits)

    def _append(self, index: Array, prob: Array) -> tuple[torch.Tensor, ...]:
        visits = sort_visits(native(index), native(prob))
        before = self.history.rows(visits.index) if self._own_statistic else None
        self.history.append(visits)
        if self.method.statistic is None:
            return ()
        try:
            scores = self._score(*self.history.entries(visits.index))
        except Exception:
            if before is not None:
                self.history.put_back(visits.index, before)
            raise
        self.scores.update(visits, scores)
        return ()

    def _score(self, entries: Array, count: Array) -> Array:
        """Apply the method's statistic to histories, as `PredictionHistory.entries` gives them."""
        if self.method.statistic is None:
            return count * 0
        estimated = estimate(entries, count, remove_outliers=self.remove_outliers)
        if not self._own_statistic:
            return self.method.statistic(estimated)
        # A user's statistic sees tensors, also where ours see NumPy arrays.
        scores = self.method.statistic(Estimate(*map(as_tensor, estimated)))
        return native(checks.own_scores(self.method.name, scores, as_tensor(count)))

    def prepare_epoch(self, *, emphasises: bool, batch_size: int | None) -> None:
        """Switch the emphasis on after the burn-in. On a GPU, also make room for an epoch's visits and graphs
        for its steps, which waits for the device.
        """
        switched, self.emphasises = emphasises != self.emphasises, emphasises
        if self.device.type == "cpu":
            return
        if self.history.make_room(self._most_visits()) or switched:
            self._forget_graphs()
        if self._own_statistic:
            return  # a statistic of the user's may do what no graph can hold
        with self.history.own_capture(), torch.cuda.device(self.device):
            expected = [] if batch_size is None else [(batch_size,)]
            self._graphed_mean.prepare(*expected)
            self._graphed_step.prepare(*expected)
            self._graphed_look_up.prepare()
            self._graphed_append.prepare()

    def _forget_graphs(self) -> None:
        for graphed in (
            self._graphed_mean,
            self._graphed_step,
            self._graphed_look_up,
            self._graphed_append,
        ):
            graphed.forget()

    def _most_visits(self) -> int:
        """Return how often an instance may come in an epoch; generously: room is cheap, an entry is not."""
        if self.method.order == "scan":
            return 2
        return 32 + 4 * round(self.scores.largest_emphasis() if self.emphasises else 1.0)

    def _idle_visits(self, shape: Shape) -> tuple[torch.Tensor, ...]:
        """Return visits that leave no trace: all of them to the history's last row."""
        index = torch.full(shape, self.num_instances, dtype=torch.int64, device=self.device)
        return index, torch.zeros(shape, dtype=torch.float32, device=self.device)

    def _idle_batch(self, shape: Shape) -> tuple[torch.Tensor, ...]:
        """Return a batch in which nothing counts."""
        return (*self._idle_visits(shape), torch.zeros(shape, dtype=torch.bool, device=self.device))

    def _idle_losses(self, shape: Shape) -> tuple[torch.Tensor, ...]:
        """Return a batch whose targets are all ignored."""
        return (*self._idle_visits(shape), torch.full(shape, IGNORED, dtype=torch.int64, device=self.device))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything."""
        return {
            "history": self.history.state_dict(),
            "scores": self.scores.state_dict(),
            "num_skipped": self.num_skipped.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        if self.history.load_state_dict(state["history"]):
            self._forget_graphs()
        self.scores.load_state_dict(state["scores"])
        self.num_skipped.copy_(state["num_skipped"])
