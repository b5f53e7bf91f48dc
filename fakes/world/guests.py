"""Threads that the world did not make: a client's pools, its event loop's executors.

The world cannot hold such a thread back, and cannot know that it is about to call. So before time passes, all threads
that are outside must be at rest: blocked in the kernel, and not run for a moment.
"""

from __future__ import annotations

import os
import sys
import threading
import time

SLICE_S = 0.0003
"""Real seconds between two looks at the threads."""

LOOKS = 60
"""After so many, a thread that is never at rest (a progress bar's, a poll's) is taken for one that will not call."""

_TASKS = "/proc/self/task"
_RUNNING = (b"R", b"D")


def at_rest(parked: set[int]) -> bool:
    """Whether every thread but this one and the `parked` (native ids) is at rest. Takes `SLICE_S`, or nothing.

    Where there is no /proc, whether each of them stood in the same line of Python twice.
    """
    first = _seen(parked)
    if not first:
        return True
    time.sleep(SLICE_S)
    return None not in first.values() and first == _seen(parked)


def _seen(parked: set[int]) -> dict[int, object]:
    """What changes when a thread runs, by native id; None for one that runs or would if a core were free."""
    mine = {threading.get_native_id(), *parked}
    try:
        return {task: _times(task) for task in map(int, os.listdir(_TASKS)) if task not in mine}
    except OSError:
        frames = sys._current_frames()
        known = {t.native_id: frames.get(t.ident or 0) for t in threading.enumerate()}
        return {i: (id(f), f.f_lasti) for i, f in known.items() if i is not None and i not in mine and f is not None}


def _times(task: int) -> bytes | None:
    """What the kernel counts of its turns: finely, or in ticks where it keeps no more."""
    try:
        stat = _read(task, "stat")
    except OSError:
        return None  # it ended just now
    if stat.rpartition(b")")[2].split(None, 1)[0] in _RUNNING:
        return None
    try:
        return stat + _read(task, "schedstat")
    except OSError:
        return stat


def _read(task: int, name: str) -> bytes:
    with open(f"{_TASKS}/{task}/{name}", "rb") as file:
        return file.read()
