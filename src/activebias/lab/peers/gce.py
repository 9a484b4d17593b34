"""Generalised cross-entropy: (1 - p^q) / q, between cross-entropy (q → 0) and the absolute error (q = 1).

Source: Zhang, Sabuncu: Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels,
NeurIPS 2018, equation 6. Without the truncated form, whose public code prunes at the best test epoch.
"""

import torch
from torch import Tensor

from activebias.lab.peers.peer import Batch, Peer, Value


def loss(batch: Batch, q: Value) -> Tensor:
    """Return (1 - p^q) / q, with p^q = exp(-q · CE)."""
    return -torch.expm1(-q * batch.losses) / q


GCE = Peer(name="gce", parameter="q", values=(0.3, 0.5, 0.7), default=0.7, loss=loss)
