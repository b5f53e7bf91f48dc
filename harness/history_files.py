"""Histories on disk: JSON lines, plain or .xz. Files may be hostile: sizes are bounded, errors name file and line."""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from fakes.trace import SCHEMA, AnyRecord, Header
from harness.errors import MalformedHistory
from harness.history import History
from harness.whole_files import write_whole
from harness.words import one_line, quoted

MAX_BYTES = 256 * 1024 * 1024  # of one file, uncompressed
MAX_LINE = 4 * 1024 * 1024
MAX_RECORDS = 1_000_000
_MEMORY_LIMIT = 128 * 1024 * 1024  # of the decompressor: a hostile .xz may ask for more
_CHUNK = 65536

_decoder = msgspec.json.Decoder(AnyRecord)


def read_history(*paths: Path | str) -> History:
    """Read and merge one history from the files of its writers. MalformedHistory (exit code 4) in one line."""
    writers = [read_records(Path(path)) for path in paths]
    try:
        return History.from_records(*writers)
    except MalformedHistory as error:
        names = ", ".join(str(path) for path in paths)
        raise MalformedHistory(f"{names}: {error}") from None


def read_records(path: Path) -> list[AnyRecord]:
    """All records of one file, the header first."""
    out: list[AnyRecord] = []
    for number, line in _lines(path):
        try:
            record = _decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise MalformedHistory(f"{path}:{number}: {quoted(error)}") from None
        if number == 1 and not isinstance(record, Header):
            raise MalformedHistory(f"{path}:1: the first record must be a header")
        if isinstance(record, Header) and record.schema != SCHEMA:
            raise MalformedHistory(f"{path}:{number}: schema {record.schema}, this refitcheck reads schema {SCHEMA}")
        out.append(record)
    if not out:
        raise MalformedHistory(f"{path}:1: empty, a history begins with a header")
    return out


def write_records(path: Path, records: Iterable[AnyRecord]) -> None:
    """Write one history, whole or not at all; compressed when the name ends in .xz."""
    data = b"".join(msgspec.json.encode(record, enc_hook=str) + b"\n" for record in records)
    write_whole(path, lzma.compress(data, preset=6) if path.suffix == ".xz" else data)


def write_history(path: Path, history: History) -> None:
    """Write a merged history so that `read_history` takes it back in the same order: header first, as of one writer.

    `seq` is counted anew per (engine, incarnation), since its writers counted each for itself.
    """
    counted: dict[tuple[str, int], int] = {}
    whole: list[AnyRecord] = [history.header, *history.records]
    for place, record in enumerate(whole):
        key = (record.engine, record.incarnation)
        counted[key] = counted.get(key, 0) + 1
        whole[place] = msgspec.structs.replace(record, seq=counted[key])
    write_records(path, whole)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and text of every line that is not blank; blank ones count, so that no file is read for ever."""
    try:
        with path.open("rb") as raw:
            file: IO[bytes] = io.BufferedReader(_Unpacked(raw)) if path.suffix == ".xz" else raw
            total = number = 0
            while line := file.readline(MAX_LINE + 1):
                number += 1
                total += len(line)
                if len(line) > MAX_LINE:
                    raise MalformedHistory(f"{path}:{number}: longer than {MAX_LINE} bytes")
                if total > MAX_BYTES:
                    raise MalformedHistory(f"{path}:{number}: more than {MAX_BYTES} bytes")
                if number > MAX_RECORDS + 1:  # the header is one
                    raise MalformedHistory(f"{path}:{number}: more than {MAX_RECORDS} records")
                if line.strip():
                    yield number, line
    except (lzma.LZMAError, EOFError) as error:
        raise MalformedHistory(f"{path}: not a whole .xz file ({one_line(error)})") from None
    except OSError as error:
        raise MalformedHistory(f"{path}: {error.strerror or error}") from None


class _Unpacked(io.RawIOBase):
    """The content of an .xz file. Every stream of it has the memory limit, which `lzma.LZMAFile` cannot be given."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._stream = self._new()
        self._fed = b""
        self._begun = False

    def readable(self) -> bool:
        """As every reader."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed asks for any buffer
        """At most `len(buffer)` bytes; 0 at the end. LZMAError and EOFError where the file is not whole."""
        while True:
            if self._stream.eof:
                self._fed, self._stream, self._begun = self._stream.unused_data, self._new(), False
            if self._stream.needs_input and not self._fed:
                self._fed = self._packed.read(_CHUNK)
                if not self._fed and not self._begun:
                    return 0
                if not self._fed:
                    raise EOFError("it ends too early")
            if not self._begun:
                self._fed = self._fed.lstrip(b"\0")  # padding between streams
                if not self._fed:
                    continue
            fed, self._fed, self._begun = self._fed, b"", True
            out = self._stream.decompress(fed, max_length=len(buffer))
            if out:
                buffer[: len(out)] = out
                return len(out)

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_LIMIT)
