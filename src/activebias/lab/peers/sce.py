"""Symmetric cross-entropy: α · CE + β · RCE, with β = 1 and RCE = -A · (1 - p).

RCE is the cross-entropy with label and prediction exchanged. A stands for log 0, and is log 1e-4 = -9.2, the
clip in public code; a larger A, such as -4, is the same loss with a smaller β.
Source: Wang, Ma, Chen, Luo, Yi, Bailey: Symmetric Cross Entropy for Robust Learning with Noisy Labels, ICCV
2019, equations 5 to 7; α 0.1 and β 1 are theirs for CIFAR-10.
"""

import math

import torch
from torch import Tensor

from activebias.lab.peers.peer import Batch, Peer, Value

_A = math.log(1e-4)


def loss(batch: Batch, alpha: Value) -> Tensor:
    """Return α · CE - A · (1 - p)."""
    return alpha * batch.losses + _A * torch.expm1(-batch.losses)


SCE = Peer(name="sce", parameter="α", values=(0.01, 0.1, 1.0), default=0.1, loss=loss)
