"""The process that has imported megatron-bridge, and the trainer ranks that are forked from it.

Runs in the environment of megatron-bridge: `python bridge_host.py FD FOLDER`, FD a socket to the harness and FOLDER
what goes with it. For every rank that is wanted the socket of its orders comes over it; a rank that is forked takes
orders until the harness lets go.

Orders and answers are lines of JSON; an answer may announce bytes that follow.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import bridge_model  # beside this file: it is run as a script, by a Python that does not know the project

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Import, say so, and fork until the harness is gone."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        said = {"ready": bridge_model.prepare()}
    except BaseException as error:
        said = {"error": _line_of(error)}
    channel.sendall(_line(said))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ranks are nobody's to wait for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the harness decides
    while True:
        order, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not order:
            shutil.rmtree(sys.argv[2], ignore_errors=True)
            return 0
        pid = _forked(channel, descriptors[0])
        channel.sendall(_line({"pid": pid}))


def _forked(channel: socket.socket, descriptor: int) -> int:
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    code = 1
    try:
        channel.close()
        # A rank that waits in a collective does not see that the harness is gone: the kernel ends it with its parent.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        Rank(socket.socket(fileno=descriptor)).serve()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Rank:
    """One trainer rank: takes one order after the other."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._policy: Any = None
        self._walk: Iterator[tuple[str, Any]] | None = None
        self._orders: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self._start,
            "load": self._load,
            "export": self._export,
            "stop": self._stop,
        }

    def serve(self) -> None:
        """Until the harness lets go. What an order raised is its answer."""
        with self._channel.makefile("rb") as lines:
            for line in lines:
                order = json.loads(line)
                op = order.pop("op")
                try:
                    if op == "next":
                        self._next()
                    else:
                        self._channel.sendall(_line(self._orders[op](**order)))
                except OSError:
                    return
                except Exception as error:
                    self._channel.sendall(_line({"error": _line_of(error)}))

    def _start(self, **about: Any) -> dict[str, Any]:
        self._policy = bridge_model.Policy(**about)
        return {}

    def _load(self, folder: str, dtype: str) -> dict[str, Any]:
        parameters = self._policy.load(folder, dtype)
        self._policy.train()
        return {"parameters": parameters}

    def _export(self) -> dict[str, Any]:
        self._walk = iter(self._policy.export())
        return {}

    def _stop(self) -> dict[str, Any]:
        self._walk = None
        return {}

    def _next(self) -> None:
        """Take one step of the export: collectives of all ranks."""
        if self._walk is None:
            raise RuntimeError("no export is under way")
        item = next(self._walk, None)
        if item is None:
            self._channel.sendall(_line({"end": True}))
            return
        name, tensor = item
        dtype, shape, data = bridge_model.raw(tensor)
        self._channel.sendall(_line({"name": name, "dtype": dtype, "shape": shape, "size": len(data)}) + data)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _line_of(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


if __name__ == "__main__":
    sys.exit(main())
