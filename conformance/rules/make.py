"""Short ways to write a rule down."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.judging import Judge
from harness.rules import Level, Rule


def engine(
    id: str,
    text: str,
    judge: Judge,
    cites: Iterable[str],
    *,
    versions: str = "",
    level: Level = "MUST",
    mend: str = "",
) -> Rule:
    """A rule about the engine; its judge reads calls and canaries."""
    return Rule(
        id=id,
        level=level,
        side="engine",
        text=text,
        versions=versions,
        citations=tuple(cites),
        judge=judge,
        needs=frozenset({"call"}),
        mend=mend,
    )


def refit(
    id: str,
    text: str,
    judge: Judge,
    cites: Iterable[str],
    *,
    versions: str = "",
    level: Level = "MUST",
    needs: Iterable[str] = ("call",),
    black_box: str = "",
    follows: Iterable[str] = (),
    echoes: Iterable[str] = (),
    asks: Iterable[str] = (),
    mend: str = "",
    speaks_of: Iterable[str] = (),
) -> Rule:
    """A rule about the client; its judge reads calls, traffic, canaries and, where `needs` says so, trainer records."""
    return Rule(
        id=id,
        level=level,
        side="refit",
        text=text,
        versions=versions,
        citations=tuple(cites),
        judge=judge,
        needs=frozenset(needs),
        black_box=black_box,
        follows=tuple(follows),
        echoes=tuple(echoes),
        asks=frozenset(asks),
        mend=mend,
        speaks_of=tuple(speaks_of),
    )
