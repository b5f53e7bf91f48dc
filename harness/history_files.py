"""Histories on disk: JSON lines, plain or .xz. Files may be hostile: sizes are bounded, errors name file and line."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from fakes.trace import SCHEMA, AnyRecord, Header
from harness.errors import MalformedHistory
from harness.history import History

MAX_BYTES = 256 * 1024 * 1024  # of one file, uncompressed
MAX_LINE = 4 * 1024 * 1024
MAX_RECORDS = 1_000_000
_MEMORY_LIMIT = 128 * 1024 * 1024  # of the decompressor: a hostile .xz may ask for more

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
            raise MalformedHistory(f"{path}:{number}: {_one_line(error)}") from None
        if number == 1 and not isinstance(record, Header):
            raise MalformedHistory(f"{path}:1: the first record must be a header")
        if isinstance(record, Header) and record.schema != SCHEMA:
            raise MalformedHistory(f"{path}:{number}: schema {record.schema}, this refitcheck reads schema {SCHEMA}")
        out.append(record)
        if len(out) > MAX_RECORDS:
            raise MalformedHistory(f"{path}:{number}: more than {MAX_RECORDS} records")
    if not out:
        raise MalformedHistory(f"{path}:1: empty, a history begins with a header")
    return out


def write_records(path: Path, records: Iterable[AnyRecord]) -> None:
    """Write one history, compressed when the name ends in .xz."""
    data = b"".join(msgspec.json.encode(record, enc_hook=str) + b"\n" for record in records)
    path.write_bytes(lzma.compress(data, preset=6) if path.suffix == ".xz" else data)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with _open(path) as file:
            total = 0
            for number in range(1, MAX_RECORDS + 3):
                line = file.readline(MAX_LINE + 1)
                if not line:
                    return
                total += len(line)
                if len(line) > MAX_LINE:
                    raise MalformedHistory(f"{path}:{number}: longer than {MAX_LINE} bytes")
                if total > MAX_BYTES:
                    raise MalformedHistory(f"{path}:{number}: more than {MAX_BYTES} bytes")
                if line.strip():
                    yield number, line
    except (lzma.LZMAError, EOFError) as error:
        raise MalformedHistory(f"{path}: not a whole .xz file ({_one_line(error)})") from None
    except OSError as error:
        raise MalformedHistory(f"{path}: {error.strerror or error}") from None


def _open(path: Path) -> IO[bytes]:
    if path.suffix != ".xz":
        return path.open("rb")
    decompressor = _Bounded(path)
    return decompressor


class _Bounded(lzma.LZMAFile):
    """LZMAFile has no memory limit of its own, so a bounded decompressor first reads the stream's header."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            lzma.LZMADecompressor(memlimit=_MEMORY_LIMIT).decompress(file.read(65536), max_length=1)
        super().__init__(path)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
