"""Colours, dashes and markers of the sides in figures: every side has its own, the same in all figures."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from activebias.lab.significance import draws


class Style(NamedTuple):
    """The colour of a side, the dashes of its curve, and its marker."""

    colour: str
    dashes: object
    marker: str


_SOLID: Final = "solid"
# By Okabe and Ito; colour-blind readers can distinguish them. A statistic has one colour and the same dashes,
# sampled (marker: a square) or weighted (a circle). Dashes distinguish statistics in black and white too.
_METHODS: Final[Mapping[str, tuple[str, object]]] = {
    "uni": ("#4d4d4d", (0, (1.2, 1.4))),
    "scan": ("#4d4d4d", (0, (1.2, 1.4))),
    "sd": ("#d55e00", (0, (5, 1.6))),
    "wd": ("#d55e00", (0, (5, 1.6))),
    "isd": ("#b8860b", (0, (5, 1.4, 1.2, 1.4, 1.2, 1.4))),
    "se": ("#56b4e9", (0, (5, 1.4, 1.2, 1.4))),
    "we": ("#56b4e9", (0, (5, 1.4, 1.2, 1.4))),
    "spv": ("#009e73", _SOLID),
    "wpv": ("#009e73", _SOLID),
    "stc": ("#8a4fbf", (0, (7, 2.2))),
    "wtc": ("#8a4fbf", (0, (7, 2.2))),
    "sauto": ("#0072b2", _SOLID),
    "auto": ("#0072b2", _SOLID),
}
# Two by Okabe and Ito, the others by Paul Tol. A pair has its peer's colour and its method's dashes.
_PEERS: Final = {
    "focal": "#cc79a7",
    "label-smoothing": "#e69f00",
    "gce": "#332288",
    "sce": "#882255",
    "elr": "#117733",
    "small-loss": "#999933",
    "selective-backprop": "#661100",
    "infobatch": "#44aa99",
    "importance": "#aa4499",
    "ema": "#000000",
}
_PEER_MARKER: Final = "^"
# No pair has scan: scan+elr is elr alone.
_PAIR_MARKERS: Final = dict(zip((name for name in _METHODS if name != "scan"), "H<>dphvDXP8*", strict=True))
# Colours of no method and no peer.
_OWN: Final = ("#6699cc", "#bb5566", "#ddaa33", "#004488", "#bbbbbb")
_OWN_MARKERS: Final = "o^sDvPXd"


def styles_of(names: Iterable[str]) -> dict[str, Style]:
    """Return the style of every side; no two share colour and marker.

    A method of the user's own has a colour by its place among such methods.

    >>> styles = styles_of(["scan", "elr", "we+elr", "mine"])
    >>> styles["we+elr"].colour == styles["elr"].colour, styles["we+elr"].marker, styles["elr"].marker
    (True, 'h', '^')
    """
    styles: dict[str, Style] = {}
    number = 0
    for name in names:
        method, _, peer = name.partition("+")
        if name in _METHODS:
            styles[name] = Style(*_METHODS[name], "s" if draws(name) else "o")
        elif name in _PEERS:
            styles[name] = Style(_PEERS[name], _SOLID, _PEER_MARKER)
        elif method in _METHODS and peer in _PEERS:
            styles[name] = Style(_PEERS[peer], _METHODS[method][1], _PAIR_MARKERS[method])
        else:
            marker = _OWN_MARKERS[number // len(_OWN) % len(_OWN_MARKERS)]
            styles[name] = Style(_OWN[number % len(_OWN)], _SOLID, marker)
            number += 1
    return styles
