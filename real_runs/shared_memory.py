"""What a killed server leaves in /dev/shm, removed by the pids that are known to have used it. Stdlib only."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable
from pathlib import Path

SHM = Path("/dev/shm")
# A line of /proc/PID/maps: address, permissions, offset, device, inode, path.
_MAPPED = re.compile(r"^\S+ \S+ \S+ \S+ (\d+) +/dev/shm/", re.MULTILINE)
# Semaphores and blocks of multiprocessing, storages of torch, load figures of SGLang: nothing else is ours to remove.
_OURS = re.compile(r"sem\.mp-|psm_|torch_|sglang_|sgl_")


def group_pids(leader: int) -> set[int]:
    """The live pids of the process group that `leader` leads or led."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid for pid in pids if _group(pid) == leader}


def _group(pid: int) -> int | None:
    # /proc/PID/stat: "pid (name) state ppid pgrp ..."; the name may hold spaces and brackets.
    try:
        state, _, group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else int(group)


def wait_gone(leader: int, timeout_s: float) -> bool:
    """Whether the group is gone within `timeout_s`: killed children of a dead leader are reaped a moment later."""
    until = time.monotonic() + timeout_s
    while group_pids(leader):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def mapped(pids: Iterable[int]) -> set[str]:
    """The names in /dev/shm that these live processes have mapped.

    By inode: a semaphore is mapped under the temporary name that it had before it was linked to its own.
    """
    inodes: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            inodes.update(int(inode) for inode in _MAPPED.findall(Path(f"/proc/{pid}/maps").read_text()))
    names = set()
    for path in SHM.iterdir():
        with contextlib.suppress(OSError):
            if _OURS.match(path.name) and path.stat().st_ino in inodes:
                names.add(path.name)
    return names


def remove(names: Iterable[str], pids: Iterable[int]) -> list[str]:
    """Remove the recorded `names`, and the torch storages that the dead `pids` created; what was removed."""
    doomed = set(names)
    for pid in pids:
        doomed.update(path.name for path in SHM.glob(f"torch_{pid}_*"))
    removed = []
    for name in sorted(doomed):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            (SHM / name).unlink()
            removed.append(name)
    return removed
