"""Starting and stopping a fake server as a process of its own, so that none is ever left behind.

The child is a session of its own and ends by process group; it watches a pipe to its parent, so it ends too when the
parent was killed with SIGKILL. Ready means: it listens; the port comes through a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

MODULE = "fakes.fronts.launch_server"


class StartError(RuntimeError):
    """The server did not come up. The message ends with the last lines of its log."""


class ServerProcess:
    """One running server. `url` and `pid` as seen from here; use as a context manager, or call `stop()`.

    `args` is SGLang's command line; --port 0 is added when it gives none. stdout and stderr go to `log`.
    """

    def __init__(
        self,
        args: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
        module: str = MODULE,
    ) -> None:
        self._log = log
        parent_read, self._parent_write = os.pipe()
        ready_read, ready_write = os.pipe()
        command = [sys.executable, "-m", module, *args, "--parent-fd", str(parent_read), "--ready-fd", str(ready_write)]
        if not any(arg == "--port" or arg.startswith("--port=") for arg in args):
            command += ["--port", "0"]
        try:
            with contextlib.ExitStack() as stack:
                out = stack.enter_context(log.open("ab")) if log else subprocess.DEVNULL
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else {**os.environ, **env},
                    pass_fds=(parent_read, ready_write),
                    start_new_session=True,
                )
        except BaseException:
            for fd in (self._parent_write, ready_read):
                os.close(fd)
            raise
        finally:
            os.close(parent_read)
            os.close(ready_write)
        try:
            self.port = wait_ready(ready_read, ready_timeout_s, self.wait, self.log_tail)
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(ready_read)
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process, and its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still exists."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """None while it runs; -9 after a death."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the process to end; its return code, or None when it still runs."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """kill -9 of the whole group, and reap it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it, whatever state it is in; may be called twice."""
        if self._parent_write >= 0:
            self.kill()
            os.close(self._parent_write)
            self._parent_write = -1

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of the log."""
        return log_tail(self._log, lines)


def log_tail(log: Path | None, lines: int) -> str:
    """The last lines of a log."""
    if log is None or not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


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
