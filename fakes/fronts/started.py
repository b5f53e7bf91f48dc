"""What every running fake server is to the process that started it, however it came to be.

It is a session of its own and ends by process group; it watches a pipe to its parent, so it ends too when the parent
was killed with SIGKILL. Ready means: it listens; the port comes through a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class StartError(RuntimeError):
    """The server did not come up. The message ends with the last lines of its log."""


class RunningServer(ABC):
    """One running server. `url` and `pid` as seen from here; use as a context manager, or call `stop()`.

    `args` is SGLang's command line; --port 0 is added when it gives none. stdout and stderr go to `log`. StartError
    when it does not listen within `ready_timeout_s`.
    """

    def __init__(self, args: Sequence[str], log: Path | None, ready_timeout_s: float) -> None:
        self._log = log
        self.pid = 0
        parent_read, self._parent_write = os.pipe()
        ready_read, ready_write = os.pipe()
        try:
            try:
                self.pid = self._spawn(with_port(args), parent_read, ready_write)
            finally:
                os.close(parent_read)
                os.close(ready_write)
            self.port = wait_ready(ready_read, ready_timeout_s, self.wait, self.log_tail)
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(ready_read)
        self.url = f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def _spawn(self, args: Sequence[str], parent_fd: int, ready_fd: int) -> int:
        """Start it with those ends of the two pipes; its process id, which is its group's, too."""

    @abstractmethod
    def wait(self, timeout_s: float) -> int | None:
        """Wait for the process to end; its return code, or None when it still runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether the process still exists."""
        return self.wait(0.0) is None

    @property
    def returncode(self) -> int | None:
        """None while it runs; -9 after a death."""
        return self.wait(0.0)

    def kill(self) -> None:
        """kill -9 of the whole group; returns when it was reaped."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait(REAP_S)

    def stop(self) -> None:
        """End it, whatever state it is in; may be called twice."""
        if self._parent_write >= 0:
            if self.pid:
                self.kill()
            os.close(self._parent_write)
            self._parent_write = -1

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of the log."""
        if self._log is None or not self._log.exists():
            return "(no log)"
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


REAP_S = 60.0
"""So long a killed process may take to be gone."""


def with_port(args: Sequence[str]) -> list[str]:
    """A command line whose port is free where it names none."""
    named = any(arg == "--port" or arg.startswith("--port=") for arg in args)
    return [*args, *([] if named else ["--port", "0"])]


def pipe_options(parent_fd: int, ready_fd: int) -> list[str]:
    """How a server is told of its ends of the two pipes."""
    return ["--parent-fd", str(parent_fd), "--ready-fd", str(ready_fd)]


def wait_ready(fd: int, timeout_s: float, wait: Callable[[float], int | None], tail: Callable[[], str]) -> int:
    """The port that a server tells through its ready pipe. StartError, with the end of its log, when it does not."""
    deadline = time.monotonic() + timeout_s
    said = b""
    while not said.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise StartError(f"the server was not ready after {timeout_s:g} s\n{tail()}")
        part = os.read(fd, 4096)
        if not part:
            code = wait(5.0)
            raise StartError(f"the server ended with code {code} before it was ready\n{tail()}")
        said += part
    return int(json.loads(said)["port"])
