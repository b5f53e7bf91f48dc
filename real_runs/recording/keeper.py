"""What the proxy tells of every exchange, and what is written of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Literal, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from fakes.outcome import Outcome
from fakes.trace import TraceWriter
from harness.gate import FaultGate, Passage
from real_runs.recording.keeping import CONTROL_PLANE, KNOWN, MOST_BODY, Keeping
from real_runs.recording.marks import RefitMarks

Ending = Literal["reply", "dropped", "refused", "timeout"]
_TOLD = {
    "dropped": "connection closed without an answer",
    "refused": "connection refused",
    "timeout": "the client went away",
}


class Visit(Protocol):
    """One exchange. Bytes come as they pass, in pieces; nothing of it may raise."""

    def asked(self, part: bytes) -> None:
        """A piece of the request's body."""
        ...

    def admit(self) -> None:
        """The request is whole: the server acts after this and not before."""
        ...

    def head(self, status: int, media: str) -> None:
        """The answer begins."""
        ...

    def answered(self, part: bytes) -> None:
        """A piece of the answer's body."""
        ...

    def settle(self, ending: Ending) -> None:
        """It ends: its client is told after this and not before."""
        ...


class Keeper(Protocol):
    """One upstream server."""

    upstream: str

    def arrives(self, method: str, target: bytes) -> Visit:
        """A request's head has come in."""
        ...


class Bounded:
    """Bytes up to a limit, and how many there were."""

    def __init__(self, most: int) -> None:
        self._most, self.size = most, 0
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        """Some more."""
        self.size += len(part)
        if self.size <= self._most:
            self._parts.append(part)
        else:
            self._parts.clear()

    @property
    def whole(self) -> bytes | None:
        """All of them; None when they were too many."""
        return b"".join(self._parts) if self.size <= self._most else None


class Recording:
    """What all engines of one recording share: the gate, its clock, the marks of refits."""

    def __init__(
        self, trace: TraceWriter, engines: int, keeping: Keeping, now: Callable[[], float] | None = None
    ) -> None:
        began = time.monotonic()
        self.now = now or (lambda: time.monotonic() - began)
        self.gate = FaultGate(trace, self.now)
        self.keeping = keeping
        self._lock = threading.Lock()
        self._marks = RefitMarks(engines, lambda data: self.gate.fact("refit", data))

    def admit(self, engine: RecordedEngine, op: str, method: str, query: dict[str, str], body: object) -> Passage:
        """A call leaves its client. Generations are traffic: no trainer's refit makes them."""
        with self._lock:
            self._marks.before(op, self.now())
            return self.gate.admit(
                engine=engine.name,
                incarnation=engine.incarnation,
                op=op,
                origin="sut" if op in CONTROL_PLANE or (op in KNOWN and op != "generate") else "traffic",
                method=method,
                body=body,
                query=query,
            )

    def settle(self, passage: Passage, outcome: Outcome) -> None:
        """It ends for its client."""
        with self._lock:
            self.gate.settle(passage, outcome)
            self._marks.after(passage.engine, passage.op, outcome, self.now())

    def close(self) -> None:
        """The last refit ends."""
        with self._lock:
            self._marks.close()


class RecordedEngine:
    """One upstream. A server that refuses connections and answers again is its next incarnation."""

    def __init__(self, recording: Recording, name: str, upstream: str, most_body: int = MOST_BODY) -> None:
        self.recording, self.name, self.upstream = recording, name, upstream.rstrip("/")
        self.most_body = most_body
        self.incarnation = 0
        self._gone = False

    def arrives(self, method: str, target: bytes) -> RecordedVisit:
        """A request's head has come in."""
        return RecordedVisit(self, method, target)

    def seen(self, ending: Ending) -> None:
        """How a call ended says whether anybody is there."""
        self._gone = self._gone or ending == "refused"

    def look(self) -> None:
        """Before a call is written down: whether a server that was gone is back."""
        if self._gone and _listens(self.upstream):
            self._gone = False
            self.incarnation += 1
            self.recording.gate.fact("born", {}, engine=self.name, incarnation=self.incarnation)


class RecordedVisit:
    """One exchange with one engine."""

    def __init__(self, engine: RecordedEngine, method: str, target: bytes) -> None:
        path, _, query = target.partition(b"?")
        keeping = engine.recording.keeping
        self._engine, self._method = engine, method
        self._op = keeping.path(unquote(path.decode("latin-1")))
        self._query = keeping.query(dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)))
        self._request, self._reply = Bounded(engine.most_body), Bounded(engine.most_body)
        self._status, self._media = 0, ""
        self._passage: Passage | None = None

    def asked(self, part: bytes) -> None:
        """A piece of the request's body."""
        self._request.add(part)

    def admit(self) -> None:
        """Write it down."""
        self._engine.look()
        body = self._engine.recording.keeping.request(self._op, self._request.whole, self._request.size)
        self._passage = self._engine.recording.admit(self._engine, self._op, self._method, self._query, body)

    def head(self, status: int, media: str) -> None:
        """The answer begins."""
        self._status, self._media = status, media

    def answered(self, part: bytes) -> None:
        """A piece of the answer's body."""
        self._reply.add(part)

    def settle(self, ending: Ending) -> None:
        """Write its end down; a request that never was whole has none."""
        if ending != "reply":
            self._engine.seen(ending)
        passage, self._passage = self._passage, None
        if passage is None:
            return
        elapsed = self._engine.recording.now() - passage.t
        if ending == "reply":
            keeping, size = self._engine.recording.keeping, self._reply.size
            body = keeping.reply(self._op, self._status, self._media, self._reply.whole, size)
            outcome = Outcome(ending="reply", status=self._status, body=body, elapsed_s=elapsed)
        else:
            outcome = Outcome(ending=ending, error=_TOLD[ending], elapsed_s=elapsed)
        self._engine.recording.settle(passage, outcome)


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=1.0):
            return True
    except OSError:
        return False


class Unrecorded:
    """A bare pass-through: the same stack, and nobody who listens. What the cost of recording is measured beside."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.rstrip("/")

    def arrives(self, method: str, target: bytes) -> _Nobody:
        """A request's head has come in."""
        return _Nobody()


class _Nobody:
    def asked(self, part: bytes) -> None: ...

    def admit(self) -> None: ...

    def head(self, status: int, media: str) -> None: ...

    def answered(self, part: bytes) -> None: ...

    def settle(self, ending: Ending) -> None: ...
