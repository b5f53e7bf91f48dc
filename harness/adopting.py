"""What a child leaves running, in whatever group or session, becomes ours for the while and is ended. Linux alone."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SET_SUBREAPER, _GET_SUBREAPER = 36, 37
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None


@contextmanager
def adopting(ours: Callable[[int], bool] = lambda pid: True) -> Iterator[None]:
    """At the end of the block kill and reap every child of this process that was none before and is `ours(pid)`.

    Orphans of the block's processes come to this one, and those of what is killed as well.
    """
    if _PRCTL is None:
        yield
        return
    before = ctypes.c_int()
    _PRCTL(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    others = _children()
    _PRCTL(_SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        while left := {pid for pid in _children() - others if ours(pid)}:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        _PRCTL(_SET_SUBREAPER, before.value, 0, 0, 0)


def _children() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(int(pid) for pid in path.read_text().split())
    return found
