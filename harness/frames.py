"""Answers on a pipe that a client's code can write to as well, read without ever waiting for the rest of one.

An answer is a mark, its length and its pickle. What does not begin with the mark is no answer, and is known as none by
its first byte, so that half a word of a stranger holds nobody up.
"""

from __future__ import annotations

import os
import pickle
import struct
from multiprocessing.connection import Connection
from typing import Any

MARK = b"\x93refit\r\n"
MOST = 1 << 30  # bytes of one answer
_HEAD = struct.Struct(f"!{len(MARK)}sQ")
_AT_ONCE = 1 << 20


class Garbled(Exception):
    """What came is no answer."""


def send_answer(pipe: Connection, answer: Any) -> None:
    """Write a whole answer. OSError when nobody reads, or the pipe is closed."""
    body = pickle.dumps(answer)
    left = memoryview(_HEAD.pack(MARK, len(body)) + body)
    while left:
        left = left[os.write(pipe.fileno(), left) :]


class Answers:
    """What came of one pipe so far."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._came = bytearray()

    def next(self) -> bytes | None:
        """The pickle of the next answer if it is there as a whole; None while it is not.

        Garbled, EOFError at the end of the pipe, OSError where it broke.
        """
        while True:
            body = self._whole()
            if body is not None or not self._pipe.poll():
                return body
            some = os.read(self._pipe.fileno(), _AT_ONCE)
            if not some:
                raise EOFError
            self._came += some

    def _whole(self) -> bytes | None:
        head = bytes(self._came[: _HEAD.size])
        if not MARK.startswith(head[: len(MARK)]):
            raise Garbled(f"{head!r}")
        if len(head) < _HEAD.size:
            return None
        end = _HEAD.size + int(_HEAD.unpack(head)[1])
        if end > MOST:
            raise Garbled(f"an answer of {end} bytes")
        if len(self._came) < end:
            return None
        body = bytes(self._came[_HEAD.size : end])
        del self._came[:end]
        return body
