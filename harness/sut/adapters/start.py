"""Zygotes: one process for each framework, SGLang version and folder, as long as this process lives."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes.fronts import sglang_shim
from harness.errors import HarnessError
from harness.sut.adapters import wire
from harness.sut.adapters.table import Framework

IMPORT_S = 300.0
KEPT = 4
_HOME = Path(__file__).resolve().parents[3]
_zygotes: dict[tuple[str, str, str], Zygote] = {}


class Zygote:
    """The process that has imported a framework. HarnessError, in one line, when it could not."""

    def __init__(self, framework: Framework, version: str, path: str) -> None:
        self.framework = framework
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **sglang_shim.environment(version), **_ONE_THREAD}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.sut.adapters.zygote", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=environment,
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._channel = ours
        order = {
            "path": path,
            "sglang": version,
            "stubs": list(framework.stubs),
            "bare": list(framework.bare),
            "alone": framework.alone,
            "driver": framework.driver,
        }
        try:
            ours.settimeout(IMPORT_S)
            wire.send_command(ours, ("import", order))
            reply = wire.receive_reply(ours)
            ours.settimeout(None)
        except wire.Ended as error:
            self.close()
            raise HarnessError(f"{framework.name}: its process ended while it was imported: {error}") from error
        self._check(reply, version)

    def _check(self, reply: dict[str, Any], version: str) -> None:
        name = self.framework.name
        if reply["lacking"]:
            self.close()
            raise HarnessError(f"{name} imports {', '.join(reply['lacking'])}, which the sglang shim lacks")
        if reply["error"]:
            self.close()
            where = f" ({reply['where']})" if reply.get("where") else ""
            raise HarnessError(f"{name} cannot be imported beside SGLang {version}: {reply['error']}{where}")

    def fork(self, given: dict[str, Any]) -> tuple[int, socket.socket]:
        """A trainer rank: its process and the channel to it."""
        ours, theirs = socket.socketpair()
        try:
            wire.send_command(self._channel, ("fork", given))
            socket.send_fds(self._channel, [b"."], [theirs.fileno()])
            return int(wire.receive_reply(self._channel)["pid"]), ours
        except (wire.Ended, OSError) as error:
            ours.close()
            raise HarnessError(f"{self.framework.name}: its process is gone: {error}") from error
        finally:
            theirs.close()

    @property
    def alive(self) -> bool:
        """Whether it still forks."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def zygote_of(framework: Framework, version: str, path: str) -> Zygote:
    """The zygote of this framework beside this SGLang, started when it is first asked for."""
    key = (framework.name, version, path)
    found = _zygotes.get(key)
    if found is None or not found.alive:
        while len(_zygotes) >= KEPT:
            _zygotes.pop(next(iter(_zygotes))).close()
        found = _zygotes[key] = Zygote(framework, version, path)
    return found


@contextmanager
def uncounted() -> Iterator[None]:
    """What imports and starts cost is no time of the client's: the watch over its code stands still."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, interval)


@atexit.register
def _close_all() -> None:
    for zygote in _zygotes.values():
        zygote.close()
    _zygotes.clear()
