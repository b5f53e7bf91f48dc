"""Dated records of a search that found nothing unexplained: what was asked of whom, how much, and of which sources."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import msgspec

ENDING = ".validation.json"
PACKAGES = ("fakes.engine", "real_runs.fuzz")


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """One green search. `digest` is the sha256 of SGLang's manager, `sources` a hash of the fake's engine and of the
    code that asked; `parts` are what was SGLang's own. `explained` counts the known differences that were met,
    `left_out` the sequences that were not performed, or compared only up to some call, by reason.

    `reachable` is the number of cells that could have been met (of a server without a start of their own); `remarks`
    are a person's, on what the run does not say of itself."""

    kind: str
    version: str
    profile: str
    date: str
    seconds: float
    seed: int
    steps: int
    sequences: int
    deaths: int
    cells: int
    reachable: int | None
    missing: list[str]
    parts: list[str]
    digest: str
    sources: str
    explained: dict[str, int] = {}
    left_out: dict[str, int] = {}
    remarks: list[str] = []

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.kind}-{self.profile}{ENDING}"


def sources_hash() -> str:
    """A short hash of the Python files of the fake's engine and of the fuzzing."""
    whole = hashlib.sha256()
    for package in PACKAGES:
        root = Path(str(resources.files(package)))
        for path in sorted(root.rglob("*.py")):
            whole.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()


def folder() -> Path:
    """Where the records of this checkout lie: beside the code that makes them."""
    return Path(str(resources.files("real_runs.fuzz"))) / "records"


def write(record: Validation, where: Path) -> Path:
    """Write the record; a newer one of the same kind and profile replaces the older."""
    where.mkdir(parents=True, exist_ok=True)
    path = where / record.name
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return path


def read(where: Path) -> list[Validation]:
    """All records of a folder, by name. ValueError, in one line, for a file that is none."""
    found = []
    for path in sorted(where.glob(f"*{ENDING}")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Validation))
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}: {error}") from None
    return found


def dated() -> list[tuple[str, str]]:
    """What `refitcheck list --validated-before` lists of this checkout: (what, ISO date)."""
    return [
        (f"diff {record.kind}, fake {record.profile}, {record.steps} steps", record.date) for record in read(folder())
    ]
