"""The file of a recording: appended record by record, bounded, and never the reason why a training run fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from fakes.trace import AnyRecord, Fact, TraceWriter
from harness.history_files import MAX_BYTES, MAX_LINE, MAX_RECORDS

MOST_BYTES = MAX_BYTES - 2**20
MOST_RECORDS = MAX_RECORDS - 1000


class RecordingTrace(TraceWriter):
    """Writes to `path` alone, each record at once and whole. What does not fit is counted in `lost`; the first loss is
    told by `say`, and recorded. Closed, it takes nothing more."""

    def __init__(self, path: Path, say: Callable[[str], None], most_bytes: int = MOST_BYTES) -> None:
        super().__init__(None)
        self._out = path.open("xb", buffering=0)
        self._say, self._left, self._records = say, min(most_bytes, MOST_BYTES), MOST_RECORDS
        self._number: dict[tuple[str, int], int] = {}
        self._closed = False
        self.lost = 0
        self.written = 0

    def write(self, record: AnyRecord) -> AnyRecord:
        """Give the record its sequence number and write it, if there is room."""
        if self._closed:
            return record
        key = (record.engine, record.incarnation)
        record = msgspec.structs.replace(record, seq=self._number.get(key, 0) + 1)
        line = msgspec.json.encode(record, enc_hook=str) + b"\n"
        if self.lost or not self._fits(len(line)):
            self._lose("it is full")
            return record
        try:
            self._out.write(line)
        except OSError as error:
            self._lose(str(error.strerror or error))
            return record
        self._number[key] = record.seq
        self._left -= len(line)
        self.written += 1
        return record

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        self._out.close()

    def _fits(self, size: int) -> bool:
        return size <= min(self._left, MAX_LINE) and self.written < self._records

    def _lose(self, why: str) -> None:
        self.lost += 1
        if self.lost == 1:
            self._say(f"nothing more is recorded: {why}; what passes still passes")
            cut = Fact(source="harness", name="recording_cut", data={"why": why}, seq=self._number.get(("", 0), 0) + 1)
            try:
                self._out.write(msgspec.json.encode(cut) + b"\n")
            except OSError:
                return
