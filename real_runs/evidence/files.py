"""The files of a bundle, from a folder or an archive that may be hostile: in memory, bounded, never extracted."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from harness.errors import RefitcheckError
from harness.whole_files import write_whole
from harness.words import quoted

SUMS = "SHA256SUMS"
MAX_FILES = 5000
MAX_FILE = 64 * 2**20
MAX_TOTAL = 256 * 2**20
_MEMORY_LIMIT = 128 * 2**20  # of the decompressor: a hostile .xz may ask for more
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199})?")
_SUM = re.compile(r"([0-9a-f]{64})  (\S+)")

Files = Mapping[str, bytes]
"""Relative name ("histories/x.jsonl") -> content; SHA256SUMS is one of them."""


class BadBundle(RefitcheckError):
    """It is no whole bundle; one line that says why."""

    exit_code = 4


def read_files(path: Path) -> dict[str, bytes]:
    """The files of a bundle's folder or .tar.xz. BadBundle for what could not be one."""
    try:
        return _from_folder(path) if path.is_dir() else _from_archive(path)
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror or error}") from None


def write_archive(files: Files, path: Path) -> None:
    """A .tar.xz whose bytes depend on `files` alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    write_whole(path, lzma.compress(out.getvalue(), preset=9))


def sums_of(files: Files) -> bytes:
    """SHA256SUMS of all files but itself, as sha256sum writes it."""
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()) if name != SUMS)
    return "".join(lines).encode()


def bundle_id(files: Files) -> str:
    """64 hex digits that name the bundle: the digest of its SHA256SUMS."""
    return hashlib.sha256(files[SUMS]).hexdigest()


def wrong_sums(files: Files) -> list[str]:
    """One line for every file that is edited, truncated, missing or added."""
    if SUMS not in files:
        return [f"{SUMS} is missing"]
    said: dict[str, str] = {}
    for number, line in enumerate(files[SUMS].decode("utf-8", "replace").splitlines(), 1):
        found = _SUM.fullmatch(line)
        if found is None or found[2] in said:
            return [f"{SUMS}:{number}: {quoted(line, 80)} is no line of it"]
        said[found[2]] = found[1]
    out = [f"{name} is missing" for name in sorted(said) if name not in files]
    for name in sorted(files):
        if name == SUMS:
            continue
        if name not in said:
            out.append(f"{name} is not listed in {SUMS}")
        elif hashlib.sha256(files[name]).hexdigest() != said[name]:
            out.append(f"{name} is not what {SUMS} says")
    if not out and files[SUMS] != sums_of(files):
        out.append(f"{SUMS} is not in its order")
    return out


class _Budget:
    """Names and sizes so far."""

    def __init__(self, path: Path) -> None:
        self._path, self._total, self._names = path, 0, set[str]()

    def take(self, name: str, size: int) -> None:
        if not _NAME.fullmatch(name):
            raise BadBundle(f"{self._path}: {quoted(name, 80)} is no name of a bundle's file")
        if name in self._names:
            raise BadBundle(f"{self._path}: {name} is there twice")
        self._names.add(name)
        self._total += size
        if size > MAX_FILE or self._total > MAX_TOTAL or len(self._names) > MAX_FILES:
            most = f"{MAX_FILES} files, {MAX_FILE >> 20} MiB in one or {MAX_TOTAL >> 20} MiB in all"
            raise BadBundle(f"{self._path}: more than {most}")


def _from_folder(root: Path) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    budget = _Budget(root)
    for folder, _, entries in os.walk(root):
        for entry in os.scandir(folder):
            name = str(Path(entry.path).relative_to(root))
            if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
                raise BadBundle(f"{root}: {quoted(name, 80)} is no plain file")
        for file in entries:
            path = Path(folder) / file
            name = str(path.relative_to(root))
            budget.take(name, path.stat().st_size)
            out[name] = path.read_bytes()
    return out


def _from_archive(path: Path) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    budget = _Budget(path)
    try:
        with path.open("rb") as packed:
            content = BoundedXz(packed, path)
            with tarfile.open(fileobj=content, mode="r|") as archive:
                for member in archive:
                    if not member.isreg() or member.issparse():
                        raise BadBundle(f"{path}: {quoted(member.name, 80)} is no plain file")
                    budget.take(member.name, member.size)
                    file = archive.extractfile(member)
                    out[member.name] = file.read() if file else b""
                    if len(out[member.name]) != member.size:
                        raise BadBundle(f"{path}: {member.name} is cut off")
            while content.read(65536):  # tar ends before its padding: only the end of the stream has its check sum
                pass
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError, RecursionError) as error:
        raise BadBundle(f"{path}: not a whole .tar.xz ({quoted(error, 100)})") from None
    return out


class BoundedXz(io.RawIOBase):
    """The content of one .xz stream, at most MAX_TOTAL and what tar adds; EOFError where it ends too early."""

    def __init__(self, packed: IO[bytes], path: Path) -> None:
        self._packed, self._path = packed, path
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_LIMIT)
        self._left = MAX_TOTAL + MAX_FILES * 1024 + 2**20

    def readable(self) -> bool:
        """As every reader."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, b"" at the end."""
        while not self._stream.eof:
            fed = self._packed.read(65536) if self._stream.needs_input else b""
            if not fed and self._stream.needs_input:
                raise EOFError("it ends too early")
            out = self._stream.decompress(fed, max_length=max(1, size))
            self._left -= len(out)
            if self._left < 0:
                raise BadBundle(f"{self._path}: more than {MAX_TOTAL >> 20} MiB in all")
            if out:
                return out
        if self._stream.unused_data or self._packed.read(1):
            raise EOFError("something follows its end")
        return b""
