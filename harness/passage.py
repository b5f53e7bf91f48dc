"""Carrying a call through the gate, for every lane that can submit, wait, sleep and kill."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fakes.outcome import Outcome
from fakes.trace import Origin
from harness.gate import FaultGate, Passage


@dataclass(frozen=True)
class Request:
    """One call as its caller made it. `body` is a JSON value, or bytes to be sent as they are."""

    op: str
    body: Any = None
    method: str = "POST"
    query: Mapping[str, str] | None = None
    bearer: str | None = None


class Reply(Protocol):
    """A call under way."""

    @property
    def done(self) -> bool:
        """Whether its end is known."""
        ...

    def wait(self, timeout_s: float) -> Outcome:
        """Block until its end, at most `timeout_s` of the lane's clock (then ending "timeout")."""
        ...

    def cancel(self) -> None:
        """The caller goes away."""
        ...


class Link(Protocol):
    """The lane's own way to one engine."""

    def submit(self, request: Request, on_done: Callable[[Outcome], None] | None = None) -> Reply:
        """Send it; `on_done` is told the end at the moment at which its caller could know it."""
        ...

    def kill(self) -> None:
        """End the engine's process tree at once."""
        ...

    def now(self) -> float:
        """Seconds of the lane's clock."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let the lane's clock advance."""
        ...

    def spawn(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work` beside the caller; the returned function waits for its end."""
        ...


def carry(gate: FaultGate, link: Link, passage: Passage, request: Request, timeout_s: float) -> Outcome:
    """One synchronous call that was admitted as `passage`: fault, engine, fault, record."""
    deadline = link.now() + timeout_s

    def rest() -> float:
        return max(0.0, deadline - link.now())

    if not passage.deliver:
        if passage.kills:
            link.kill()
        if passage.hangs:
            link.sleep(rest())
        return gate.settle(passage, None)
    held = passage.delay("before")
    if held >= timeout_s:  # it reaches the engine after its caller gave up
        link.sleep(rest())
        outcome = gate.settle(passage, None)
        link.submit(request)
        return outcome
    if held:
        link.sleep(held)
    reply = link.submit(request)
    answer: Outcome | None = reply.wait(rest())
    if answer is not None and answer.ending == "timeout":
        reply.cancel()
    if passage.kills:
        link.kill()
    held = rest() if passage.hangs else passage.delay("after")
    if held:
        answer = answer if held <= rest() else None
        link.sleep(min(held, rest()))
    return gate.settle(passage, answer)


class Background:
    """A call beside its caller, who may look, wait, or give up when `timeout_s` since its start is over."""

    def __init__(self, gate: FaultGate, link: Link, passage: Passage, request: Request, timeout_s: float) -> None:
        self._gate, self._link, self._passage = gate, link, passage
        self._deadline = link.now() + timeout_s
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self._reply: Reply | None = None
        self._join: Callable[[], None] | None = None
        if passage.fault is None:
            self._reply = link.submit(request, self._settle)
        else:
            self._join = link.spawn(lambda: self._keep(carry(gate, link, passage, request, timeout_s)))

    @property
    def done(self) -> bool:
        """Whether its end is known."""
        return self._outcome is not None

    def result(self, timeout_s: float) -> Outcome:
        """Wait at most `timeout_s`, then ending "timeout"; given up for good once its own deadline is over."""
        if self._outcome is not None:
            return self._outcome
        if self._join is not None:
            self._join()
            assert self._outcome is not None
            return self._outcome
        assert self._reply is not None
        left = max(0.0, self._deadline - self._link.now())
        answer = self._reply.wait(min(timeout_s, left))
        if answer.ending != "timeout" or timeout_s >= left:
            self._settle(answer)
            if answer.ending == "timeout":
                self._reply.cancel()
        return self._outcome or answer

    def _keep(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _settle(self, answer: Outcome) -> None:
        with self._lock:
            if self._outcome is None:
                self._outcome = self._gate.settle(self._passage, answer)


class Delayed:
    """A background call that has not left yet."""

    def __init__(self, link: Link, after_s: float, start: Callable[[], Background]) -> None:
        self._call: Background | None = None

        def leave() -> None:
            link.sleep(after_s)
            self._call = start()

        self._join = link.spawn(leave)

    @property
    def done(self) -> bool:
        """Whether its end is known."""
        return self._call is not None and self._call.done

    def result(self, timeout_s: float) -> Outcome:
        """Wait until it has left, then as `Background.result`."""
        self._join()
        assert self._call is not None
        return self._call.result(timeout_s)


class GatedEngine:
    """The calls of an `EngineHandle` over a `Link`; a lane's handle adds the rest."""

    name: str
    incarnation: int

    def __init__(self, gate: FaultGate, link: Link, name: str, incarnation: int = 0) -> None:
        self._gate, self._link = gate, link
        self.name, self.incarnation = name, incarnation

    def call(
        self,
        op: str,
        body: Any = None,
        *,
        method: str = "POST",
        query: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        origin: Origin = "probe",
        bearer: str | None = None,
    ) -> Outcome:
        """One call; see `harness.lanes.base.EngineHandle`."""
        passage = self._admit(op, body, method, origin, query)
        return carry(self._gate, self._link, passage, Request(op, body, method, query, bearer), timeout_s)

    def start(
        self,
        op: str,
        body: Any = None,
        *,
        method: str = "POST",
        origin: Origin = "traffic",
        timeout_s: float = 600.0,
        bearer: str | None = None,
        after_s: float = 0.0,
    ) -> Background | Delayed:
        """One call in the background, which leaves its caller `after_s` seconds from now."""
        request = Request(op, body, method, None, bearer)

        def leave() -> Background:
            passage = self._admit(op, body, method, origin, None)
            return Background(self._gate, self._link, passage, request, timeout_s)

        return Delayed(self._link, after_s, leave) if after_s > 0 else leave()

    def sleep(self, seconds: float) -> None:
        """Let the lane's clock advance while the engine runs."""
        self._link.sleep(seconds)

    def kill(self) -> None:
        """End the engine's process tree at once, as the kernel's OOM killer would."""
        self._link.kill()

    def _admit(self, op: str, body: Any, method: str, origin: Origin, query: Mapping[str, str] | None) -> Passage:
        return self._gate.admit(
            engine=self.name,
            incarnation=self.incarnation,
            op=op,
            origin=origin,
            method=method,
            body=body,
            query=query,
        )
