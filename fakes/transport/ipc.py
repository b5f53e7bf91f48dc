"""ZMQ between a parameter server and checkpoint-engine workers, without sockets: REQ binds, REP connects, one message
at a time in each direction. An address that nobody binds is waited for, as ZMQ does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from fakes.engine.protocol import IpcClose, IpcTurn
from fakes.transport.peers import Later

Receive = Callable[[bytes], None]


class Sockets(Protocol):
    """The answering sides of one or more engines."""

    def turn(self, effect: IpcTurn, receive: Receive, later: Later) -> None:
        """Send what is owed, then `receive` the next request, once."""
        ...

    def close(self, effect: IpcClose) -> None:
        """Send what is owed, and go."""
        ...


class Requester:
    """The asking side of one address: `send`, then `reply()` until it is there. ValueError for a second request before
    the answer to the first, which ZMQ refuses, too."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._owed = False

    def send(self, data: bytes) -> None:
        """One request."""
        if self._owed:
            raise ValueError("Operation cannot be accomplished in current state")
        self._owed = True
        self._line.requests.append(data)
        self._line.deliver()

    @property
    def owed(self) -> bool:
        """Whether the last request has no answer yet: nothing can be sent."""
        return self._owed

    @property
    def answered(self) -> bool:
        """Whether `reply()` has something."""
        return bool(self._line.replies)

    def reply(self) -> bytes:
        """The answer to the last request. LookupError while there is none."""
        if not self._line.replies:
            raise LookupError("there is no answer yet")
        self._owed = False
        return self._line.replies.popleft()


class _Line:
    def __init__(self) -> None:
        self.requests: deque[bytes] = deque()
        self.replies: deque[bytes] = deque()
        self.waiting: tuple[Receive, Later] | None = None
        self.bound = False

    def deliver(self) -> None:
        if self.waiting is not None and self.requests:
            (receive, later), self.waiting = self.waiting, None
            data = self.requests.popleft()
            later(0.0, lambda: receive(data))


class Hub:
    """All addresses of one world."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def bind(self, address: str) -> Requester:
        """The asking side of an address. OSError when it has one."""
        line = self._lines.setdefault(address, _Line())
        if line.bound:
            raise OSError(f"Address already in use (addr={address!r})")
        line.bound = True
        return Requester(line)

    def turn(self, effect: IpcTurn, receive: Receive, later: Later) -> None:
        """See `Sockets`."""
        line = self._lines.setdefault(effect.address, _Line())
        if effect.reply is not None:
            line.replies.append(effect.reply)
        line.waiting = (receive, later)
        line.deliver()

    def close(self, effect: IpcClose) -> None:
        """See `Sockets`."""
        line = self._lines[effect.address]
        if effect.reply is not None:
            line.replies.append(effect.reply)
