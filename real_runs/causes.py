"""The chain of an error's causes, in words: the last error alone says what happened and not why."""

from __future__ import annotations

from harness.words import quoted, told

MOST = 8


def causes(error: BaseException) -> list[str]:
    """The error and what it was raised from, or while handling, the first cause last; at most MOST of them."""
    out: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(out) < MOST:
        seen.add(id(current))
        out.append(quoted(told(current), 200))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return out


def chained(error: BaseException) -> str:
    """`ValueError: no cluster <- ConnectionError: refused <- OSError: timed out`."""
    return " <- ".join(causes(error))
