"""A checkpoint-engine worker inside one scheduler rank: which reply each request of its parameter server gets.

Sources: checkpoint_engine/worker.py of checkpoint-engine 0.4.2 and 0.1.2, checkpoint_engine/checkpoint_engine_worker.py
of SGLang. 0.1.2 ends at the first None and answers no failure: its server waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from fakes.engine.ipc_wire import Message
from fakes.engine.protocol import Done, IpcClose, IpcTurn, Raised

RELEASED = "Should not receive any payload after released"
UNEXPECTED = "Unexpected payload type: <class '{name}'>"

Load = Callable[[Message], Raised | None]
"""model.load_weights of one rank: what it raised, or None."""


class Worker:
    """The worker of `rank` at the socket `address`. `error` is None, or what ended it early. `load` takes one bucket,
    `finish` is the post hook."""

    def __init__(
        self, rank: int, address: str, package: str, next_id: Callable[[], int], load: Load, finish: Callable[[], None]
    ) -> None:
        self.rank = rank
        self.error: Raised | None = None
        self._address = address
        self._first_none_ends = package == "0.1.2"
        self._next_id = next_id
        self._load = load
        self._finish = finish
        self._state = "connecting"
        self._farewell: bytes | None = None

    def start(self) -> IpcTurn:
        """Connect and wait for the buffer."""
        return self._turn(None)

    def go(self, done: Done) -> IpcTurn | None:
        """What follows from the next request; None when this was the last."""
        if done.error is not None:
            return self._end(done.error)
        message: Message = done.value
        if self._state == "failed":
            return self._end(self.error)
        return self._old(message) if self._first_none_ends else self._new(message)

    def close(self) -> IpcClose:
        """The effect that ends its socket."""
        return IpcClose(rank=self.rank, address=self._address, reply=self._farewell)

    def _new(self, message: Message) -> IpcTurn | None:
        """checkpoint_engine/worker.py:61@0.4.2."""
        if self._state == "connecting":
            wrong = message.error or (None if message.kind == "buffer" else Raised("AssertionError", ""))
            if wrong is not None:
                self.error, self._state = wrong, "failed"
                return self._turn(_traceback(wrong))  # it waits for one more request before it raises
            self._state = "loading"
            return self._turn(b"")
        if self._state == "released":
            if message.kind != "none":
                return self._end(message.error or Raised("AssertionError", RELEASED))
            self._finish()
            return self._end(None, b"")
        if message.kind == "none":
            self._state = "released"
            return self._turn(b"")
        if message.kind == "weights":
            wrong = message.error or self._load(message)
            return self._turn(b"" if wrong is None else _traceback(wrong))
        if message.kind == "stop":
            return self._end(Raised("RuntimeError", message.text))
        return self._end(message.error or Raised("TypeError", UNEXPECTED.format(name=message.text)))

    def _old(self, message: Message) -> IpcTurn | None:
        """checkpoint_engine/worker.py:53@0.1.2: nothing is caught."""
        if message.kind == "none":
            self._finish()
            return self._end(None, b"")
        if message.error is not None:
            return self._end(message.error)
        if message.kind == "buffer":
            return self._turn(b"")
        wrong = self._load(message) if message.kind == "weights" else Raised("AssertionError", "")
        return self._turn(b"") if wrong is None else self._end(wrong)

    def _turn(self, reply: bytes | None) -> IpcTurn:
        return IpcTurn(id=self._next_id(), rank=self.rank, address=self._address, reply=reply)

    def _end(self, error: Raised | None, reply: bytes | None = None) -> IpcTurn | None:
        self.error, self._farewell = error, reply
        return None


def _traceback(error: Raised) -> bytes:
    """The text that a worker answers with, without the frames."""
    last = f"{error.type}: {error.message}" if error.message else error.type
    return f"Traceback (most recent call last):\n{last}\n".encode(errors="backslashreplace")  # a lone surrogate
