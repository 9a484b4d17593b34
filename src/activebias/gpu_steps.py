"""The bookkeeping of a step on a GPU, where reading a value would wait: one CUDA graph a step."""

from collections.abc import Callable

import torch

from activebias import checks
from activebias.checks import IGNORED, Batch
from activebias.graphs import Graphed, Shape, Tensors
from activebias.history import PredictionHistory
from activebias.losses import Weights


class GpuSteps:
    """Weights and visits of a batch, without waiting for the device.

    Visits that cannot be used go to the history's last row, which does not count, and are counted as skipped.
    """

    def __init__(
        self,
        history: PredictionHistory,
        num_skipped: torch.Tensor,
        *,
        weight: Callable[[torch.Tensor], torch.Tensor],
        append: Callable[[torch.Tensor, torch.Tensor], Tensors],
    ) -> None:
        """Begin without graphs; `weight` and `append` are the memory's."""
        self._history = history
        self._layout = history.layout
        self._num_skipped = num_skipped
        self._weight = weight
        self._append = append
        self._graphed_loss_step = Graphed(self._loss_step, self._idle_losses)
        self._graphed_step = Graphed(self._step, self._idle_batch)
        self._graphed_look_up = Graphed(self._look_up, self._idle_batch)
        self._graphed_append = Graphed(append, self._idle_visits)

    def step(self, batch: Batch) -> Weights:
        """Return the weights of a batch, and append its visits."""
        self._forget_if_moved()
        if batch.has_losses and batch.mask is not None:
            # The host bounds a small model's step: exp(-loss) and the mask are cheaper inside of the graph.
            value, number, mean = self._graphed_loss_step(batch.index, batch.prob, batch.mask)
        else:
            value, number, mean = self._graphed_step(*self._inputs(batch))
        return Weights(value, number, mean)

    def look_up(self, batch: Batch) -> tuple[Weights, torch.Tensor, torch.Tensor]:
        """Return the weights of a batch, and its visits, flat."""
        self._forget_if_moved()
        rows, kept, value, number, mean = self._graphed_look_up(*self._inputs(batch))
        return Weights(value, number, mean), rows, kept

    def append(self, index: torch.Tensor, prob: torch.Tensor) -> None:
        """Append the visits of a step that came in parts."""
        self._forget_if_moved()
        self._graphed_append(index, prob)

    def prepare(self, batch_size: int | None) -> None:
        """Record graphs for steps of this size, and for shapes that came often; waits for the device."""
        self._forget_if_moved()
        with self._history.own_capture(), torch.cuda.device(self._history.device):
            self._graphed_loss_step.prepare(*([] if batch_size is None else [(batch_size,)]))
            for graphed in (self._graphed_step, self._graphed_look_up, self._graphed_append):
                graphed.prepare()

    def forget(self) -> None:
        """Drop all graphs, because the history's storage has moved or the emphasis has begun."""
        self._layout = self._history.layout
        for graphed in vars(self).values():
            if isinstance(graphed, Graphed):
                graphed.forget()

    def _forget_if_moved(self) -> None:
        """Drop all graphs if the history has moved: between epochs, by a state, by the user."""
        if self._history.layout != self._layout:
            self.forget()

    @staticmethod
    def _inputs(batch: Batch) -> Tensors:
        batch = batch.with_probabilities()
        counts = torch.ones_like(batch.index, dtype=torch.bool) if batch.mask is None else batch.mask
        return batch.index, batch.prob, counts

    def _look_up(self, index: torch.Tensor, prob: torch.Tensor, counts: torch.Tensor) -> Tensors:
        """Return the visits, flat, and the first fields of `Weights`."""
        num_instances = self._history.num_instances
        exists = (index >= 0) & (index < num_instances)
        usable = counts & exists & checks.is_probability(prob)
        self._num_skipped += (counts ^ usable).sum()
        rows = torch.where(usable, index, num_instances)
        kept = torch.where(usable, prob.clamp(0, 1), 0)
        weight = torch.where(counts, self._weight(torch.where(exists, index, 0)), 0)
        number = counts.sum().clamp(min=1)
        return rows.view(-1), kept.view(-1), weight, number, weight / number

    def _step(self, index: torch.Tensor, prob: torch.Tensor, counts: torch.Tensor) -> Tensors:
        """Look up and append a whole step: one graph instead of two."""
        rows, kept, *found = self._look_up(index, prob, counts)
        self._append(rows, kept)
        return tuple(found)

    def _loss_step(self, index: torch.Tensor, losses: torch.Tensor, targets: torch.Tensor) -> Tensors:
        """Look up and append a step of cross-entropy losses, -log p(y|x), and their targets."""
        return self._step(index, torch.exp(-losses), targets != IGNORED)

    def _idle_visits(self, shape: Shape) -> Tensors:
        """Return visits that leave no trace: all of them to the history's last row."""
        device = self._history.device
        index = torch.full(shape, self._history.num_instances, dtype=torch.int64, device=device)
        return index, torch.zeros(shape, dtype=torch.float32, device=device)

    def _idle_batch(self, shape: Shape) -> Tensors:
        """Return a batch in which nothing counts."""
        return (*self._idle_visits(shape), torch.zeros(shape, dtype=torch.bool, device=self._history.device))

    def _idle_losses(self, shape: Shape) -> Tensors:
        """Return a batch whose targets are all ignored."""
        targets = torch.full(shape, IGNORED, dtype=torch.int64, device=self._history.device)
        return (*self._idle_visits(shape), targets)
