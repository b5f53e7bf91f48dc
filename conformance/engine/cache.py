"""Flushing: when it is granted, what it drops, and what stays when nobody asked for it."""

from __future__ import annotations

from conformance.engine.pause import pause, resume
from conformance.engine.steps import VALIDATED, VALIDATED_ON_21, ask, begin, bucket, end, know, load, running
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/cache")


@scenarios.add("CACHE-5", "CACHE-51", "CACHE-62", relation=VALIDATED)
def idle(bench: Bench) -> None:
    """By POST and by GET, with a warm prompt; then with a negative timeout."""
    e = bench.e0
    ask(bench, e, "warm")
    e.sleep(1.0)
    e.call("flush_cache")
    ask(bench, e, "warm")
    e.sleep(1.0)
    e.call("flush_cache", method="GET")
    e.call("flush_cache", query={"timeout": "-1"})


@scenarios.add("CACHE-52", "CACHE-61", relation=VALIDATED)
def while_one_runs(bench: Bench) -> None:
    """At once, and with a short timeout."""
    e = bench.e0
    request = running(bench, e)
    e.call("flush_cache")
    e.call("flush_cache", query={"timeout": "0.1"})
    request.result(60.0)


def _while_held(bench: Bench, mode: str) -> None:
    e = bench.e0
    request = running(bench, e)
    pause(e, mode)
    e.call("flush_cache")
    resume(e)
    request.result(60.0)


@scenarios.add("CACHE-53", "CACHE-54", relation=VALIDATED)
def under_retract(bench: Bench) -> None:
    """With one request back in the queue."""
    _while_held(bench, "retract")


@scenarios.add("CACHE-55", relation=VALIDATED)
def under_in_place(bench: Bench) -> None:
    """With one request frozen."""
    _while_held(bench, "in_place")


@scenarios.add("CACHE-56", relation=VALIDATED)
def under_abort(bench: Bench) -> None:
    """After one request was aborted."""
    _while_held(bench, "abort")


@scenarios.add("CACHE-5", "CACHE-57", "CACHE-58", relation=VALIDATED)
def stale_and_flushed(bench: Bench) -> None:
    """A warm prompt after an update without flush, after a flush, and after an update that flushes."""
    e = bench.e0
    know(bench, e, "stale", "fresh")
    ask(bench, e, "stale")
    load(bench, e, 1, flush_cache=False)
    ask(bench, e, "stale")
    e.sleep(1.0)
    e.call("flush_cache")
    ask(bench, e, "stale")
    ask(bench, e, "fresh")
    e.sleep(1.0)
    load(bench, e, 0)
    ask(bench, e, "fresh")


def _flushing_update_in_place(bench: Bench) -> None:
    e = bench.e0
    request = running(bench, e)
    pause(e, "in_place")
    begin(bench, e)
    outcome = bucket(bench, e, 1, flush_cache=True)
    if outcome.ending == "reply":
        end(bench, e)
        resume(e)
    else:
        e.call("model_info", method="GET")
    request.result(60.0)


@scenarios.add("CACHE-59", relation=VALIDATED, versions=">=0.5.22")
def a_flushing_update_on_frozen_requests(bench: Bench) -> None:
    """Refused, with the weights in."""
    _flushing_update_in_place(bench)


@scenarios.add("CACHE-60", "ERR-51", relation=VALIDATED_ON_21, versions="<0.5.22 || miles", fatal=True)
def a_flushing_update_on_frozen_requests_kills(bench: Bench) -> None:
    """Fatal up to 0.5.21."""
    _flushing_update_in_place(bench)
