"""Files that are there whole or not at all, whatever ends the process or fills the disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write beside `path` and rename, so that a reader never meets half of it and a failure leaves the old content.

    What is no plain file (/dev/stdout, a pipe), and a file in a folder that takes no new ones, is written in place.
    OSError when it cannot be written.
    """
    device = path.absolute().parts[1:2] in (("dev",), ("proc",))  # /dev/stdout may be a file: it is open, and stays
    if device or (path.exists() and not path.is_file()):
        path.write_bytes(data)
        return
    path = path.resolve()  # through a link: the link stays
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    try:
        handle, name = tempfile.mkstemp(prefix=".refitcheck-", suffix=".tmp", dir=path.parent)
    except PermissionError:
        path.write_bytes(data)
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def append_whole(path: Path, data: bytes) -> None:
    """Append all of `data` or nothing, to a file that others append to as well. OSError when it cannot be written."""
    with path.open("ab", buffering=0) as file:
        written = 0
        try:
            while written < len(data):
                written += file.write(data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(file.tell() - written)
            raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
