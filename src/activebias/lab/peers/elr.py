"""Early-learning regularisation: CE + λ · log(1 - ⟨t, p⟩), with t the moving average of the predictions.

Every visit of an instance first updates its target, t ← β t + (1 - β) p with β = 0.7; t holds N × C numbers.
The gradient goes through p, not through t. The logarithm falls as p agrees with t: it pulls the prediction
towards the earlier predictions, against a wrong label.
Source: Liu, Niles-Weed, Razavian, Fernandez-Granda: Early-Learning Regularization Prevents Memorization of
Noisy Labels, NeurIPS 2020, equations 6 and 9. λ 3 and β 0.7 are theirs for CIFAR-10 (λ 7, β 0.9 for
CIFAR-100). The clamp of p, its division by the sum, and the update before the loss are those of their code.
"""

import torch
from torch import Tensor

from activebias.lab.peers.peer import Batch, Peer, Value

_BETA = 0.7
_LEAST = 1e-4


def _clamped(log_prob: Tensor) -> Tensor:
    return log_prob.exp().clamp(_LEAST, 1 - _LEAST)


def remember(batch: Batch, strength: Value) -> Tensor:
    """Return the new targets of the batch's instances, (…, B, C)."""
    assert batch.rows is not None
    prob = _clamped(batch.log_prob.detach())
    return _BETA * batch.rows + (1 - _BETA) * prob / prob.sum(-1, keepdim=True)


def loss(batch: Batch, strength: Value) -> Tensor:
    """Return CE + λ · log(1 - ⟨t, p⟩)."""
    assert batch.rows is not None
    agreement = (batch.rows * _clamped(batch.log_prob)).sum(-1)
    return batch.losses + strength * torch.log(1 - agreement)


def first_row(num_classes: int) -> Tensor:
    """Return the target of an instance before its first visit: zeros."""
    return torch.zeros(num_classes)


ELR = Peer(
    name="elr",
    parameter="λ",
    values=(1.0, 3.0, 7.0),
    default=3.0,
    loss=loss,
    remember=remember,
    first_row=first_row,
)
