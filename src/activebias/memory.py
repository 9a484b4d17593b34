"""Histories and scores of all instances: looked up before a step, brought up to date after it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from activebias import checks, emphasis, statistics
from activebias._arrays import Array, as_tensor, native
from activebias.checks import Batch
from activebias.curve import Curve
from activebias.drawing import BlockSums, draw, draw_directly, padded_length
from activebias.evidence import UNIFORM
from activebias.gpu_steps import GpuSteps
from activebias.history import PredictionHistory, Visits
from activebias.losses import Weights
from activebias.methods import Method
from activebias.places import Place
from activebias.statistics import Estimate

Exchange = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

# A pass over the data set costs about as much as drawing a 64th of it through the tree of sums.
INSTANCES_PER_DRAW = 64


class Scores:
    """s_i of all instances and Σs, kept up to date batch by batch: the data set is never scanned.

    A method without a statistic keeps no scores: all scores count as 0.
    """

    def __init__(
        self,
        method: Method,
        num_instances: int,
        *,
        initial: float,
        max_weight: float | None,
        device: torch.device,
    ) -> None:
        """Begin with every score at `initial`."""
        self.method = method
        self.max_weight = max_weight
        self.uniform = UNIFORM if method.learns else 0.5  # the part of the emphasis that all instances share
        self.num_instances = num_instances
        self.device = device
        # NumPy arrays on a CPU, tensors on a GPU.
        self._total: Array = native(torch.zeros((), dtype=torch.float64, device=device))
        # A running sum keeps a residue; that every score is 0 must be known exactly.
        self._num_positive: Array = native(torch.zeros((), dtype=torch.int64, device=device))
        length = 0 if method.statistic is None else padded_length(num_instances)
        self._values: Array = native(torch.zeros(length, dtype=torch.float32, device=device))
        self._sums = BlockSums(self._values) if method.order == "emphasis" else None
        if method.statistic is not None:
            self.replace(initial)

    @property
    def num_bytes(self) -> int:
        """How many bytes the scores take, with the sums that draws need."""
        return int(self._values.nbytes) + (self._sums.num_bytes if self._sums else 0)

    def values(self, index: torch.Tensor | None = None) -> torch.Tensor:
        """Return a copy of the scores, of all instances or of the given ones."""
        if self.method.statistic is None:
            number = self.num_instances if index is None else index.numel()
            return torch.zeros(number, dtype=torch.float32, device=self.device)
        values = as_tensor(self._values)
        return values[: self.num_instances].clone() if index is None else values[index]

    def mean(self) -> Array:
        """Return ε = mean(s) over the whole data set."""
        total = self._total
        # NumPy takes longer to divide a single number than Python does.
        return (total if isinstance(total, torch.Tensor) else total.item()) / self.num_instances

    def update(self, visits: Visits, scores: Array) -> None:
        """Take over the new scores of a batch; visits to the row that does not count leave no trace."""
        index = visits.index
        xp = torch if isinstance(index, torch.Tensor) else np
        scores = xp.asarray(scores, dtype=xp.float32, device=index.device)
        if xp is torch:
            scores = xp.where(index < self.num_instances, scores, 0)
        if self._sums is not None:
            self._values[index] = scores
            self._total[...] = self._sums.update(index)
            return
        before = self._values[index]
        change = xp.asarray(scores, dtype=xp.float64, device=index.device) - before
        turned = (scores > 0) * 1 - (before > 0) * 1
        if not isinstance(visits.turn, int):  # a repeated instance changes once
            change, turned = (xp.where(visits.turn == 0, each, 0) for each in (change, turned))
        self._values[index] = scores
        self._num_positive += turned.sum()
        self._total[...] = (self._total + change.sum()) * (self._num_positive > 0)

    def replace(self, scores: torch.Tensor | float) -> None:
        """Take over new scores of all instances."""
        values = as_tensor(self._values)[: self.num_instances]
        values[:] = scores
        as_tensor(self._total).copy_(values.sum(dtype=torch.float64))
        as_tensor(self._num_positive).copy_((values > 0).sum())
        if self._sums is not None:
            self._sums.rebuild()

    def weight(self, index: Array) -> Array:
        """Return v of the given instances, float32."""
        xp = torch if isinstance(index, torch.Tensor) else np
        weights = emphasis.weights(self._values[index], self.mean(), self.uniform)
        if self.method.weights == "importance":
            weights = 1 / weights
        if self.max_weight is not None:
            limit, lift = self.bound(self.max_weight)
            weights = xp.minimum(weights, limit) + lift
        return xp.asarray(weights, dtype=xp.float32, device=index.device)

    def bound(self, max_weight: float) -> tuple[Array, Array]:
        """Return how to bound the weights, from a pass over all scores."""
        values, mean = self._values[: self.num_instances], self.mean()
        if not isinstance(values, torch.Tensor):
            least = (max_weight - 1) / (1 - self.uniform)
            values = values[values > least * mean]  # v > max_weight - 1 + u
        weights = emphasis.weights(values, mean, self.uniform)
        return emphasis.bound(weights, self.num_instances, max_weight)

    def draw(self, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        """Draw from P; the random numbers come from the CPU, so that every device draws the same."""
        assert self._sums is not None, "only methods that draw by emphasis ask"
        uniform = torch.rand(num_samples, dtype=torch.float64, generator=generator, device="cpu")
        uniform = native(uniform.to(self.device))
        if num_samples * INSTANCES_PER_DRAW >= self.num_instances:
            values = self._values[: self.num_instances]
            return as_tensor(draw_directly(values, uniform, self.uniform)).cpu()
        return as_tensor(draw(self._sums, self.num_instances, uniform, self.uniform)).cpu()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return a copy of the scores and their sum."""
        return {
            "values": as_tensor(self._values)[: self.num_instances].clone(),
            "total": as_tensor(self._total).clone(),
            "num_positive": as_tensor(self._num_positive).clone(),
        }

    def check_state(self, state: dict[str, torch.Tensor]) -> None:
        """Raise if `state` does not fit."""
        length = 0 if self.method.statistic is None else self.num_instances
        checks.stored("scores", state["values"], (length,), torch.float32)
        checks.stored("total", state["total"], (), torch.float64)
        checks.stored("num_positive", state["num_positive"], (), torch.int64)

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Load a state of `state_dict`."""
        as_tensor(self._values)[: self.num_instances] = state["values"].to(self.device)
        as_tensor(self._total).copy_(state["total"])
        as_tensor(self._num_positive).copy_(state["num_positive"])
        if self._sums is not None:
            self._sums.rebuild()


class InstanceMemory:
    """Histories and the scores that follow from them, for one method.

    The visits of a step wait until the step is complete (gradient accumulation brings them in parts), and are
    taken in together: Algorithm 1 computes the weights of a batch from the histories before it.

    On a CPU input has been checked, and errors were raised. On a GPU looking would wait for the device:
    visits that cannot be used go to the history's last row, which does not count, and are counted as skipped.
    """

    def __init__(
        self,
        method: Method,
        history: PredictionHistory,
        *,
        num_classes: int,
        remove_outliers: bool,
        max_weight: float | None,
    ) -> None:
        """Begin with the same entry in every history."""
        self.method = method
        self.history = history
        self.remove_outliers = remove_outliers
        self._is_own = method.is_own
        self.curve = Curve(history.device, num_classes) if method.learns else None
        self.emphasises = False  # not before the burn-in is over
        self.device = history.device
        self.on_gpu = history.on_gpu
        self.num_instances = history.num_instances
        self.num_skipped = torch.zeros((), dtype=torch.int64, device=self.device)
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        first = native(torch.zeros(1, dtype=torch.int64, device=self.device))
        initial = float(self._score(*history.entries(first))[0])
        self.scores = Scores(
            method, self.num_instances, initial=initial, max_weight=max_weight, device=self.device
        )
        self._gpu = GpuSteps(history, self.num_skipped, weight=self.weight, append=self._append)

    def weight(self, index: Array) -> Array:
        """Return v of the given instances, float32."""
        if self.emphasises and self.method.weights != "equal":
            found = self.scores.weight(index)
        else:
            xp = torch if isinstance(index, torch.Tensor) else np
            found = xp.ones(index.shape, dtype=xp.float32, device=index.device)
        return found * self.curve.factor if self.curve is not None and self.emphasises else found

    def draw(self, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        """Draw instances with replacement as the method asks for, from P as it stands now."""
        if self.emphasises and self.method.order == "emphasis":
            return self.scores.draw(num_samples, generator)
        return torch.randint(self.num_instances, (num_samples,), generator=generator, device="cpu")

    def probabilities(self) -> torch.Tensor | None:
        """Return the sampling probabilities P of all instances, float64; None for methods that scan."""
        if self.method.order == "scan":
            return None
        if self.emphasises and self.method.order == "emphasis":
            return as_tensor(emphasis.probabilities(self.scores.values(), self.scores.uniform))
        return torch.ones(self.num_instances, dtype=torch.float64, device=self.device) / self.num_instances

    def visit(self, batch: Batch, place: Place, exchange: Exchange | None) -> Weights:
        """Look the weights of a batch up; where it completes its step, take the step's visits in.

        `exchange` brings the visits of the other ranks.
        """
        if place.restarts:
            self.drop()
        elif place.leaves_unfinished:
            self.finish(exchange)
        if place.num_real < len(batch.index):
            batch = batch.without_padding(place.num_real)
        at_once = place.completes and exchange is None and not self._waiting
        if at_once and self.on_gpu:
            return self._gpu.step(batch)
        found, rows, kept = self._gpu.look_up(batch) if self.on_gpu else self._look_up(batch)
        if at_once:
            self._append(rows, kept)
            return found
        # The caller, or the next replay of a graph, may use their memory again.
        self._waiting.append((as_tensor(rows).clone(), as_tensor(kept).clone()))
        if place.completes:
            self.finish(exchange)
        return found

    def _look_up(self, batch: Batch) -> tuple[Weights, Array, Array]:
        """Return the weights on a CPU, and the visits that count, flat."""
        index, prob, counts = batch.index, batch.prob, batch.mask
        if counts is None:
            rows, kept, weight = index.reshape(-1), prob.reshape(-1), self.weight(index)
        else:
            rows, kept = index[counts], prob[counts]
            weight = np.where(counts, self.weight(np.where(counts, index, 0)), np.float32(0))
        number = None if counts is None else max(len(rows), 1)
        if not math.isfinite(kept.sum()):
            finite = np.isfinite(kept)
            self.num_skipped += int((~finite).sum())
            rows, kept = rows[finite], kept[finite]
        return Weights(torch.from_numpy(weight), number), rows, kept

    def finish(self, exchange: Exchange | None) -> None:
        """Take the waiting visits in; where a statistic of the user's raises, they are dropped."""
        if not self._waiting:
            return
        index, prob = self._joined()
        self.drop()
        if exchange is not None:
            index, prob = exchange(index, prob)
        if self.on_gpu:
            self._gpu.append(torch.where(index < 0, self.num_instances, index), prob)
            return
        real = index >= 0
        self._append(index[real].numpy(), prob[real].numpy())

    def drop(self) -> None:
        """Forget the waiting visits: their gradients are lost, and their step will come again."""
        self._waiting = []

    def _joined(self) -> tuple[torch.Tensor, torch.Tensor]:
        indices, probs = zip(*self._waiting, strict=True)
        return torch.cat(indices), torch.cat(probs)

    def _append(self, index: Array, prob: Array) -> tuple[torch.Tensor, ...]:
        """Append p_t to the histories, then update s, ε, P and v; a graph gets no tensors back."""
        if len(index) == 0:
            return ()
        before = self.history.rows(index) if self._is_own else None
        visits, entries, count = self.history.take_in(index, prob)
        if self.method.statistic is None:
            return ()
        try:
            scores = self._score(entries, count)
        except Exception:
            if before is not None:
                self.history.put_back(index, before)
            raise
        self.scores.update(visits, scores)
        return ()

    def _score(self, entries: Array, count: Array) -> Array:
        """Apply the method's statistic to histories, as `PredictionHistory.entries` gives them."""
        statistic, name = self.curve or self.method.statistic, self.method.name
        if statistic is None:
            return count * 0
        if not self._is_own:
            return statistics.score(statistic, entries, count, remove_outliers=self.remove_outliers)
        # A user's statistic sees tensors, also where ours see NumPy arrays.
        estimated = statistics.estimate(entries, count, remove_outliers=self.remove_outliers)
        scores = statistic(Estimate(*map(as_tensor, estimated)))
        return native(checks.own_scores(name, scores, as_tensor(count)))

    def prepare_epoch(self, *, emphasises: bool, batch_size: int | None) -> None:
        """Switch the emphasis on after the burn-in. On a GPU, also make room for an epoch's visits and graphs
        for its steps, which waits for the device.
        """
        switched, self.emphasises = emphasises != self.emphasises, emphasises
        if not self.on_gpu:
            return
        self._make_room()
        if switched:
            self._gpu.forget()
        if not self._is_own:  # a graph cannot hold every statistic of a user
            self._gpu.prepare(batch_size)

    def _make_room(self) -> None:
        """Make room for an epoch of visits on a GPU."""
        if self.method.order == "scan":
            self.history.make_room(8)  # once an epoch, and some more without a sampler
            return
        expected = torch.ones(self.num_instances, device=self.device)
        if self.emphasises and self.method.order == "emphasis":
            mean = self.scores.mean()
            expected = emphasis.weights(self.scores.values(), mean, self.scores.uniform).float()
        self.history.make_room_for_draws(expected)

    def state_dict(self, *, waiting: bool) -> dict[str, Any]:
        """Return a copy of everything, with the visits that wait if `waiting`: each rank has its own."""
        state: dict[str, Any] = {
            "history": self.history.state_dict(),
            "scores": self.scores.state_dict(),
            "num_skipped": self.num_skipped.clone(),
            "curve": None if self.curve is None else self.curve.state_dict(),
            "waiting": None,
        }
        if waiting and self._waiting:
            index, prob = self._joined()
            counts = index < self.num_instances  # on a GPU visits that do not count wait too
            state["waiting"] = {"index": index[counts], "prob": prob[counts]}
        return state

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if `state` does not fit."""
        self.history.check_state(state["history"])
        self.scores.check_state(state["scores"])
        if self.curve is not None:
            self.curve.check_state(state["curve"])
        checks.stored("num_skipped", state["num_skipped"], (), torch.int64)
        checks.integer("num_skipped", int(state["num_skipped"]), at_least=0)
        if (waiting := state["waiting"]) is not None:
            index, prob = waiting["index"], waiting["prob"]
            checks.stored("waiting index", index, (len(index),), torch.int64)
            checks.stored("waiting prob", prob, (len(index),), torch.float32)
            checks.index_range(index, self.num_instances)

    def load_state_dict(self, state: dict[str, Any], *, waiting: bool) -> None:
        """Load a state of `state_dict`.

        The waiting visits are those of all ranks: only one rank takes them over (`waiting`), and brings them
        into the exchange. A new iteration of the epoch drops them.
        """
        self.history.load_state_dict(state["history"])
        self.scores.load_state_dict(state["scores"])
        self.num_skipped.copy_(state["num_skipped"])
        if self.curve is not None:
            self.curve.load_state_dict(state["curve"])
        self.drop()
        if (visits := state["waiting"]) is not None:
            number = None if waiting else 0
            index, prob = (visits[name][:number].to(self.device) for name in ("index", "prob"))
            self._waiting.append((index, prob))
