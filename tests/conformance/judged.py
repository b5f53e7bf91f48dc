"""Hand-made histories by rule: at least one that its judge holds for and one that it finds violated."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.tape import Tape

Make = Callable[[], Tape]
HOLDS: dict[str, list[Make]] = {}
BREAKS: dict[str, list[tuple[Make, str]]] = {}
OPEN: dict[str, list[Make]] = {}


def holds(*rules: str) -> Callable[[Make], Make]:
    """The judges of these rules say held."""

    def note(make: Make) -> Make:
        for rule in rules:
            HOLDS.setdefault(rule, []).append(make)
        return make

    return note


def breaks(rule: str, says: str = "") -> Callable[[Make], Make]:
    """The judge of this rule says violated, and `says` is in what it tells."""

    def note(make: Make) -> Make:
        BREAKS.setdefault(rule, []).append((make, says))
        return make

    return note


def leaves_open(*rules: str) -> Callable[[Make], Make]:
    """The judges of these rules say inconclusive: something is there, but not what they speak of."""

    def note(make: Make) -> Make:
        for rule in rules:
            OPEN.setdefault(rule, []).append(make)
        return make

    return note
