"""One function in a child of this process: its value comes back, whatever else happens to the child."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import Any

from harness.mutate.child import quiet

_HEAD = struct.calcsize("q")


class Forked:
    """A child that does `work()`; `value` waits for what it gives, `close` ends it and all that it started."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.setpgid(0, 0)
                os.close(self._read)
                quiet()
                data = pickle.dumps(work())
                with os.fdopen(write, "wb") as file:
                    file.write(struct.pack("q", len(data)) + data)
            finally:
                os._exit(0)
        os.close(write)

    def value(self, silence_s: float, alive: Callable[[], object] = lambda: None) -> Any:
        """Its value, or one line of text that says how the child ended instead.

        It waits no longer once `alive()` gives the same for `silence_s` seconds.
        """
        data, said = _read(self._read, self._pid, silence_s, alive)
        try:
            return pickle.loads(data) if data else said
        except (pickle.UnpicklingError, EOFError):
            return said

    def close(self) -> None:
        """Kill it, with all that it started, and give everything back."""
        os.close(self._read)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def forked(work: Callable[[], Any], silence_s: float, alive: Callable[[], object] = lambda: None) -> Any:
    """`work()` in a child, as of `Forked`; the child is gone when this returns."""
    child = Forked(work)
    try:
        return child.value(silence_s, alive)
    finally:
        child.close()


def _read(fd: int, pid: int, silence_s: float, alive: Callable[[], object]) -> tuple[bytes, str]:
    """Until all has come or the child is gone: what it started may hold the pipe open for ever."""
    data, last, seen = b"", time.monotonic(), alive()
    while True:
        gone = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ready, _, _ = select.select([fd], [], [], 0.0 if gone else 0.2)
        more = os.read(fd, 1 << 20) if ready else b""
        if more:
            data += more
            last = time.monotonic()
        if len(data) >= _HEAD and len(data) >= _HEAD + struct.unpack("q", data[:_HEAD])[0]:
            return data[_HEAD:], ""
        if gone and not more:
            return b"", "it ended by itself"
        now = alive()
        if now != seen:
            seen, last = now, time.monotonic()
        if time.monotonic() - last > silence_s:
            return b"", f"no end within {silence_s:.0f} s"
