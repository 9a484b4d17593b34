"""Sides that a comparison lacks a baseline for, and pairs (we+elr) judged against each half alone."""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from activebias.internal import ALL_METHODS
from activebias.lab.peers import PEERS
from activebias.lab.result_tables import listing
from activebias.lab.significance import (
    BASELINES,
    Comparison,
    baseline_of,
    compared,
    draws,
    our_finding,
)


def without_baseline(methods: Collection[str]) -> str:
    """Return a sentence that names the methods whose baseline is missing, or an empty text.

    >>> without_baseline(["uni", "spv", "wtc", "sce"])
    'wtc and sce have no baseline. Add scan to the methods.'
    >>> without_baseline(["scan", "wtc", "spv"])
    ''
    """
    alone = [name for name in methods if name not in BASELINES and baseline_of(name, methods) is None]
    wanted = list(dict.fromkeys("uni" if draws(name) else "scan" for name in alone))
    verb = "has" if len(alone) == 1 else "have"
    return f"{listing(alone)} {verb} no baseline. Add {listing(wanted)} to the methods." if alone else ""


def halves(name: str) -> tuple[str, ...]:
    """Return the method and the peer of a pair; nothing for another side.

    >>> halves("we+elr"), halves("we"), halves("a+b")
    (('we', 'elr'), (), ())
    """
    method, _, peer = name.partition("+")
    return (method, peer) if method in ALL_METHODS and peer in PEERS else ()


def against_halves(
    values: Mapping[str, Mapping[int, float]], *, overlap: float = 0.0, by_ranks: Collection[str] = ()
) -> list[Comparison]:
    """Compare every pair with each of its halves that was trained, as `compared` does."""
    sides = [(pair, half) for pair in values for half in halves(pair) if half in values]
    return compared(values, sides, overlap=overlap, by_ranks=by_ranks)


def halves_text(items: Sequence[Comparison], against: Sequence[Comparison]) -> str:
    """Return sentences about the pairs, or an empty text.

    Args:
        items: the sides against their baselines.
        against: the pairs against their halves.
    """
    sentences, trained = [], {item.method for item in items}
    tested = [item for item in against if our_finding(item) is not None]
    clauses = [f"{name} {_clause(list(both))}" for name, both in groupby(tested, lambda item: item.method)]
    if clauses:
        sentences.append(f"Pairs against their halves: {'; '.join(clauses)}.")
    for item in items:
        method, peer = halves(item.method) or ("", "")
        if peer and peer not in trained and our_finding(item) == "better":
            sentences.append(
                f"{peer} alone was not trained, so the gain of {item.method} may come from {peer} and not "
                f"from the emphasis by {method}: add {peer} to the methods."
            )
    return " ".join(sentences)


def _clause(both: Sequence[Comparison]) -> str:
    found = [item for item in both if item.significant]
    parts = [f"is {our_finding(item)} than {item.baseline} by {difference_text(item)}" for item in found]
    if same := [str(item.baseline) for item in both if not item.significant]:
        parts.append(f"does not differ from {' or '.join(same)} beyond chance")
    return " and ".join(parts)


def difference_text(item: Comparison, number: str = "") -> str:
    """Return the size of a difference that was found, with its standard error and p-value.

    `number` is the number of trials or splits in words, and stands before the p-value.
    """
    assert item.test is not None
    assert item.test.difference is not None
    assert item.p_holm is not None
    stderr = item.test.stderr
    decimals = 2 if (stderr or 0) < 0.1 else 1
    p_value = f"p = {item.p_holm:.2g}" if item.p_holm >= 0.001 else "p < 0.001"
    error = "" if stderr is None else f" ± {stderr:.{decimals}f}"
    noted = ", ".join(filter(None, (number, p_value)))
    return f"{abs(item.test.difference):.{decimals}f}{error} points ({noted})"
