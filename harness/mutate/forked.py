"""One function in a child of this process: its value comes back, whatever else happens to the child."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from harness.mutate.child import quiet


def forked(work: Callable[[], Any], silence_s: float, alive: Callable[[], object] = lambda: None) -> Any:
    """`work()` in a child. Its value, or one line of text that says how the child ended instead.

    The child is killed, with all that it started, when `alive()` gives the same for `silence_s` seconds.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            os.close(read)
            quiet()
            data = pickle.dumps(work())
            with os.fdopen(write, "wb") as file:
                file.write(data)
        finally:
            os._exit(0)
    os.close(write)
    try:
        data, said = _read(read, silence_s, alive)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    try:
        return pickle.loads(data) if data else said
    except (pickle.UnpicklingError, EOFError):
        return said


def _read(fd: int, silence_s: float, alive: Callable[[], object]) -> tuple[bytes, str]:
    data, last, seen = b"", time.monotonic(), alive()
    while True:
        ready, _, _ = select.select([fd], [], [], 0.2)
        if ready:
            more = os.read(fd, 1 << 20)
            if not more:
                return data, "it ended by itself"
            data += more
            last = time.monotonic()
        now = alive()
        if now != seen:
            seen, last = now, time.monotonic()
        if time.monotonic() - last > silence_s:
            return b"", f"no end within {silence_s:.0f} s"
