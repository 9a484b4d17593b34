"""Label smoothing: (1 - ε) · CE + ε · the mean of -log p over all classes.

Source: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture, CVPR 2016, section 7.
"""

from torch import Tensor

from activebias.lab.peers.peer import Batch, Peer, Value


def loss(batch: Batch, epsilon: Value) -> Tensor:
    """Return the cross-entropy with a target of 1 - ε on the label and ε spread over all classes."""
    return (1 - epsilon) * batch.losses - epsilon * batch.log_prob.mean(-1)


LABEL_SMOOTHING = Peer(name="label-smoothing", parameter="ε", values=(0.05, 0.1, 0.2), default=0.1, loss=loss)
