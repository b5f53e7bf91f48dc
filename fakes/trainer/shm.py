"""Torch's shared-memory files without torch: the layout that its file_system strategy leaves in /dev/shm.

A file is named torch_<pid>_<random>_<n> and begins with 64 bytes whose first four count the references: one per
mapping and one
per payload that nobody has opened yet. Whoever takes the count to 0 unlinks the file (torch's RefcountedMapAllocator
@2.13).
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import secrets
import struct
import weakref
from pathlib import Path

import numpy as np

FOLDER = Path("/dev/shm")
HEADER_BYTES = 64

_HANDLE = re.compile(rb"/torch_\d+_\d+_\d+")
_COUNT = struct.Struct("<i")
_FAMILY = re.compile(r"torch_\d+_\d+_")
_serial = itertools.count()
_families: dict[int, str] = {}
_failures: list[str] = []


class Gone(OSError):
    """There is no such storage (any more), or it is smaller than its handle says."""


class SharedFile:
    """One storage that this process offers, with one reference for itself and one for its payload.

    It goes with `close()`, with this object, and at the latest with a normal end of the process. OSError when there is
    no room, which is noted: whoever exports may take it for a failure of its own.
    """

    def __init__(self, data: np.ndarray) -> None:
        self.name = f"{family()}{next(_serial)}"
        self._end = weakref.finalize(self, unlink, self.name)
        try:
            with open(FOLDER / self.name, "xb") as file:
                file.write(_COUNT.pack(2).ljust(HEADER_BYTES, b"\0"))
                file.write(data.tobytes())
        except OSError as error:
            self._end()
            _failures.append(f"{FOLDER}: {error.strerror} (a payload of {data.nbytes} bytes)")
            raise

    @property
    def handle(self) -> bytes:
        """The name that travels."""
        return b"/" + self.name.encode()

    def close(self) -> None:
        """Free it: what was not opened yet can no longer be."""
        self._end()


def family() -> str:
    """What the names of this process's files begin with, and no other process's."""
    pid = os.getpid()
    if pid not in _families:
        _families.clear()  # a fork has its parent's
        _families[pid] = f"torch_{pid}_{secrets.randbits(32)}_"
    return _families[pid]


def failures() -> list[str]:
    """Why files could not be made since this was last asked."""
    told = list(_failures)
    _failures.clear()
    return told


def sweep(of: str) -> None:
    """Remove the files of a `family` whose process is gone; nothing for what is none."""
    if _FAMILY.fullmatch(of):
        for path in FOLDER.glob(f"{of}*"):
            unlink(path.name)


def read_storage(handle: bytes, size: int) -> np.ndarray:
    """A copy of a storage of `size` bytes, which counts as its one opening. `Gone` when there is none."""
    if not _HANDLE.fullmatch(handle):
        raise Gone(f"{handle!r} is not a shared storage")
    path = FOLDER / handle[1:].decode()
    try:
        with open(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
            if os.fstat(file.fileno()).st_size < HEADER_BYTES + size:
                raise Gone(f"{path} is smaller than {size} bytes")
            left = _COUNT.unpack(file.read(_COUNT.size))[0] - 1
            file.seek(HEADER_BYTES)
            data = np.frombuffer(file.read(size), dtype=np.uint8)
            file.seek(0)
            file.write(_COUNT.pack(left))
    except FileNotFoundError as error:
        raise Gone(str(error)) from None
    if left == 0:
        unlink(path.name)
    return data


def map_storage(handle: bytes, size: int) -> np.ndarray:
    """A storage as it is at any time, read-only: what its producer writes later is seen. Counts as its one opening.

    `Gone` when there is none. The mapping outlives the file's name.
    """
    if not _HANDLE.fullmatch(handle):
        raise Gone(f"{handle!r} is not a shared storage")
    path = FOLDER / handle[1:].decode()
    try:
        with open(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
            if os.fstat(file.fileno()).st_size < HEADER_BYTES + size:
                raise Gone(f"{path} is smaller than {size} bytes")
            mapped = mmap.mmap(file.fileno(), HEADER_BYTES + size, access=mmap.ACCESS_READ)
            left = _COUNT.unpack(file.read(_COUNT.size))[0] - 1
            file.seek(0)
            file.write(_COUNT.pack(left))
    except FileNotFoundError as error:
        raise Gone(str(error)) from None
    if left == 0:
        unlink(path.name)
    return np.frombuffer(mapped, dtype=np.uint8, offset=HEADER_BYTES)


def unlink(name: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        (FOLDER / name).unlink()


def is_mapped(name: str) -> bool:
    """Whether any process that we may look at maps a file."""
    needle = str(FOLDER / name)
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if needle in maps.read_text(errors="replace"):
                return True
    return False


def leftovers(pid: int | None = None) -> list[str]:
    """Names of the files of this process (or of `pid`) that still exist."""
    return sorted(path.name for path in FOLDER.glob(f"torch_{pid or os.getpid()}_*"))
