"""What a real server answered, kept as it comes: a run goes on where it stopped, a mended fake needs no server.

One JSON line a sequence. A line that a killed run left half written is dropped.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.words import quoted
from real_runs.comparing import Answer, Exchange
from real_runs.fuzz.server_cells import operation
from real_runs.fuzz.sides import FakeSide
from real_runs.sequence import Sequence

BEGINS = b'{"seed":'
TELLING = 12
"""Sequences of a run that are kept as recordings."""


class Taped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence as the real one performed it. `seed` drew it; `fatal` ones are drawn apart. It took
    `seconds`, starts of the server included. `of` is whose answers they are, on a tape that a run goes on with."""

    seed: int
    sequence: Sequence
    answers: list[Answer]
    died: bool = False
    fatal: bool = False
    seconds: float = 0.0
    of: str = ""

    @property
    def exchange(self) -> Exchange:
        """As `real_runs.comparing` wants it."""
        return Exchange(msgspec.to_builtins(self.sequence), tuple(self.answers), self.died)


class Tape:
    """The sequences of one run; with a path they are read from it, and added to it at once.

    UsageError for a file that is no tape, or one `of` another server: nothing is added to it.
    """

    def __init__(self, path: Path | None = None, of: str = "") -> None:
        self._path, self._of = path, of
        self.entries: list[Taped] = []
        if path is None:
            return
        try:
            if path.suffix == ".xz" or (path.exists() and not path.is_file()):
                raise UsageError(f"--tape {path}: a file that is not packed is gone on with")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()  # now, and not after the first answer
            data = path.read_bytes()
            self.entries, rest = _parsed(data)
            if rest and (len(rest) > 1 or data.endswith(b"\n") or not rest[0].startswith(BEGINS[: len(rest[0])])):
                raise UsageError(f"--tape {path}: line {len(self.entries) + 1} is no sequence of a tape")
            other = next((entry.of for entry in self.entries if of and entry.of not in ("", of)), None)
            if other is not None:
                raise UsageError(f"--tape {path} is one of {quoted(other, 60)}, this is {of}")
            if rest:
                path.write_bytes(_lines(self.entries))  # without what a killed run left half written
        except (OSError, lzma.LZMAError) as error:
            raise UsageError(f"--tape {path}: {getattr(error, 'strerror', None) or error}") from None

    def add(self, entry: Taped) -> None:
        """Keep it."""
        self.entries.append(entry)
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(_lines([msgspec.structs.replace(entry, of=self._of)]))


def read(path: Path) -> list[Taped]:
    """The sequences of a file, packed (.xz) or not; up to the first line that is none."""
    data = path.read_bytes()
    return _parsed(lzma.decompress(data) if path.suffix == ".xz" else data)[0]


def _parsed(data: bytes) -> tuple[list[Taped], list[bytes]]:
    """The sequences up to the first line that is none, and the lines from there on."""
    found: list[Taped] = []
    lines = data.split(b"\n")
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=Taped))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            break
    rest = lines[len(found) :]
    return found, rest if rest != [b""] else []


def pack(path: Path, entries: list[Taped]) -> None:
    """Write them, packed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [msgspec.structs.replace(entry, of="") for entry in entries]
    path.write_bytes(lzma.compress(_lines(plain), preset=9))


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
