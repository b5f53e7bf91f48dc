"""A temporary folder of a run that is told apart from the ones of runs that were killed, and sweeps those.

Its owner holds a lock on a file in it. A lock goes with its process, whatever ended it, so a folder whose lock can be
taken has no owner any more. No process ids: those are reused, and mean nothing across containers that share a /tmp.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from harness.errors import HarnessError

LOCK = "owner"
UNLOCKED_S = 3600.0
"""So old is a folder without its lock's file when it is swept: its owner was killed between two system calls."""

PROBE_BYTES = 1 << 16


class RunFolder:
    """`path` until `close`. `note` is kept for whoever sweeps it. HarnessError where none can be made."""

    def __init__(self, prefix: str, note: str = "") -> None:
        while not self._made(prefix, note):
            pass

    def _made(self, prefix: str, note: str) -> bool:
        """False when a sweep of another run came between the folder and its lock."""
        try:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
        except OSError as error:
            if error.filename is None:  # tempfile tried several and says so
                raise HarnessError(f"{error.strerror or error}; set TMPDIR to a folder that can be written") from error
            raise HarnessError(no_room(Path(tempfile.gettempdir()), error)) from error
        try:
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.write(self._lock, note.encode())
        except FileNotFoundError:
            return False
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise HarnessError(no_room(self.path.parent, error)) from error
        if os.fstat(self._lock).st_nlink:
            return True
        os.close(self._lock)
        return False

    def close(self) -> None:
        """Remove it; may be called twice."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def sweep(prefix: str) -> list[str]:
    """Remove the folders in TMPDIR that begin with `prefix` and have no owner any more; their notes."""
    notes = []
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # somebody else's, or gone meanwhile
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            note = _orphaned(path)
            if note is not None:
                shutil.rmtree(path, ignore_errors=True)
                notes.append(note)
    return notes


def _orphaned(path: Path) -> str | None:
    """The note of a folder without an owner; None when it has one."""
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return "" if time.time() - path.stat().st_mtime > UNLOCKED_S else None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.read(lock, 1 << 16).decode("utf-8", "replace")
    except BlockingIOError:
        return None
    finally:
        os.close(lock)


def full(folder: Path) -> str:
    """Why nothing more can be written to a folder, in one line; "" when it can."""
    probe = folder / "probe"
    try:
        with probe.open("wb") as file:
            file.write(b"\1" * PROBE_BYTES)
    except OSError as error:
        return no_room(folder, error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""


def no_room(folder: Path, error: OSError) -> str:
    """One line about a folder that cannot be written, and what to do."""
    room = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{folder}: {error.strerror or error}; " + (
        "free some space, or set TMPDIR to a folder with more" if room else "set TMPDIR to a folder that can be written"
    )
