"""Focal loss: (1 - p)^γ · CE, which takes weight from instances that are predicted well.

Source: Lin, Goyal, Girshick, He, Dollár: Focal Loss for Dense Object Detection, ICCV 2017, equation 4.
"""

import torch
from torch import Tensor

from activebias.lab.peers.peer import Batch, Peer, Value


def loss(batch: Batch, gamma: Value) -> Tensor:
    """Return (1 - p)^γ · CE; γ is at least 1, because below it the slope at p = 1 has no limit."""
    wrong = -torch.expm1(-batch.losses)
    return wrong.pow(gamma) * batch.losses


FOCAL = Peer(name="focal", parameter="γ", values=(1.0, 2.0, 5.0), default=2.0, loss=loss)
