"""Judges made of small parts: which calls a rule speaks of, and which answers it allows.

`answered(when, allowed...)` is most of the engine side: every call that `when` selects must get one of the allowed
answers. Calls that a fault touched are left out: they say nothing about the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from conformance.view import State, died, steps
from harness.history import Call, History
from harness.rules import Verdict, held, violated

Judge = Callable[[History], Verdict]
When = Callable[[Call, State], bool]


@dataclass(frozen=True)
class Answer:
    """One allowed answer: how it reads, and the test."""

    text: str
    test: Callable[[Call], bool]


def said(status: int, message: str = "", *, contains: str = "", body: Any = ...) -> Answer:
    """A reply with this status and, where given, exactly this message, a part of it, or exactly this body."""
    parts = [str(status)]
    if message:
        parts.append(repr(message))
    if contains:
        parts.append(f"... {contains} ...")
    if body is not ...:
        parts.append(repr(body))

    def test(call: Call) -> bool:
        if call.status != status:
            return False
        if message and call.message.strip() != message.strip():
            return False
        if contains and contains not in call.message:
            return False
        return body is ... or call.body == body

    return Answer(" ".join(parts), test)


DIES = Answer("no reply: the connection drops", died)


def actual(call: Call) -> str:
    """What a call got, in a few words."""
    if call.status is None:
        return call.error or call.outcome
    return f"{call.status} {call.message[:160]}".strip()


def wrong(call: Call, allowed: Iterable[str], exercised: int, what: str = "") -> Verdict:
    """Violated at this call."""
    return violated(allowed=allowed, actual=what or actual(call), where=str(call), exercised=exercised)


def answered(when: When, *allowed: Answer) -> Judge:
    """Every call that `when` selects is answered as allowed."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for call, state in steps(history):
            if state.dead or call.outcome == "open" or not when(call, state):
                continue
            exercised += 1
            if not any(answer.test(call) for answer in allowed):
                return wrong(call, [a.text for a in allowed], exercised)
        return held(exercised)

    return judge


def every(*judges: Judge) -> Judge:
    """All parts of a rule: violated as soon as one is, held only when each was exercised and held."""

    def judge(history: History) -> Verdict:
        verdicts = [part(history) for part in judges]
        for verdict in verdicts:
            if verdict.status in ("violated", "unsupported"):
                return verdict
        return held(min(v.exercised for v in verdicts))

    return judge


def either(*judges: Judge) -> Judge:
    """Parts that need not all be exercised: violated as soon as one is, held as soon as one was exercised."""

    def judge(history: History) -> Verdict:
        verdicts = [part(history) for part in judges]
        for verdict in verdicts:
            if verdict.status == "violated":
                return verdict
        return held(sum(v.exercised for v in verdicts))

    return judge


def op(*names: str) -> When:
    """Calls of these operations."""
    return lambda call, _state: call.op in names


def all_of(*parts: When) -> When:
    """All conditions."""
    return lambda call, state: all(part(call, state) for part in parts)


def session(value: str) -> When:
    """The session is known to be open or closed."""
    return lambda _call, state: state.session == value


def paused(*modes: str) -> When:
    """Paused in one of these modes; "" means running."""
    return lambda _call, state: state.paused in modes


def busy(call: Call, state: State) -> bool:
    """A request that a scheduler has was under way from the call's beginning to its end, or to the engine's."""
    return state.busy_until > call.end_pos or (state.busy_until >= 0 and died(call))


def idle(call: Call, state: State) -> bool:
    """No scheduler has had a request for half a second: a response that was seen does not yet mean idle."""
    return state.busy_until < 0 and (state.quiet_since == 0.0 or call.t - state.quiet_since >= 0.5)


def arg(name: str, *values: Any) -> When:
    """A request field has one of these values (None: absent)."""
    return lambda call, _state: call.arg(name) in values


def later(history: History, call: Call, op_name: str | None = None) -> Iterator[Call]:
    """Calls to the same incarnation that left after `call` had ended."""
    for other in history.calls_:
        near = other.engine == call.engine and other.incarnation == call.incarnation
        if near and call.before(other) and op_name in (None, other.op):
            yield other


def earlier(history: History, call: Call, op_name: str | None = None) -> Iterator[Call]:
    """Calls to the same incarnation that had ended when `call` left, latest first."""
    for other in reversed(history.calls_):
        near = other.engine == call.engine and other.incarnation == call.incarnation
        if near and other.before(call) and op_name in (None, other.op):
            yield other
