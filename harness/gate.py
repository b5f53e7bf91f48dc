"""The one place between a client and an engine: calls are recorded here, and faults are applied here.

`FaultGate` has no transport. A front says `passage = gate.admit(...)` when a call leaves its caller, does what
`passage` says, and hands what the caller will see to `gate.settle(passage, outcome)`. `harness.passage` has the one
loop that does so for lanes that can submit, wait and sleep; a proxy does the same over sockets.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fakes.outcome import Outcome
from fakes.trace import Complete, Fact, Invoke, Origin, Source, TraceWriter, Trainer
from harness.faults import Fault

LONG_TEXT = 512  # characters; longer strings in a request are replaced by their digest
LONG_BODY = 65536  # bytes of JSON; longer replies are replaced by their digest

Describe = Callable[[str], Mapping[str, Any]]


def payload_digest(payload: str | bytes) -> str:
    """The name of a payload in a history: the first 16 hex digits of the sha256 of its text (UTF-8)."""
    data = payload.encode() if isinstance(payload, str) else payload
    return hashlib.sha256(data).hexdigest()[:16]


def digested(value: Any, describe: Describe | None = None) -> Any:
    """`value` with every long string or bytes replaced by {"len", "sha256"} and what `describe(text)` adds."""
    if isinstance(value, str | bytes):
        if isinstance(value, str) and len(value) <= LONG_TEXT:
            return value
        more = dict(describe(value)) if describe and isinstance(value, str) else {}
        return {"len": len(value), "sha256": payload_digest(value), **more}
    if isinstance(value, Mapping):
        return {str(key): digested(item, describe) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [digested(item, describe) for item in value]
    return value


@dataclass(frozen=True)
class Passage:
    """One call on its way through the gate.

    `fault` is None for nearly all. `deliver`: hand it to the engine. `early`: what the caller is told instead, when the
    gate keeps it back; None when the engine's answer decides.
    """

    call: int
    engine: str
    incarnation: int
    op: str
    origin: Origin
    t: float
    fault: Fault | None = None

    @property
    def deliver(self) -> bool:
        """Whether the engine sees it."""
        return self.fault is None or self.fault.when == "after" or self.fault.action == "delay"

    @property
    def kills(self) -> bool:
        """Whether the engine dies of it."""
        return self.fault is not None and self.fault.action == "die"

    @property
    def hangs(self) -> bool:
        """Whether its caller never gets an answer."""
        return self.fault is not None and self.fault.action == "hang"

    def delay(self, when: str) -> float:
        """Seconds of the lane's clock to hold the call back before, or its answer after."""
        return self.fault.seconds if self.fault and self.fault.action == "delay" and self.fault.when == when else 0.0


