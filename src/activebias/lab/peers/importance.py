"""Importance sampling by loss: draw instances by their last loss, and undo the bias by the weight 1 / (N P).

P(i) = ½ (1 / N + s_i / Σs) with s = loss^α. The uniform half bounds the weights by 2. The losses are those of
the last visits, so that no extra pass is needed; an epoch is drawn at its start.
Sources: Loshchilov, Hutter: Online Batch Selection for Faster Training of Neural Networks, arXiv 1511.06343;
Katharopoulos, Fleuret: Not All Samples Are Created Equal, ICML 2018, who draw by gradient norm among three
batches that get an extra forward pass; Owen, Zhou: Safe and Effective Importance Sampling, JASA 2000 (the
uniform half).
"""

import math

import torch
from torch import Tensor

from activebias.internal import draw_directly
from activebias.lab.peers.peer import Epoch, Peer, Plan, Value, last_losses

_LEAST = 1e-30


def plan(rows: Tensor, power: Value, epoch: Epoch, generator: torch.Generator) -> Plan:
    """Return draws by P, and the weights 1 / (N P)."""
    # A model that diverged has losses that are no numbers: they are drawn as the others. If all losses are 0,
    # the least score makes all weights 1.
    scores = torch.nan_to_num(rows[:, 0].pow(power), nan=1.0, posinf=1.0).clamp(min=_LEAST)
    uniform = torch.rand(epoch.length, dtype=torch.float64, generator=generator).to(rows.device)
    index = torch.as_tensor(draw_directly(scores[None], uniform[None]))[0]
    return Plan(index, 2 / (1 + scores / scores.mean()))


def first_row(num_classes: int) -> Tensor:
    """Return the loss of an instance before its first visit: that of a uniform prediction."""
    return torch.full((1,), math.log(num_classes))


IMPORTANCE = Peer(
    name="importance",
    parameter="α",
    values=(0.5, 1.0),
    default=1.0,
    remember=last_losses,
    first_row=first_row,
    plan=plan,
)
