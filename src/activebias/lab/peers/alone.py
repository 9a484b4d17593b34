"""A peer for one model: the form that `training/loop.py` trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from activebias.internal import epoch_generator
from activebias.lab.peers.peer import Batch, Epoch, Peer
from activebias.training.randomness import derived_seed


@final
class Alone:
    """The peer of one model, with its memory of the instances and its average of the weights.

    It is an `Objective` of `training/loop.py`.
    """

    def __init__(
        self,
        peer: Peer,
        value: float,
        *,
        num_instances: int,
        num_classes: int,
        batch_size: int,
        epochs: int,
        seed: int,
        device: torch.device,
    ) -> None:
        """Begin at epoch 0; `seed` is the trial's."""
        self.peer, self.value = peer, torch.tensor(value, device=device)
        self.epochs, self.batch_size = epochs, batch_size
        self.count = num_instances // batch_size * batch_size
        self.seed = derived_seed(seed, "peer")
        self.rows: Tensor | None = None
        if peer.first_row is not None:
            self.rows = peer.first_row(num_classes).to(device).repeat(num_instances, 1)
        self.average: dict[str, Tensor] = {}
        self._epoch = torch.zeros((), device=device)
        self._chance = torch.zeros(0, device=device)
        self._weights: Tensor | None = None

    @property
    def has_order(self) -> bool:
        """Whether the peer says which instances an epoch trains on."""
        return self.peer.plan is not None

    def begin_epoch(self, epoch: int) -> list[Tensor]:
        """Prepare an epoch; return its batches of instances, or no batches if the peer has no order."""
        self._epoch.fill_(epoch)
        generator = epoch_generator(self.seed, epoch)
        if self.peer.plan is not None and self.rows is not None:
            plan = self.peer.plan(self.rows, self.value, Epoch(epoch, self.epochs, self.count), generator)
            self._weights = plan.weights
            return list(torch.split(plan.order, self.batch_size))
        if self.peer.weights is not None:
            self._chance = torch.rand(self.count, generator=generator).to(self._epoch.device)
        return []

    def losses(self, losses: Tensor, logits: Tensor, instances: Tensor) -> Tensor:
        """Return the peer's loss of every instance with its weight in the batch, from the cross-entropy."""
        peer = self.peer
        chance, self._chance = self._chance[: losses.shape[0]], self._chance[losses.shape[0] :]
        batch = Batch(losses, logits.log_softmax(-1), self._epoch, self.epochs, chance=chance)
        if peer.remember is not None and self.rows is not None:
            rows = peer.remember(batch._replace(rows=self.rows[instances]), self.value)
            self.rows[instances] = rows
            batch = batch._replace(rows=rows)
        if peer.loss is not None:
            losses = peer.loss(batch, self.value)
        if peer.weights is not None:
            losses = losses * peer.weights(batch, self.value)
        return losses if self._weights is None else losses * self._weights[instances]

    @torch.no_grad()
    def begin(self, model: nn.Module) -> None:
        """Begin the average at the model's weights."""
        if self.peer.averages:
            self.average = {
                name: value.clone() for name, value in model.state_dict().items() if value.is_floating_point()
            }

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        """Update the average of the weights."""
        if self.average:
            state = model.state_dict()
            for name, average in self.average.items():
                average.lerp_(state[name], 1 - self.value)

    @contextmanager
    def evaluating(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights for the time of an evaluation."""
        if not self.average:
            yield
            return
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict({**own, **self.average})
        try:
            yield
        finally:
            model.load_state_dict(own)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the memory and of the average."""
        return {
            "rows": None if self.rows is None else self.rows.clone(),
            "average": {name: value.clone() for name, value in self.average.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict`."""
        if self.rows is not None:
            self.rows.copy_(state["rows"])
        for name, value in self.average.items():
            value.copy_(state["average"][name])
