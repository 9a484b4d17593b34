"""The peers of K models: their losses, memories, orders and averages, one segment of lanes per peer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, final

import torch
from torch import Tensor

from activebias.lab.experiment.sides import Setting
from activebias.lab.peers import Batch, Epoch, Peer
from activebias.lab.side_by_side.batches import TrialData
from activebias.lab.side_by_side.lanes import Lane
from activebias.lab.side_by_side.stacking import Stack


@final
class _Segment:
    """Consecutive lanes with the same peer; the parameter's `values` are (k, 1), its `rows` (k, N, R)."""

    def __init__(self, peer: Peer, lanes: slice, settings: Sequence[Setting], trials: TrialData) -> None:
        """Begin with the memory of instances that were never trained on."""
        self.peer, self.lanes = peer, lanes
        device, size = trials.device, len(settings)
        number, count = trials.num_instances, trials.num_iterations * trials.recipe.batch_size
        self.values = torch.tensor([[setting.value] for setting in settings], device=device)
        self.rows: Tensor | None = None
        if peer.first_row is not None:
            row = peer.first_row(trials.dataset.num_classes).to(device)
            self.rows = row.expand(size, number, -1).clone()
        # A CUDA graph reads order and weights at fixed addresses.
        self.order: Tensor | None = None
        self.weights: Tensor | None = None
        if peer.plan is not None:
            self.order = torch.zeros(size, count, dtype=torch.int64, device=device)
            self.weights = torch.ones(size, number, device=device)
        self.averages: dict[str, Tensor] = {}

    def view(self, value: Tensor) -> Tensor:
        """Return this segment's part of a tensor (K, …) of all lanes."""
        return value[self.lanes]

    def losses(self, batch: Batch, index: Tensor) -> Tensor:
        """Return the peer's losses with their weights in the batch, (k, …); see `lab.peers.Alone.losses`."""
        peer, lane = self.peer, torch.arange(len(index), device=index.device)[:, None]
        if peer.remember is not None and self.rows is not None:
            rows = peer.remember(batch._replace(rows=self.rows[lane, index]), self.values)
            self.rows[lane, index] = rows
            batch = batch._replace(rows=rows)
        values = self.values if batch.losses.dim() == 2 else self.values[..., None]  # words: (k, B, L)
        losses = batch.losses if peer.loss is None else peer.loss(batch, values)
        if peer.weights is not None:
            losses = losses * peer.weights(batch, values)
        return losses if self.weights is None else losses * self.weights.gather(1, index)


@final
class StackedPeers:
    """The peers of a run's lanes, equal to `lab.peers.Alone` for each lane."""

    def __init__(self, lanes: Sequence[Lane], trials: TrialData, stack: Stack) -> None:
        """Begin at epoch 0 for the given lanes; lanes with the same peer should be consecutive."""
        self._lanes, self._trials, self._stack = tuple(lanes), trials, stack
        self._segments: list[_Segment] = []
        start = 0
        for peer, group in groupby((lane.setting for lane in lanes), key=lambda setting: setting.peer):
            settings = list(group)
            place = slice(start, start + len(settings))
            start = place.stop
            if peer is not None:
                self._segments.append(_Segment(peer, place, settings, trials))
        self._epoch = torch.zeros((), device=trials.device)
        self.need_chance = any(segment.peer.weights is not None for segment in self._segments)
        # Lanes (K, 1) whose peer chooses the instances: their histories are not recorded.
        self.unrecorded: Tensor | None = None
        ordered = [lane.setting.peer is not None and lane.setting.peer.plan is not None for lane in lanes]
        if any(ordered):
            self.unrecorded = torch.tensor(ordered, device=trials.device)[:, None]
        for segment in self._averaging():
            segment.averages = {name: segment.view(value).clone() for name, value in self._averaged()}

    @staticmethod
    def of(lanes: Sequence[Lane], trials: TrialData, stack: Stack) -> "StackedPeers | None":
        """Return the peers of the lanes, or None if no lane has a peer."""
        if all(lane.setting.peer is None for lane in lanes):
            return None
        return StackedPeers(lanes, trials, stack)

    def begin_epoch(self, epoch: int) -> None:
        """Plan the epoch of the peers that choose the instances."""
        self._epoch.fill_(epoch)
        for segment in self._segments:
            if segment.peer.plan is None or segment.rows is None:
                continue
            assert segment.order is not None
            assert segment.weights is not None
            now = Epoch(epoch, self._trials.recipe.epochs, segment.order.shape[1])
            for number, lane in enumerate(self._lanes[segment.lanes]):
                generator = self._trials.peer_generator(lane.seed, epoch)
                plan = segment.peer.plan(segment.rows[number], segment.values[number, 0], now, generator)
                segment.order[number], segment.weights[number] = plan.order, plan.weights

    def ordered(self, order: Tensor, iteration: Tensor) -> Tensor:
        """Return the examples (K, B) of an iteration: by `order`, or as a lane's peer chooses them."""
        if self.unrecorded is None:
            return order
        order = order.clone()
        for segment in self._segments:
            if segment.order is not None:
                batches = segment.order.view(len(segment.order), -1, order.shape[1])
                order[segment.lanes] = batches.index_select(1, iteration).squeeze(1)
        return order

    def losses(self, losses: Tensor, logits: Tensor, index: Tensor, chance: Tensor | None) -> Tensor:
        """Return the losses (K, …) of all lanes, from the cross-entropy."""
        parts, done = [], 0
        for segment in self._segments:
            view = segment.view
            batch = Batch(
                view(losses),
                view(logits).log_softmax(-1),
                self._epoch,
                self._trials.recipe.epochs,
                chance=None if chance is None else view(chance),
            )
            parts += [losses[done : segment.lanes.start], segment.losses(batch, view(index))]
            done = segment.lanes.stop
        return torch.cat([*parts, losses[done:]])

    def _averaging(self) -> list[_Segment]:
        return [segment for segment in self._segments if segment.peer.averages]

    def _averaged(self) -> list[tuple[str, Tensor]]:
        state = {**self._stack.parameters, **self._stack.buffers}
        return [(name, value.detach()) for name, value in state.items() if value.is_floating_point()]

    @torch.no_grad()
    def after_step(self) -> None:
        """Update the averages of the weights."""
        for segment in self._averaging():
            for name, value in self._averaged():
                share = (1 - segment.values).view(-1, *(1 for _ in value.shape[1:]))
                average = segment.averages[name]
                average += share * (segment.view(value) - average)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Exchange weights and averages for the time of an evaluation."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for segment in self._averaging():
            for name, value in self._averaged():
                here, average = segment.view(value), segment.averages[name]
                kept = here.clone()
                here.copy_(average)
                average.copy_(kept)
        if self._averaging():
            self._stack.refresh_copies()

    def state_dict(self) -> list[dict[str, Any]]:
        """Return a copy of every lane's memory and average."""
        states: list[dict[str, Any]] = [{} for _ in self._lanes]
        for segment in self._segments:
            for number, lane in enumerate(range(segment.lanes.start, segment.lanes.stop)):
                if segment.rows is not None:
                    states[lane]["rows"] = segment.rows[number].clone()
                states[lane]["average"] = {
                    name: value[number].clone() for name, value in segment.averages.items()
                }
        return states

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        """Load a `state_dict`, one state per lane."""
        for segment in self._segments:
            for number, state in enumerate(states[segment.lanes]):
                if segment.rows is not None:
                    segment.rows[number] = state["rows"].to(self._trials.device)
                for name, value in segment.averages.items():
                    value[number] = state["average"][name].to(self._trials.device)
