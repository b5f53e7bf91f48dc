"""Many servers, one after the other, each in a few hundredths of a second: see `forking`."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from fakes.fronts.started import RunningServer, StartError

MODULE = "fakes.fronts.forking"
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Launcher:
    """Starts servers by fork: one interpreter start for all of them. `close()` ends it; stop the servers before.

    `imports` are further modules that it imports for them, where they are installed.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "--channel", str(theirs.fileno()), *_flags(imports)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},  # a process with threads must not be forked
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = ours
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The launcher's own process."""
        return self._process.pid

    def start(
        self,
        args: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
    ) -> ForkedServer:
        """One server, once it listens; the arguments are those of `process.ServerProcess`. StartError when it fails."""
        return ForkedServer(self, args, log, dict(env or {}), ready_timeout_s)

    def order(self, args: Sequence[str], log: Path | None, env: Mapping[str, str], fds: Sequence[int]) -> int:
        """Send one order; the process id of the server."""
        data = json.dumps({"args": list(args), "log": str(log or ""), "env": dict(env)}).encode()
        with self._lock:
            try:
                socket.send_fds(self._channel, [data], list(fds))
                said = self._channel.makefile("rb", buffering=0).readline()
            except OSError as error:
                raise StartError(f"the launcher is gone: {error}") from error
        if not said:
            raise StartError(f"the launcher ended with code {self._process.wait()}")
        return int(said)

    def close(self) -> None:
        """End it."""
        self._channel.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _flags(imports: Sequence[str]) -> list[str]:
    return [word for name in imports for word in ("--import", name)]


class ForkedServer(RunningServer):
    """A server that a launcher forks, and whose end the launcher tells through a pipe."""

    def __init__(
        self, launcher: Launcher, args: Sequence[str], log: Path | None, env: Mapping[str, str], ready_timeout_s: float
    ) -> None:
        self._launcher, self._env = launcher, env
        self._code: int | None = None
        self._ended = -1
        super().__init__(args, log, ready_timeout_s)

    def _spawn(self, args: Sequence[str], parent_fd: int, ready_fd: int) -> int:
        self._ended, ended = os.pipe()
        try:
            return self._launcher.order(args, self._log, self._env, (parent_fd, ready_fd, ended))
        finally:
            os.close(ended)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the process to end; its return code, or None when it still runs."""
        if self._code is None and select.select([self._ended], [], [], timeout_s)[0]:
            self._code = int(os.read(self._ended, 16) or b"-9")  # nothing written: the launcher is gone
        return self._code

    def stop(self) -> None:
        """End it, whatever state it is in; may be called twice."""
        super().stop()
        if self._ended >= 0:
            os.close(self._ended)
            self._ended = -1
            if self._code is None:
                self._code = -signal.SIGKILL
