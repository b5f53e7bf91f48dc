"""LIVE: health under a pause, and deadlines that tell slow from silent."""

from __future__ import annotations

from conformance.judging import all_of, answered, every, op, said, wrong
from conformance.refits import Finding, Part, each_part, got, reported
from conformance.rules.make import engine, refit
from conformance.rules.pause import MODES
from conformance.view import BUCKETS, cargo, steps
from harness.history import History
from harness.rules import Verdict, held

HS = "entrypoints/http_server.py"
health = op("health", "health_generate")


def _unhealthy_after_20_s(history: History) -> Verdict:
    exercised = 0
    for call, state in steps(history):
        if call.op not in ("health", "health_generate") or state.paused not in MODES or call.outcome == "open":
            continue
        exercised += 1
        took = call.end_t - call.t
        if call.status != 503 or not 19.0 <= took <= 30.0:
            return wrong(call, ["503 after about 20 s"], exercised, f"{call.status} after {took:.1f} s")
    return held(exercised)


def _slow_is_not_silent(part: Part, history: History) -> Finding | bool:
    slow = [c for c in part.calls if ":delay" in c.fault]
    faults = [c for c in history.during(part.refit).calls_ if c.fault and ":delay" not in c.fault]
    if not slow or faults:
        return False
    if part.refit.ok is False:
        told = f"{reported(part.refit)}, when {got(slow[0])} after {slow[0].end_t - slow[0].t:.1f} s"
        deadline = float(part.refit.data.get("deadline_s", 60.0))
        slowness = slow[0].fault.partition("=")[2]
        allowed = f"a wait: this healthy engine takes {slowness} s for /{slow[0].op}, and the refit has {deadline:g} s"
        return allowed, told, str(slow[0])
    return None


def _silence_ends(part: Part, history: History) -> Finding | bool:
    silent = [c for c in part.calls if ":hang" in c.fault]
    if not silent:
        return False
    deadline = float(part.refit.data.get("deadline_s", 60.0))
    took = part.refit.end_t - part.refit.t
    if part.refit.ok is None or took > deadline + 1.0:
        told = f"after {took:.1f} s {reported(part.refit)}; {got(silent[0])}"
        return f"an end within {deadline:g} s", told, str(silent[0])
    if part.refit.ok and silent[0].op in BUCKETS:
        return "a refit that failed", f"{reported(part.refit)}, though {got(silent[0])}", str(silent[0])
    return None


def _not_twice(part: Part, history: History) -> Finding | bool:
    unknown = [c for c in part.buckets if c.outcome in ("indefinite", "open") or (c.status or 0) >= 500]
    if not unknown:
        return False
    for first in unknown:
        for again in part.buckets:
            if again.pos > first.pos and cargo(first) and cargo(again) == cargo(first):
                return "no second time for an update that may have started", "sent again", str(again)
    return None


RULES = (
    refit(
        "LIVE-1",
        "A slow but healthy update is waited for; one that never answers ends the refit within its deadline.",
        every(each_part(_slow_is_not_silent), each_part(_silence_ends)),
        ["PrimeIntellect-ai/prime-rl#1119", "PrimeIntellect-ai/prime-rl#2759"],
        follows=["LIVE-2", "ERR-1"],
        mend=(
            "give an update call most of what is left of the refit's deadline, not a fixed few seconds, and raise "
            "when that is over"
        ),
    ),
    refit(
        "LIVE-2",
        "An update call that may have started is not sent again.",
        each_part(_not_twice),
        ["PrimeIntellect-ai/prime-rl#3599"],
        mend=(
            "retry only what surely did not start; after a time-out, a dropped connection or a 5xx of an update, fail "
            "the refit instead"
        ),
    ),
    engine(
        "LIVE-51",
        "A running engine is healthy: 200 with an empty body.",
        answered(all_of(health, lambda c, s: s.paused == "" and not s.released), said(200)),
        [f"{HS}:721@0.5.23"],
        mend="look at health_generate: a probe of one token through the scheduler, then a 200 with nothing in it",
    ),
    engine(
        "LIVE-52",
        "Paused, in any mode, health answers 503 after 20 s, and the engine lives.",
        _unhealthy_after_20_s,
        [f"{HS}:721@0.5.23", "observed 0.5.12.post1 to 0.5.23 on CPU"],
        mend="look at health_generate: its probe waits behind the pause until its 20 s time-out, a 503 and no kill",
    ),
    engine(
        "LIVE-53",
        "ready is 200 while running and 503 while paused.",
        every(
            answered(all_of(op("ready"), lambda c, s: s.paused == ""), said(200)),
            answered(all_of(op("ready"), lambda c, s: s.paused in MODES), said(503)),
        ),
        [f"{HS}:714@0.5.23", f"{HS}:662@0.5.20"],
        versions=">=0.5.20,!=miles",
        mend="look at /ready: it reads the pause flag, since 0.5.20",
    ),
    engine(
        "LIVE-54",
        "model_info is answered while paused and while a session is open.",
        every(
            answered(all_of(op("model_info"), lambda c, s: s.paused in MODES), said(200)),
            answered(all_of(op("model_info"), lambda c, s: s.paused == ""), said(200)),
        ),
        [f"{HS}:812@0.5.23"],
        mend="look at /model_info: it takes neither lock nor pause condition",
    ),
)
