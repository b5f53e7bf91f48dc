"""A fake server as a process of its own, by starting an interpreter for it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fakes.fronts.started import RunningServer, pipe_options

MODULE = "fakes.fronts.launch_server"


class ServerProcess(RunningServer):
    """`module` runs with `args`; `env` is added to this process's environment."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
        module: str = MODULE,
    ) -> None:
        self._env, self._module = env, module
        super().__init__(args, log, ready_timeout_s)

    def _spawn(self, args: Sequence[str], parent_fd: int, ready_fd: int) -> int:
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(self._log.open("ab")) if self._log else subprocess.DEVNULL
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, *args, *pipe_options(parent_fd, ready_fd)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=None if self._env is None else {**os.environ, **self._env},
                pass_fds=(parent_fd, ready_fd),
                start_new_session=True,
            )
        return self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the process to end; its return code, or None when it still runs."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
