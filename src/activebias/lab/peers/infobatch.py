"""InfoBatch: instances whose last loss is below the mean are dropped with probability r, or count more.

A kept instance below the mean has the weight 1 / (1 - r), so that the expected gradient does not change. The
start of an epoch decides which losses are below the mean. The last eighth of the epochs is in full.
Here an epoch has as many steps as in plain training: where instances are dropped, another pass with other
drops follows. So the comparison is at equal steps, and saves no time.
Source: Qin and others: InfoBatch: Lossless Training Speed Up by Unbiased Dynamic Data Pruning, ICLR 2024,
equations 3 to 5.
"""

import torch
from torch import Tensor

from activebias.lab.peers.peer import Epoch, Peer, Plan, Value, last_losses

_PRUNED_PART = 7 / 8


def plan(rows: Tensor, dropped: Value, epoch: Epoch, generator: torch.Generator) -> Plan:
    """Return passes over the instances that are not dropped, until the epoch is full."""
    losses = rows[:, 0]
    below = losses < losses.mean()
    if epoch.number >= _PRUNED_PART * epoch.epochs:
        below = torch.zeros_like(below)
    passes: list[Tensor] = []
    while sum(map(len, passes)) < epoch.length:
        order = torch.randperm(len(losses), generator=generator).to(losses.device)
        chance = torch.rand(len(losses), generator=generator).to(losses.device)
        dropped_now = below & (chance < dropped)
        passes.append(order[~dropped_now[order]])
    return Plan(torch.cat(passes)[: epoch.length], torch.where(below, 1 / (1 - dropped), 1.0))


def first_row(num_classes: int) -> Tensor:
    """Return the loss of an instance before its first visit: all are equal, so that none is dropped."""
    return torch.ones(1)


INFOBATCH = Peer(
    name="infobatch",
    parameter="r",
    values=(0.3, 0.5, 0.7),
    default=0.5,
    remember=last_losses,
    first_row=first_row,
    plan=plan,
)
