"""What can notice a mutant: a check runs once, in process, and says what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Finding:
    """Something a check noticed: the violated `rule` ("" for a plain test). `crash`: the check itself fell over."""

    rule: str
    text: str
    crash: bool = False


class Check(Protocol):
    """One test or one scenario. `rules` are the rules it judges; `path` is the file that defines it.

    One that has `same`, a text, does what all others with that text do, elsewhere (on another engine, say).
    """

    id: str
    rules: frozenset[str]
    path: str

    def run(self) -> list[Finding]:
        """Run and leave nothing behind but what later checks may share. Empty: nothing was noticed."""
        ...


def one_line(error: BaseException, limit: int = 300) -> str:
    """An exception as one line of text: its type and the first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return said if len(said) <= limit else said[: limit - 3] + "..."
