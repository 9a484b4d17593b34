"""Small loss (self-paced): each step trains on the share of its batch with the smallest losses.

The dropped share grows from 0 to τ over the first 10 epochs, in a short search too. It is the rule of
co-teaching with one model.
Sources: Kumar, Packer, Koller: Self-Paced Learning, NIPS 2010; Han and others: Co-teaching, NeurIPS 2018,
algorithm 1. Co-teaching gets the true share of wrong labels as τ; here a search has to find τ.
"""

from torch import Tensor

from activebias.lab.peers.peer import Batch, Peer, Value

_RAMP = 10


def weights(batch: Batch, dropped: Value) -> Tensor:
    """Return B / (kept instances) for the instances with the smallest losses, and 0 for the others."""
    number = batch.losses.shape[-1]
    share = 1 - dropped * (batch.epoch / _RAMP).clamp(max=1)
    kept = (share * number).round().clamp(min=1)
    rank = batch.losses.detach().argsort(-1).argsort(-1)
    return (rank < kept) * (number / kept)


SMALL_LOSS = Peer(
    name="small-loss",
    parameter="τ",
    values=(0.1, 0.2, 0.4),
    default=0.2,
    weights=weights,
    passes="1 forward, 1 - τ of a backward (after 10 epochs)",
)
