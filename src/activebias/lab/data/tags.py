"""Entity tags: conversion from the schemes IOB1 and IOB2 (also called BIO) to BILOU.

IOB2: every entity starts with B. IOB1: B only if an entity directly follows an entity of the same type.
BILOU: Begin, Inside and Last of an entity of several words, Unit for one word, O outside.
"""

from collections.abc import Callable, Iterable, Sequence

from activebias.training.reading import DataError

SCHEMES = ("iob1", "iob2", "bio")


def bilou_names(types: Iterable[str]) -> tuple[str, ...]:
    """Return all BILOU tags of the given entity types: O first, then four tags per type.

    >>> bilou_names(["LOC"])
    ('O', 'B-LOC', 'I-LOC', 'L-LOC', 'U-LOC')
    >>> len(bilou_names(["LOC", "MISC", "ORG", "PER"]))
    17
    """
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BILU"))


def to_bilou(
    tags: Sequence[str],
    scheme: str = "bio",
    *,
    types: Iterable[str] | None = None,
    where: Callable[[int], str] | None = None,
) -> list[str]:
    """Convert one sentence's tags to BILOU.

    In IOB2 an I that continues no entity is an error. In IOB1 it starts an entity, as every B does, as in
    conlleval. ``types``: the allowed entity types. ``where(position)`` names a tag's place for the error
    message.

    >>> to_bilou(["B-PER", "I-PER", "O", "B-LOC"])
    ['B-PER', 'L-PER', 'O', 'U-LOC']
    >>> to_bilou(["I-LOC", "I-LOC", "B-LOC", "I-ORG"], "iob1")
    ['B-LOC', 'L-LOC', 'U-LOC', 'U-ORG']
    """
    if scheme not in SCHEMES:
        raise ValueError(f"Expected `scheme` to be one of {', '.join(SCHEMES)}, but got {scheme!r}.")
    place = where or _position
    allowed = None if types is None else frozenset(types)
    kinds: list[str | None] = []
    starts: list[bool] = []
    previous: str | None = None
    for position, tag in enumerate(tags):
        kind = _kind(tag, allowed, place, position)
        if scheme != "iob1" and tag.startswith("I-") and kind != previous:
            raise DataError(
                f"{place(position)}: the tag {tag} continues no entity of its type, which BIO does not "
                "allow: correct the tag, or read the file as IOB1."
            )
        kinds.append(kind)
        starts.append(kind is not None and (tag.startswith("B-") or kind != previous))
        previous = kind
    result = []
    for position, kind in enumerate(kinds):
        if kind is None:
            result.append("O")
            continue
        following = position + 1
        ends = following == len(kinds) or kinds[following] != kind or starts[following]
        prefix = ("U" if ends else "B") if starts[position] else ("L" if ends else "I")
        result.append(f"{prefix}-{kind}")
    return result


def _position(position: int) -> str:
    return f"position {position}"


def _kind(tag: str, allowed: frozenset[str] | None, place: Callable[[int], str], position: int) -> str | None:
    if tag == "O":
        return None
    prefix, separator, kind = tag.partition("-")
    if not separator or not kind or prefix not in ("B", "I"):
        raise DataError(
            f"{place(position)}: {tag!r} is not a tag: it must be O, B-TYPE, I-TYPE; check column and scheme."
        )
    if allowed is not None and kind not in allowed:
        raise DataError(
            f"{place(position)}: the tag {tag!r} has the unknown type {kind!r}: known are "
            f"{', '.join(sorted(allowed))}; correct the file."
        )
    return kind
