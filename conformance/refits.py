"""The refits of a history as the refit side judges them: what the client did to each engine, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from conformance.judging import Judge, actual
from conformance.view import BUCKET, BUCKETS, State, states
from harness.history import Call, History, Note, Refit
from harness.rules import Verdict, held, violated

SESSIONS = ">=0.5.21 || miles"


@dataclass(frozen=True)
class Part:
    """What the client did to one incarnation during one refit. `calls` are in the order in which they left."""

    refit: Refit
    engine: str
    incarnation: int
    calls: tuple[Call, ...]

    def op(self, *names: str) -> list[Call]:
        """Calls of these operations."""
        return [call for call in self.calls if call.op in names]

    @property
    def buckets(self) -> list[Call]:
        """The update calls, by tensor or by broadcast."""
        return self.op(*BUCKETS)

    @property
    def payload_buckets(self) -> list[Call]:
        """Those of the tensor path, which carry payloads."""
        return self.op(BUCKET)

    @property
    def where(self) -> str:
        """`refit 2 e0`."""
        return f"refit {self.refit.index} on {self.engine}"


def reported(refit: Refit) -> str:
    """What the client said of a refit: `the client reported success`, or the error that it raised."""
    if refit.ok is None:
        return "the client reported nothing: the refit never returned"
    if refit.ok:
        return "the client reported success"
    return f"the client reported {refit.error_type or 'an error'}: {refit.error[:160] or '(no text)'}"


def got(call: Call) -> str:
    """What came of one call: `POST /flush_cache to e0 got 400 Flush cache failed.`"""
    what = f"{call.method} /{call.op} to {call.engine}"
    return f"{what} never ended" if call.outcome == "open" else f"{what} got {actual(call)}"


def parts(history: History) -> Iterator[Part]:
    """Every refit on every incarnation that the client called in it."""
    for refit in history.refits():
        grouped: dict[tuple[str, int], list[Call]] = {}
        for call in history.during(refit).calls(origin="sut"):
            grouped.setdefault((call.engine, call.incarnation), []).append(call)
        for (engine, incarnation), calls in grouped.items():
            yield Part(refit, engine, incarnation, tuple(calls))


def fleet_parts(history: History) -> Iterator[Part]:
    """As `parts`, and an empty part for every engine that a refit never called, though it was not given up.

    The incarnation counts, not the name: one that came up before the refit began is to be called, whatever the client
    had with the one before.
    """
    seen: set[tuple[int, str, int]] = set()
    for part in parts(history):
        seen.add((part.refit.index, part.engine, part.incarnation))
        yield part
    for refit in history.refits():
        for engine in history.engines():
            known = _incarnation(history, engine, refit)
            part = Part(refit, engine, known, ())
            if (refit.index, engine, known) not in seen and not quarantined(history, part):
                yield part


def _incarnation(history: History, engine: str, refit: Refit) -> int:
    """The incarnation that was there when a refit began: the scenario tells of each birth, and calls tell too."""
    items = (item for item in history.timeline() if item.engine == engine and item.pos < refit.pos)
    return max((i.incarnation for i in items if isinstance(i, Call) or i.source != "core"), default=0)


Parts = Callable[[History], Iterator[Part]]
Finding = tuple[str, str, str] | None
"""What was allowed, what happened, where; None when all is well."""


def each_part(check: Callable[[Part, History], Finding | bool], over: Parts = parts) -> Judge:
    """Judge every refit on every engine that it called (`over=fleet_parts`: on every engine).

    `check` gives False where the rule does not speak of it, None where it holds, else the finding.
    """

    def judge(history: History) -> Verdict:
        exercised = 0
        for part in over(history):
            found = check(part, history)
            if found is False:
                continue
            exercised += 1
            if found is not None and found is not True:
                allowed, actual, where = found
                where = where if where.startswith(part.where) else f"{part.where}: {where}"
                return violated(allowed=[allowed], actual=actual, where=where, exercised=exercised)
        return held(exercised)

    return judge


def each_call(check: Callable[[Call, State, History], Finding | bool], *, origin: str = "sut") -> Judge:
    """Judge every call of the client (inside and between refits) with the state that was known when it left."""

    def judge(history: History) -> Verdict:
        before = states(history)
        exercised = 0
        for call in history.calls_:
            if call.origin != origin:
                continue
            found = check(call, before[call.id], history)
            if found is False:
                continue
            exercised += 1
            if found is not None and found is not True:
                allowed, actual, where = found
                return violated(allowed=[allowed], actual=actual, where=where, exercised=exercised)
        return held(exercised)

    return judge


def met_by_traffic(history: History, call: Call) -> bool:
    """Whether some request that was not the client's was under way when the refit of this call began."""
    for refit in history.refits():
        if refit.pos < call.pos < refit.end_pos:
            requests = history.calls("generate", engine=call.engine)
            return any(r.origin != "sut" and r.pos < refit.pos < r.end_pos for r in requests)
    return False


def quarantined(history: History, part: Part) -> bool:
    """Whether the client had given this incarnation up (ENGINE_LOST), or everything (TERMINAL), by the refit's end."""
    return any(_speaks_of(n, part) for n in history.trainer("ENGINE_LOST") if n.pos < part.refit.end_pos) or any(
        n.pos < part.refit.end_pos for n in history.trainer("TERMINAL")
    )


def set_aside(history: History, part: Part) -> bool:
    """Whether the client said that it keeps this incarnation from serving: lost, terminal, or held until a refit."""
    held_back = [n for n in history.trainer("ENGINE_HELD") if part.refit.pos < n.pos < part.refit.end_pos]
    return quarantined(history, part) or any(_speaks_of(n, part) for n in held_back)


def _speaks_of(note: Note, part: Part) -> bool:
    return note.get("engine") == part.engine and int(note.get("incarnation", 0)) == part.incarnation
