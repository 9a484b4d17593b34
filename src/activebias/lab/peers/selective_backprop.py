"""Selective Backprop: from half of the training on, a step trains on a share of its batch, by large losses.

An instance is kept with a probability that grows with the percentile of its loss in the batch, to the power
1 / share - 1. As many are kept as the share says. The last tenth of the training is in full.
Sources: Jiang and others: Accelerating Deep Learning by Focusing on the Biggest Losers, arXiv 1910.00762; the
percentile within a batch, start and end are those of MosaicML's Composer. Two things differ. Its extra pass
over the batch runs batch norm in training mode; here the losses come from the pass that is trained on, and
batch norm sees each batch once, and whole. It trains a batch in full now and then (`interrupt`); here each
step of the interval selects.
"""

import torch
from torch import Tensor

from activebias.lab.peers.peer import Batch, Peer, Value

_START, _END = 0.5, 0.9


def weights(batch: Batch, share: Value) -> Tensor:
    """Return B / (kept instances) for the kept instances, and 0 for the others."""
    assert batch.chance is not None
    number = batch.losses.shape[-1]
    progress = batch.epoch / batch.epochs
    selects = (progress >= _START) & (progress < _END)
    kept = torch.where(selects, (share * number).round().clamp(min=1), number)
    percentile = (batch.losses.detach().argsort(-1).argsort(-1) + 0.5) / number
    # The largest of u^(1 / P) are a draw without replacement by P (Efraimidis and Spirakis 2006).
    drawn = batch.chance.clamp(min=1e-30).log() / percentile.pow(1 / share - 1)
    rank = drawn.argsort(-1, descending=True).argsort(-1)
    return (rank < kept) * (number / kept)


SELECTIVE_BACKPROP = Peer(
    name="selective-backprop",
    parameter="share",
    values=(0.3, 0.5, 0.7),
    default=0.5,
    weights=weights,
    passes="1 forward, share of a backward (from 50 to 90 % of the training)",
)
