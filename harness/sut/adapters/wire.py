"""Messages between the harness and the processes of a framework: length, then bytes.

To the framework they are pickles of ours (numpy arrays); back they are JSON, since what a framework's process says is
not executed here.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

import msgspec

_LENGTH = struct.Struct("<Q")
MAX_REPLY = 16 << 20
"""Bytes of a reply."""


class Ended(Exception):
    """The other side is gone."""


def send_command(channel: socket.socket, command: tuple[Any, ...]) -> None:
    """From the harness. Ended when nobody reads."""
    _send(channel, pickle.dumps(command, protocol=5))


def receive_command(channel: socket.socket) -> Any:
    """In the framework's process. Ended when the harness is gone."""
    return pickle.loads(_receive(channel))


def send_reply(channel: socket.socket, reply: dict[str, Any]) -> None:
    """From the framework's process."""
    _send(channel, msgspec.json.encode(reply))


def receive_reply(channel: socket.socket) -> dict[str, Any]:
    """In the harness. Ended when the process is gone, or says more than a reply may."""
    return msgspec.json.decode(_receive(channel, MAX_REPLY), type=dict[str, Any])


def _send(channel: socket.socket, data: bytes) -> None:
    try:
        channel.sendall(_LENGTH.pack(len(data)) + data)
    except OSError as error:
        raise Ended(str(error)) from error


def _receive(channel: socket.socket, limit: int | None = None) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    if limit is not None and length > limit:
        raise Ended(f"a reply of {length} bytes")
    return _exactly(channel, length)


def _exactly(channel: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        try:
            part = channel.recv(min(1 << 20, length - len(parts)))
        except OSError as error:
            raise Ended(str(error)) from error
        if not part:
            raise Ended("the connection was closed")
        parts += part
    return bytes(parts)
