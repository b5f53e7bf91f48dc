"""The records of a history and the append-only writer.

A leaf, so that a fake can record in its own process; `harness.history` reads and merges what is written here.
A call is two records: `Invoke` is written before the engine acts on it, `Complete` before its caller learns the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

SCHEMA = 1
Origin = Literal["sut", "probe", "traffic"]
Source = Literal["core", "probe", "harness"]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Where and when.

    `engine` is "" for the trainer and the harness; `seq` grows per (engine, incarnation, writer); `t` is in seconds of
    the header's clock.
    """

    engine: str = ""
    incarnation: int = 0
    seq: int = 0
    t: float = 0.0


class Header(Record, frozen=True, kw_only=True, tag="header"):
    """The first record: all that is needed to run it again."""

    schema: int = SCHEMA
    clock: Literal["virtual", "scaled", "real"] = "virtual"
    lane: str = ""
    engine_version: str = ""
    tp: int = 1
    seed: int = 0
    meta: dict[str, Any] = {}


class Invoke(Record, frozen=True, kw_only=True, tag="invoke"):
    """A call left its caller. `op` is the path without the slash; `request` is the body, its payloads as digests."""

    call: int
    origin: Origin
    op: str
    method: str = "POST"
    request: Any = None
    fault: str = ""


class Complete(Record, frozen=True, kw_only=True, tag="complete"):
    """A call ended for its caller. indefinite: it is unknown whether the engine acted (dropped, timeout)."""

    call: int
    outcome: Literal["ok", "fail", "indefinite"]
    status: int | None = None
    body: Any = None
    error: str = ""


class Fact(Record, frozen=True, kw_only=True, tag="fact"):
    """What is known of an engine: told by the core of a fake, found by a probe, or expected by the harness."""

    source: Source
    name: str
    data: dict[str, Any] = {}


class Trainer(Record, frozen=True, kw_only=True, tag="trainer"):
    """Something that a trainer rank did: export, release, barrier, marker."""

    rank: int = 0
    name: str
    data: dict[str, Any] = {}


AnyRecord = Header | Invoke | Complete | Fact | Trainer


class TraceWriter:
    """Appends records to memory and, when a path is given, to a JSON-lines file, flushed record by record."""

    def __init__(self, path: Path | None = None) -> None:
        self.records: list[AnyRecord] = []
        self._seq: dict[tuple[str, int], int] = {}
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None

    def write(self, record: AnyRecord) -> AnyRecord:
        """Give the record its sequence number and keep it."""
        key = (record.engine, record.incarnation)
        seq = self._seq.get(key, 0) + 1
        self._seq[key] = seq
        record = msgspec.structs.replace(record, seq=seq)
        self.records.append(record)
        if self._file is not None:
            self._file.write(msgspec.json.encode(record, enc_hook=str).decode() + "\n")
            self._file.flush()
        return record

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None
