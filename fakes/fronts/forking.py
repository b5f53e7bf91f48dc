"""`python -m fakes.fronts.forking --channel FD`: forks fake servers that need no interpreter start and no import.

`--import NAME`, as often as wanted, adds a module that they will need.

A launcher for whoever starts many servers: it has everything imported, has no thread and no state of an engine, and
each server is a fork of it in a session of its own, with the launcher's command line, environment and log. It ends
when the other end of the channel is closed; its servers end by the pipe to their parent, as those of `process` do.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from fakes.fronts.log import tell
from fakes.fronts.started import pipe_options

FDS = 3
"""With every order: the reading end of the parent's pipe, and the writing ends of the ready and of the ended pipe."""

WARM = (
    "fakes.fronts.launch_server",
    "fakes.fronts.exchange",
    "fakes.engine.core",
    "fakes.tiny",
    "fakes.trainer.torch_wire",
    "fakes.trainer.shm",
    "numpy",
    "psutil",
)


def main(argv: list[str]) -> int:
    """Take orders until the channel is closed."""
    channel = socket.socket(fileno=int(argv[argv.index("--channel") + 1]))
    _warm([name for flag, name in itertools.pairwise(argv) if flag == "--import"])
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    ended: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([channel.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(ended)
        if channel.fileno() in ready:
            data, fds, _, _ = socket.recv_fds(channel, 1 << 20, FDS)
            if not data:
                return 0
            channel.sendall(b"%d\n" % _fork(json.loads(data), fds, ended, (channel.fileno(), woken, wake)))


def _fork(order: dict[str, Any], fds: list[int], ended: dict[int, int], ours: tuple[int, ...]) -> int:
    parent_fd, ready_fd, ended_fd = fds
    pid = os.fork()
    if pid == 0:
        _serve(order, parent_fd, ready_fd, (*ours, ended_fd, *ended.values()))
    os.close(parent_fd)
    os.close(ready_fd)
    ended[pid] = ended_fd
    return pid


def _serve(order: dict[str, Any], parent_fd: int, ready_fd: int, ours: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in ours:
            os.close(fd)
        os.environ.update(order["env"])
        _redirect(order["log"])
        from fakes.fronts import launch_server

        code = launch_server.main([*order["args"], *pipe_options(parent_fd, ready_fd)])
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException as error:
        tell(f"launch_server: error: {type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: str) -> None:
    out = os.open(log or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def _reap(ended: dict[int, int]) -> None:
    """Tell of every server that is gone: its return code, as Popen gives it, into its pipe."""
    while ended:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        fd = ended.pop(pid, -1)
        if fd >= 0:
            with contextlib.suppress(BrokenPipeError):  # nobody may wait for it any more
                os.write(fd, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(fd)


def _warm(more: list[str]) -> None:
    """Import what a server would import when it starts and when it answers; `more` where it is installed."""
    import gc
    import importlib

    import uvicorn

    config = uvicorn.Config(lambda: None, lifespan="off", ws="none", log_config=None)
    config.load()
    for name in WARM:
        importlib.import_module(name)
    for name in more:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
