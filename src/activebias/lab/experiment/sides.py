"""A side of a comparison: a method, with a peer, the value of the peer's parameter and a learning rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from activebias import METHODS, Method, get_method
from activebias.internal import ALL_METHODS, did_you_mean
from activebias.lab.experiment.rules import RunKey, rule_of
from activebias.lab.peers import PEERS, Peer


@final
@dataclass(frozen=True)
class Setting:
    """How a model is trained beside its method: a peer, its parameter, and a factor of the learning rate.

    >>> Setting(PEERS["gce"]).rule
    'q 0.7'
    >>> Setting(PEERS["gce"], 0.5, rate=3).rule, Setting().rule
    ('q 0.5, learning rate × 3', '')
    """

    peer: Peer | None = None
    value: float = 0.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        """Take the peer's default value if none is given; raise if the factor is impossible."""
        if self.peer is not None and not self.value:
            object.__setattr__(self, "value", self.peer.default)
        if not self.rate > 0:
            raise ValueError(f"Expected `rate` to be above 0, but got {self.rate}.")

    @property
    def rule(self) -> str:
        """The settings in words, for the key of a result; empty for plain training."""
        parts = [] if self.peer is None else [f"{self.peer.parameter} {self.value:g}"]
        parts += [] if self.rate == 1 else [f"learning rate × {self.rate:.3g}"]
        return ", ".join(parts)

    def shown(self, learning_rate: float | None) -> str:
        """Return the setting for a table, with the learning rate as a number if the given rate is known.

        >>> Setting(PEERS["elr"], rate=3).shown(0.1), Setting().shown(None)
        ('λ 3, rate 0.3', 'rate × 1')
        """
        parts = [] if self.peer is None else [f"{self.peer.parameter} {self.value:g}"]
        parts.append(
            f"rate × {self.rate:.3g}" if learning_rate is None else f"rate {learning_rate * self.rate:.3g}"
        )
        return ", ".join(parts)

    @property
    def rank(self) -> tuple[str, float, float]:
        """A key to sort by, which brings the settings of a peer together."""
        return ("" if self.peer is None else self.peer.name, self.value, self.rate)


PLAIN = Setting()


class Side(NamedTuple):
    """A method and a setting: one line of a comparison."""

    method: Method
    setting: Setting = PLAIN

    @property
    def name(self) -> str:
        """The name in results: "wtc", "gce" for a peer with plain training, or "wtc+gce".

        >>> [find_side(name).name for name in ("SGD-WTC", "gce", "scan+gce", "wtc+gce")]
        ['wtc', 'gce', 'gce', 'wtc+gce']
        """
        peer = self.setting.peer
        if peer is None:
            return self.method.name
        return peer.name if self.method == METHODS["scan"] else f"{self.method.name}+{peer.name}"

    @property
    def rule(self) -> str | None:
        """The identity of the side in results beside its name; None for the paper's methods as they are."""
        parts = [part for part in (rule_of(self.method), self.setting.rule) if part]
        return "; ".join(parts) or None

    def key(self, seed: int) -> RunKey:
        """Return the key of a trial's result."""
        return self.name, seed, self.rule


Missing = Mapping[int, Sequence[Side]]
"""Sides to train, by seed."""


def find_side(side: "str | Method | Side") -> Side:
    """Return the side of that name (a method, a peer, or method+peer), or `side` itself if it is one."""
    if isinstance(side, Side):
        return _checked(side)
    if isinstance(side, Method):
        return Side(get_method(side))
    first, plus, second = side.partition("+")
    if not plus and first not in PEERS:
        try:
            return Side(get_method(first))
        except ValueError:
            known = (*ALL_METHODS, *PEERS)
            raise ValueError(
                f"Expected `methods` to be among {', '.join(ALL_METHODS)}, the peers {', '.join(PEERS)}, or "
                f"a pair such as wtc+sce, but got {side!r}.{did_you_mean(first.lower(), known)}"
            ) from None
    method, peer = (first, second) if plus else ("scan", first)
    if peer not in PEERS:
        raise ValueError(
            f"Expected {side!r} to end with one of the peers {', '.join(PEERS)}.{did_you_mean(peer, PEERS)}"
        )
    return _checked(Side(get_method(method), Setting(PEERS[peer])))


def _checked(side: Side) -> Side:
    """Return the side; raise if its method and its peer both choose the instances."""
    peer = side.setting.peer
    if peer is not None and peer.plan is not None and side.method != METHODS["scan"]:
        raise ValueError(
            f"Expected {peer.name!r} alone, because it chooses the instances itself, but got {side.name!r}: "
            "remove the method."
        )
    return side
