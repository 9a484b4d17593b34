"""Peers: losses and samplers that people use instead of the paper's methods, one file each.

`training/loop.py` trains a peer through `Alone`, the side-by-side engine through its own `StackedPeers`.
"""

from typing import Final

from activebias.lab.peers.alone import Alone as Alone
from activebias.lab.peers.elr import ELR
from activebias.lab.peers.ema import EMA
from activebias.lab.peers.focal import FOCAL
from activebias.lab.peers.gce import GCE
from activebias.lab.peers.importance import IMPORTANCE
from activebias.lab.peers.infobatch import INFOBATCH
from activebias.lab.peers.label_smoothing import LABEL_SMOOTHING
from activebias.lab.peers.peer import Batch as Batch
from activebias.lab.peers.peer import Epoch as Epoch
from activebias.lab.peers.peer import Peer as Peer
from activebias.lab.peers.sce import SCE
from activebias.lab.peers.selective_backprop import SELECTIVE_BACKPROP
from activebias.lab.peers.small_loss import SMALL_LOSS

PEERS: Final[dict[str, Peer]] = {
    peer.name: peer
    for peer in (
        FOCAL,
        LABEL_SMOOTHING,
        GCE,
        SCE,
        ELR,
        SMALL_LOSS,
        SELECTIVE_BACKPROP,
        INFOBATCH,
        IMPORTANCE,
        EMA,
    )
}