class FaultGate:
    """Records calls into `trace` and applies `faults`; `now` is the lane's clock in seconds.

    A fault's `nth` counts the calls of origin sut to (engine, op) from 1, over all incarnations. Safe for threads.
    """

    def __init__(
        self,
        trace: TraceWriter,
        now: Callable[[], float],
        faults: Iterable[Fault] = (),
        describe: Describe | None = None,
    ) -> None:
        self.trace = trace
        self.now = now
        self.faults = tuple(faults)
        self.describe = describe
        self.applied: list[Fault] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._awaited: dict[tuple[str, str, int], list[Callable[[], None]]] = {}
        self._calls = 0
        self._lock = threading.Lock()

    def plant(self, fault: Fault) -> None:
        """Add a fault; its `nth` counts from now on ("*" counts from the engine that was called most)."""
        with self._lock:
            counts = [n for (engine, op), n in self._counts.items() if op == fault.op and fault.engine in (engine, "*")]
            self.faults += (msgspec.structs.replace(fault, nth=fault.nth + max(counts, default=0)),)

    def when(self, engine: str, op: str, nth: int, act: Callable[[], None]) -> None:
        """Do `act` once the nth call of the client to (engine, op), from now on, is recorded and not yet delivered.

        It is done on the caller's thread, so it must not wait.
        """
        with self._lock:
            key = (engine, op, nth + self._counts.get((engine, op), 0))
            self._awaited.setdefault(key, []).append(act)

    def admit(
        self,
        *,
        engine: str,
        incarnation: int,
        op: str,
        origin: Origin,
        method: str = "POST",
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> Passage:
        """A call leaves its caller: record it, and say what is to be done with it. `op` has no leading slash.

        Query parameters stand in the recorded request as "?name", beside the fields of the body.
        """
        with self._lock:
            self._calls += 1
            call, t, fault = self._calls, self.now(), None
            due: list[Callable[[], None]] = []
            if origin == "sut":
                nth = self._counts[engine, op] = self._counts.get((engine, op), 0) + 1
                fault = next((f for f in self.faults if f.matches(engine, op, nth)), None)
                if fault is not None:
                    self.applied.append(fault)
                due = self._awaited.pop((engine, op, nth), due)
            self.trace.write(
                Invoke(
                    engine=engine,
                    incarnation=incarnation,
                    t=t,
                    call=call,
                    origin=origin,
                    op=op,
                    method=method,
                    request=_request(body, query, self.describe),
                    fault=str(fault) if fault else "",
                )
            )
        for act in due:
            act()
        return Passage(call, engine, incarnation, op, origin, t, fault)

    def settle(self, passage: Passage, outcome: Outcome | None) -> Outcome:
        """A call ends for its caller: turn the engine's answer into what the caller sees, record and return that.

        `outcome` is None where the engine was not asked. Where the answer was changed, the engine's own is kept as the
        harness's fact "real_answer".
        """
        seen = _as_seen(passage, outcome, self.now() - passage.t)
        with self._lock:
            t = self.now()
            if outcome is not None and seen is not outcome:
                data = {"call": passage.call, "ending": outcome.ending, "status": outcome.status}
                self.trace.write(
                    Fact(
                        engine=passage.engine,
                        incarnation=passage.incarnation,
                        t=t,
                        source="harness",
                        name="real_answer",
                        data=data,
                    )
                )
            self.trace.write(
                Complete(
                    engine=passage.engine,
                    incarnation=passage.incarnation,
                    t=t,
                    call=passage.call,
                    outcome=_ended(seen),
                    status=seen.status,
                    body=_short(seen.body),
                    error="" if seen.ending == "reply" else _error(seen),
                )
            )
        return seen

    def fact(
        self,
        name: str,
        data: Mapping[str, Any],
        *,
        engine: str = "",
        incarnation: int = 0,
        source: Source = "harness",
    ) -> None:
        """Record something that the harness or a probe knows."""
        with self._lock:
            record = Fact(
                engine=engine, incarnation=incarnation, t=self.now(), source=source, name=name, data=dict(data)
            )
            self.trace.write(record)

    def trainer(self, name: str, rank: int, data: Mapping[str, Any]) -> None:
        """Record something that a trainer rank did."""
        with self._lock:
            self.trace.write(Trainer(t=self.now(), rank=rank, name=name, data=dict(data)))


def _request(body: Any, query: Mapping[str, str] | None, describe: Describe | None) -> Any:
    kept = digested(body, describe)
    if not query:
        return kept
    asked = {f"?{name}": value for name, value in query.items()}
    return {**asked, **kept} if isinstance(kept, Mapping) else asked | ({} if kept is None else {"body": kept})


def _as_seen(passage: Passage, outcome: Outcome | None, elapsed_s: float) -> Outcome:
    fault = passage.fault
    if fault is None or fault.action == "delay":
        if outcome is None:
            return Outcome(ending="timeout", error="no answer within the deadline", elapsed_s=elapsed_s)
        return outcome
    if fault.action in ("drop", "die"):
        return Outcome(ending="dropped", error="connection closed without an answer", elapsed_s=elapsed_s)
    if fault.action == "hang":
        return Outcome(ending="timeout", error="no answer within the deadline", elapsed_s=elapsed_s)
    if fault.action == "success_false":
        body = {"success": False, "message": "injected failure"}
        return Outcome(ending="reply", status=200, body=body, elapsed_s=elapsed_s, value=(False, "injected failure"))
    if fault.action == "status400":
        body = {"success": False, "message": "injected failure"}
        return Outcome(ending="reply", status=400, body=body, elapsed_s=elapsed_s, value=(False, "injected failure"))
    return Outcome(ending="reply", status=500, body="Internal Server Error", elapsed_s=elapsed_s)


def _ended(outcome: Outcome) -> Any:
    if outcome.ending in ("dropped", "timeout"):
        return "indefinite"
    return "ok" if outcome.ok else "fail"


def _error(outcome: Outcome) -> str:
    """The ending first, so that a judge can tell a death from silence."""
    detail = outcome.error.removeprefix(outcome.ending).lstrip(": ")
    return f"{outcome.ending}: {detail}" if detail else outcome.ending


def _short(body: Any) -> Any:
    try:
        data = msgspec.json.encode(body, enc_hook=str)
    except (TypeError, ValueError):
        return str(body)[:LONG_TEXT]
    return body if len(data) <= LONG_BODY else {"len": len(data), "sha256": payload_digest(data)}
