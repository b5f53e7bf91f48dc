"""What became of each driver when it was last run, and whether a cell is still that: `refitcheck matrix --expected`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from harness.frameworks.cells import Cell, Outcome
from harness.versions import version_matches

FILE = Path(__file__).with_name("expected.toml")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One driver at one state of its code (`at`: a commit, or the version of its wheel) on some SGLang versions.

    `says` is a part of what the cell says of the reason, `calls` the operations of the first refit ("" for any), `note`
    what a reader has to know.
    """

    sut: str
    at: str
    versions: str
    outcome: Outcome
    paused: bool = False
    says: str = ""
    calls: str = ""
    note: str = ""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    row: list[Row]


@dataclass(frozen=True)
class Compared:
    """A cell beside its row. `differs` is "" where they agree; `row` is None where nothing was expected."""

    row: Row | None
    differs: str = ""

    @property
    def told(self) -> str:
        """`as expected`, `differs: ...`, `no expectation`."""
        if self.row is None:
            return "no expectation"
        return f"differs from {self.row.at}: {self.differs}" if self.differs else f"as expected of {self.row.at}"


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All of them, in the order of the file."""
    return tuple(msgspec.toml.decode(FILE.read_bytes(), type=_Table).row)


def row_of(sut: str, version: str) -> Row | None:
    """The one for this cell."""
    return next((row for row in rows() if row.sut == sut and version_matches(version, row.versions)), None)


def compared(cell: Cell) -> Compared:
    """Outcome, engines left paused, the calls of a refit, and the reason."""
    row = row_of(cell.sut, cell.version)
    if row is None:
        return Compared(None)
    for found, wanted, what in (
        (cell.outcome, row.outcome, "outcome"),
        (bool(cell.paused), row.paused, "left paused"),
    ):
        if found != wanted:
            return Compared(row, f"{what} {found}, expected {wanted}")
    if row.calls and cell.sequence != row.calls:
        return Compared(row, f"its first refit calls {cell.sequence}, expected {row.calls}")
    if row.says not in cell.why:
        return Compared(row, f"the reason says nothing of {row.says!r}")
    return Compared(row)
