"""Results of earlier runs, by content: one file of JSON lines per state of the code, appended to as mutants finish.

A line that cannot be read makes the whole file suspect: it is thrown away, one line says so, and everything runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from harness.whole_files import append_whole

FORMAT = 3
KEEP = 12
T = TypeVar("T")
_VERSIONS = ("pytest", "hypothesis", "numpy", "msgspec", "ml_dtypes")


def folder() -> Path:
    """Where the cache lives: `$REFITCHECK_CACHE`, else `$XDG_CACHE_HOME/refitcheck`, else `~/.cache/refitcheck`."""
    named = os.environ.get("REFITCHECK_CACHE")
    if named:
        return Path(named) / "mutate"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refitcheck" / "mutate"


def fingerprint(paths: Iterable[str], roots: Iterable[str], extra: Iterable[str]) -> str:
    """A hash of all first-party code in this process, `paths`, every module below the packages `roots`, and `extra`."""
    files = {str(Path(p).resolve()) for p in paths}
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    tops = set(roots)
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or not path.endswith(".py"):
            continue
        if name.partition(".")[0] in tops or not any(path.startswith(lib + os.sep) for lib in libraries if lib):
            files.add(path)
    digest = hashlib.sha256(repr((FORMAT, sys.version, [_version(v) for v in _VERSIONS], sorted(extra))).encode())
    for path in sorted(files):
        try:
            content = Path(path).read_bytes()
        except OSError:
            continue
        digest.update(path.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


class Cache:
    """The results for one fingerprint. `enabled=False` remembers nothing."""

    def __init__(
        self, print_: str, tell: Callable[[str], None], *, enabled: bool = True, where: Path | None = None
    ) -> None:
        self._enabled = enabled
        self._known: dict[str, Any] = {}
        self._fd: int | None = None
        self._tell = tell
        if not enabled:
            return
        self._folder = where or folder()
        self.path = self._folder / f"{print_[:32]}.jsonl"
        self._load()
        self._open()

    def _load(self) -> None:
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return
        try:
            for line in lines:
                check, _, body = line.partition(b" ")
                if int(check, 16) != zlib.crc32(body):
                    raise ValueError("checksum")
                entry = json.loads(body)
                self._known[entry["key"]] = entry["value"]
        except (ValueError, KeyError, TypeError):
            self._start_anew()

    def _start_anew(self) -> None:
        self._tell(f"the cache {self.path} is corrupt: rebuilt")
        self._known.clear()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _open(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.utime(self.path)
            old = sorted(self._folder.glob("*.jsonl"), key=lambda p: p.stat().st_mtime, reverse=True)[KEEP:]
            for path in old:
                path.unlink(missing_ok=True)
        except OSError:
            self._fd = None  # a cache that cannot be written only costs time

    def get(self, key: str, read: Callable[[Any], T]) -> T | None:
        """What `read` makes of what was stored under `key`; None where nothing was, or nothing that it can read.

        One entry that cannot be read makes all of them suspect: the file is begun anew.
        """
        if key not in self._known:
            return None
        try:
            return read(self._known[key])
        except (ValueError, KeyError, TypeError, AttributeError):
            self.close()
            self._start_anew()
            self._open()
            return None

    def put(self, key: str, value: Any) -> None:
        """Store at once: an interrupt after this loses nothing."""
        self._known[key] = value
        if self._fd is None:
            return
        body = json.dumps({"key": key, "value": value}, separators=(",", ":")).encode()
        try:
            append_whole(self.path, b"%08x %s\n" % (zlib.crc32(body), body))
        except OSError as error:
            self._tell(f"the cache {self.path} takes no more ({error.strerror or error}): what follows is not kept")
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def key(*parts: Any) -> str:
    """A short content key."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
