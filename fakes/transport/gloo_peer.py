"""`python -m fakes.transport.gloo_peer --channel FD`: forks one process for every group that a trainer is rank 0 of.

Real gloo offers no way to give a group up while a broadcast is under way: its destructor waits for whoever does not
come, and abort does nothing (torch 2.13). Only the end of a process lets go of the others, so rank 0 is one. This
process has torch imported and nothing else to do; a group is a fork of it that takes orders over a socket and ends with
it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

import numpy as np

from fakes.transport import gloo

FORM_S = 60.0
"""Seconds for connecting to ranks that have all come."""


def main(argv: list[str]) -> int:
    """Fork a group for every socket that comes over the channel, until it is closed."""
    import torch.distributed  # noqa: F401 - what every group needs

    channel = socket.socket(fileno=int(argv[argv.index("--channel") + 1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    channel.sendall(b"ready\n")
    while True:
        data, fds, _, _ = socket.recv_fds(channel, 1, 1)
        if not data:
            return 0
        pid = os.fork()
        if pid == 0:
            _serve(channel, fds[0])
        os.close(fds[0])
        channel.sendall(b"%d\n" % pid)


def _serve(channel: socket.socket, fd: int) -> NoReturn:
    try:
        channel.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        orders = socket.socket(fileno=fd)
        Group(orders).run()
    finally:
        os._exit(0)


class Group:
    """Rank 0 of one group. An order is a line of JSON, some with bytes after it; so is the answer."""

    def __init__(self, orders: socket.socket) -> None:
        self._socket = orders
        self._file = orders.makefile("rb")
        self._name = ""
        self._size = 0
        self._store: Any = None
        self._group: Any = None
        self._works: list[Any] = []

    def run(self) -> None:
        """Until the other end is closed."""
        with contextlib.suppress(OSError):
            while line := self._file.readline():
                order = json.loads(line)
                try:
                    answer = getattr(self, f"do_{order.pop('op')}")(**order)
                except RuntimeError as error:
                    raised = gloo.words(error)
                    answer = {"error": raised.message}
                self._socket.sendall(json.dumps(answer).encode() + b"\n")

    def do_open(self, name: str, world_size: int, address: str) -> dict[str, Any]:
        """Listen at a free port."""
        self._name, self._size = name, world_size
        self._store = gloo.connect(address, 0, world_size, host=True, timeout_s=FORM_S)
        return {"port": self._store.port}

    def do_missing(self) -> dict[str, Any]:
        """The ranks that have left no address: each does so before it waits for others."""
        keys = gloo.keys_of(self._name, self._store)
        return {"ranks": [rank for rank in range(1, self._size) if not keys.check([f"0/{rank}"])]}

    def do_form(self) -> dict[str, Any]:
        """Connect to all of them."""
        self._group = gloo.form(self._store, self._name, 0, self._size, FORM_S)
        return {}

    def do_broadcast(self, size: int) -> dict[str, Any]:
        """Post one broadcast of the bytes that follow."""
        buffer = np.empty(size, dtype=np.uint8)
        view = buffer.data
        while view.nbytes:
            view = view[self._file.readinto(view) :]  # type: ignore[attr-defined]  # a buffered binary file
        self._works.append(gloo.post(self._group, buffer))
        return {"number": len(self._works) - 1}

    def do_state(self, numbers: list[int]) -> dict[str, Any]:
        """Which of these broadcasts are not over, and the first error of those that are."""
        under_way, failed = [], ""
        for number in numbers:
            work = self._works[number]
            if work is None:
                continue
            if not work.is_completed():
                under_way.append(number)
                continue
            try:
                work.wait()
                self._works[number] = None
            except RuntimeError as error:
                failed = failed or gloo.words(error).message
        return {"under_way": under_way, "failed": failed}


if __name__ == "__main__":
    sys.exit(main(sys.argv))
