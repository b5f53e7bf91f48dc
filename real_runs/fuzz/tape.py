"""What a real server answered, kept as it comes: a run goes on where it stopped, a mended fake needs no server.

One JSON line a sequence. A line that a killed run left half written is dropped.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import msgspec

from real_runs.comparing import Answer, Exchange
from real_runs.fuzz.server_cells import operation
from real_runs.fuzz.sides import FakeSide
from real_runs.sequence import Sequence

TELLING = 12
"""Sequences of a run that are kept as recordings."""


class Taped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence as the real one performed it. `seed` drew it; `fatal` ones are drawn apart. It took
    `seconds`, starts of the server included."""

    seed: int
    sequence: Sequence
    answers: list[Answer]
    died: bool = False
    fatal: bool = False
    seconds: float = 0.0

    @property
    def exchange(self) -> Exchange:
        """As `real_runs.comparing` wants it."""
        return Exchange(msgspec.to_builtins(self.sequence), tuple(self.answers), self.died)


class Tape:
    """The sequences of one run; with a path they are read from it, and added to it at once."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries: list[Taped] = read(path) if path is not None and path.exists() else []
        if path is not None and self.entries:
            path.write_bytes(_lines(self.entries))  # without what a killed run left half written

    def add(self, entry: Taped) -> None:
        """Keep it."""
        self.entries.append(entry)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(_lines([entry]))


def read(path: Path) -> list[Taped]:
    """The sequences of a file, packed (.xz) or not; up to the first line that is none."""
    data = path.read_bytes()
    found = []
    for line in (lzma.decompress(data) if path.suffix == ".xz" else data).splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Taped))
        except msgspec.MsgspecError:
            break
    return found


def pack(path: Path, entries: list[Taped]) -> None:
    """Write them, packed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(_lines(entries), preset=9))


def telling(entries: list[Taped], fake: FakeSide, most: int = TELLING) -> list[Taped]:
    """At most so many sequences, those that show most: each time the one with the most cells and outcomes that none
    before it shows."""
    shown = [_shown(entry, fake) for entry in entries]
    seen: set[tuple[str, str, str]] = set()
    kept: list[Taped] = []
    while entries and len(kept) < most:
        best = max(range(len(entries)), key=lambda n: len(shown[n] - seen))
        if not shown[best] - seen:
            break
        seen |= shown[best]
        kept.append(entries[best])
    return kept


def _shown(entry: Taped, fake: FakeSide) -> set[tuple[str, str, str]]:
    fake.perform(entry.sequence)
    pairs = zip(entry.answers, fake.states, strict=True)
    return {(operation(answer), state, f"{answer.ending} {answer.status}") for answer, state in pairs}


def _lines(entries: list[Taped]) -> bytes:
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
