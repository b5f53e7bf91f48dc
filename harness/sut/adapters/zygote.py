"""`python -m harness.sut.adapters.zygote FD`: imports a framework once, then forks its trainer ranks for each scenario.

The first command says what to import. A fork of it is a trainer rank in a fresh state, within hundredths of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from harness.sut.adapters import rank, stubs, wire
from harness.sut.adapters.drivers import common


def main(fd: int) -> int:
    """Until the harness is gone."""
    channel = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(wire.Ended):
        _, order = wire.receive_command(channel)
        loaded = _load(channel, order)
        while loaded is not None:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a rank: its end is seen on its channel
            _, given = wire.receive_command(channel)
            _, fds, _, _ = socket.recv_fds(channel, 1, 1)
            wire.send_reply(channel, {"pid": _fork(channel, fds[0], loaded, given)})
    return 0


def _load(channel: socket.socket, order: dict[str, Any]) -> Any:
    """Import the driver; what it is told when that fails names the framework's own line."""
    try:
        driver = _imported(order)
    except BaseException as error:
        wire.send_reply(channel, {"error": f"{type(error).__name__}: {error}", "where": _where(error), **_lacking()})
        return None
    wire.send_reply(channel, {"error": "", "version": str(getattr(driver, "VERSION", "")), **_lacking()})
    return driver


def _imported(order: dict[str, Any]) -> Any:
    from fakes.fronts import sglang_shim

    path = order["path"]
    if path and not order["alone"]:
        sys.path.insert(0, path)
    sglang_shim.install(order["sglang"])
    stubs.install(order["stubs"])
    if order["bare"]:
        stubs.bare(path, order["bare"])
    name = str(order["driver"])
    return importlib.import_module(name if "." in name else f"harness.sut.adapters.drivers.{name}")


def _lacking() -> dict[str, Any]:
    from fakes.fronts import sglang_shim

    return {"lacking": list(sglang_shim.lacking())}


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in frames if not frame.filename.startswith("<")]
    return f"{Path(found[-1].filename).name}:{found[-1].lineno}" if found else ""


def _fork(channel: socket.socket, fd: int, driver: Any, given: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        os.close(fd)
        return pid
    code = 1
    try:
        channel.close()
        os.setsid()
        _end_with_zygote()
        code = rank.serve(socket.socket(fileno=fd), driver, given, common.undeclared)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with_zygote() -> None:
    """A rank that waits in C code does not see that the harness is gone: the kernel ends it with its parent."""
    with contextlib.suppress(OSError, AttributeError):  # no Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
