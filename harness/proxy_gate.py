"""Gated urls: what a client says over HTTP to `Endpoint.url` is recorded and faulted as `Endpoint.request` is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

import msgspec

from fakes.outcome import Outcome
from harness.exchange import Answer, Asked, Ended
from harness.gate import FaultGate, Passage
from harness.proxy import Proxy

_LOST = {
    "dropped": "connection closed without an answer",
    "refused": "connection refused",
    "timeout": "the client went away",
}


class Target(Protocol):
    """One server behind a door: an engine of a lane, or anything that has a url."""

    name: str
    incarnation: int

    @property
    def url(self) -> str:
        """Where it listens now."""
        ...

    def kill(self) -> None:
        """End its process tree at once."""
        ...


class Doors:
    """The gated urls of one scenario, each made when it is first asked for. `scale`: real seconds per lane second.

    Every request is a call of origin sut, health polls too. A client's own deadline counts real seconds.
    """

    def __init__(self, gate: FaultGate, scale: float = 1.0) -> None:
        self._gate, self._scale = gate, scale
        self._proxy: Proxy | None = None
        self._urls: dict[str, str] = {}

    def url(self, target: Target) -> str:
        """The same for all incarnations of one target."""
        if target.name not in self._urls:
            if self._proxy is None:
                self._proxy = Proxy()
            self._urls[target.name] = self._proxy.open(GateKeeper(self._gate, target, self._scale))
        return self._urls[target.name]

    def sync(self) -> None:
        """Return when calls that their clients gave up are recorded as such."""
        if self._proxy is not None:
            self._proxy.sync()

    def close(self) -> None:
        """Unbind all of them; calls under way stay open in the history."""
        if self._proxy is not None:
            self._proxy.close()
        self._proxy, self._urls = None, {}


class GateKeeper:
    """`harness.exchange.Keeper` over the gate."""

    def __init__(self, gate: FaultGate, target: Target, scale: float = 1.0) -> None:
        self._gate, self._target, self._scale = gate, target, scale

    def server(self) -> str:
        """The present incarnation's url."""
        return self._target.url.rstrip("/")

    def kill(self) -> None:
        """End the present incarnation."""
        self._target.kill()

    def admit(self, asked: Asked) -> GatedVisit:
        """Record it, and see which fault it meets."""
        path, _, query = asked.target.partition(b"?")
        passage = self._gate.admit(
            engine=self._target.name,
            incarnation=self._target.incarnation,
            op=unquote(path.decode("latin-1")).removeprefix("/"),
            origin="sut",
            method=asked.method,
            body=_json(asked.body, asked.body),
            query=dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)),
        )
        return GatedVisit(self._gate, passage, self._scale)


class GatedVisit:
    """`harness.exchange.Visit` over a passage."""

    def __init__(self, gate: FaultGate, passage: Passage, scale: float) -> None:
        self._gate, self._passage, self._scale = gate, passage, scale
        self.deliver, self.kills, self.hangs = passage.deliver, passage.kills, passage.hangs
        self.plain = passage.fault is None

    def delay(self, when: str) -> float:
        """Real seconds."""
        return self._passage.delay(when) * self._scale

    def settle(self, ended: Ended) -> Ended:
        """Record what the client sees, and give it back."""
        outcome = None if ended == "timeout" and not self.plain else self._outcome(ended)
        seen = self._gate.settle(self._passage, outcome)
        return ended if seen is outcome else _answer(seen)

    def _outcome(self, ended: Ended) -> Outcome:
        elapsed = self._gate.now() - self._passage.t
        if isinstance(ended, Answer):
            return Outcome(ending="reply", status=ended.status, body=_body(ended), elapsed_s=elapsed)
        return Outcome(ending=ended, error=_LOST[ended], elapsed_s=elapsed)


def _json(body: bytes, other: Any) -> Any:
    """Its JSON value, None if it is empty, `other` if it is none."""
    try:
        return msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return other


def _body(answer: Answer) -> Any:
    """As `fakes.outcome.Outcome` has it."""
    headers = dict(answer.headers)
    text = answer.body.decode("utf-8", "replace")
    if headers.get(b"content-type", b"").startswith(b"application/json") and b"content-encoding" not in headers:
        return _json(answer.body, text)
    return text or None


def _answer(seen: Outcome) -> Ended:
    if seen.ending != "reply":
        return seen.ending
    assert seen.status is not None
    if isinstance(seen.body, Mapping):
        return Answer(seen.status, ((b"content-type", b"application/json"),), msgspec.json.encode(seen.body))
    media = ((b"content-type", b"text/plain; charset=utf-8"),)
    return Answer(seen.status, media, b"" if seen.body is None else str(seen.body).encode())
