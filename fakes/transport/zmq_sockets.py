"""The answering sides of real ZMQ sockets (pyzmq), for a checkpoint engine's own parameter server.

A turn blocks its thread. Addresses are loopback or inter-process only: what comes in is read as hostile
(`ipc_wire`), but a fake dials nobody else's machine.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from fakes.engine.protocol import IpcClose, IpcTurn
from fakes.transport.ipc import Receive
from fakes.transport.peers import Later

_LOCAL = re.compile(r"(ipc://[^\0]{1,107}|inproc://[^\0]{1,255}|tcp://(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+)")
POLL_MS = 50
MAX_MESSAGE_BYTES = 64 << 20


class ZmqSockets:
    """One engine's sockets, by rank. `close_all` ends every turn that waits. ImportError without pyzmq."""

    def __init__(self) -> None:
        import zmq

        self._zmq: Any = zmq
        self._context = zmq.Context()
        self._sockets: dict[tuple[int, str], Any] = {}
        self._ended = threading.Event()

    def turn(self, effect: IpcTurn, receive: Receive, later: Later) -> None:
        """Send and wait, in this thread. ZMQError (an OSError) as the real worker gets it."""
        key = (effect.rank, effect.address)
        if effect.reply is None:
            if not _LOCAL.fullmatch(effect.address):
                raise OSError("Invalid argument")
            self._drop(key)
            socket = self._context.socket(self._zmq.REP)
            socket.setsockopt(self._zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
            socket.connect(effect.address)
            self._sockets[key] = socket
        else:
            socket = self._sockets[key]
            socket.send(effect.reply)
        while not socket.poll(POLL_MS):
            if self._ended.is_set():
                self._drop(key)
                raise OSError("Context was terminated")
        receive(socket.recv())

    def close(self, effect: IpcClose) -> None:
        """Send what is owed, and let it go out."""
        socket = self._sockets.get((effect.rank, effect.address))
        if socket is not None and effect.reply is not None:
            socket.send(effect.reply)
        self._drop((effect.rank, effect.address))

    def close_all(self) -> None:
        """No turn waits any longer."""
        self._ended.set()

    def _drop(self, key: tuple[int, str]) -> None:
        socket = self._sockets.pop(key, None)
        if socket is not None:
            socket.close()  # ZMQ's linger keeps what was sent until it is out
