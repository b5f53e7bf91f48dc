"""Refits in which one thing goes wrong, and the one after, in which nothing does."""

from __future__ import annotations

from conformance.engine.steps import BUCKET
from conformance.refit.steps import VALIDATED, prepare, question, restart, restart_dead
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/faults", side="refit")


def fail_then_heal(bench: Bench, *faults: str, engines: int = 1, deadline_s: float = 60.0) -> None:
    """A good refit, one with the faults, a good one again; questions after each."""
    handles = prepare(bench, engines)
    bench.refit(1)
    question(bench, handles, "fresh-1")
    bench.fault(*faults)
    bench.refit(2, deadline_s=deadline_s)
    question(bench, handles, "fresh-2")
    restart_dead(bench, handles)
    bench.refit(3)
    question(bench, handles, "fresh-3")


@scenarios.add("SESS-3", "PAUSE-1", "VER-4", "PART-1", "ERR-1", relation=VALIDATED)
def the_second_bucket_is_refused(bench: Bench) -> None:
    """By a 400 that says why."""
    fail_then_heal(bench, f"e0:{BUCKET}#2:before:status400")


@scenarios.add("PART-1", "VER-4", "ERR-1", relation=VALIDATED)
def the_last_answer_is_lost(bench: Bench) -> None:
    """The engine takes a bucket and the connection drops."""
    fail_then_heal(bench, f"e0:{BUCKET}#2:after:drop")


@scenarios.add("ERR-1", "PART-1", relation=VALIDATED)
def success_false_with_200(bench: Bench) -> None:
    """The status alone says nothing."""
    fail_then_heal(bench, f"e0:{BUCKET}#1:before:success_false")


@scenarios.add("PAUSE-1", "ERR-1", relation=VALIDATED, lanes=["fake", "http", "sglang-cpu"])
def one_of_two_is_not_paused(bench: Bench) -> None:
    """The second engine refuses to pause; the first one is paused."""
    fail_then_heal(bench, "e1:pause_generation#1:before:status500", engines=2)


@scenarios.add("SESS-71", "SESS-3", "ERR-1", relation=VALIDATED, versions=">=0.5.21 || miles")
def begin_is_refused(bench: Bench) -> None:
    """With a 400: nothing was opened, so nothing is ended."""
    fail_then_heal(bench, "e0:begin_weight_update#1:before:status400")


@scenarios.add("SESS-3", "PAUSE-1", "ERR-1", relation=VALIDATED, versions=">=0.5.21 || miles")
def begin_fails(bench: Bench) -> None:
    """Without an effect."""
    fail_then_heal(bench, "e0:begin_weight_update#1:before:status500")


@scenarios.add("SESS-3", "PAUSE-1", "ERR-1", relation=VALIDATED, versions=">=0.5.21")
def end_is_lost(bench: Bench) -> None:
    """The session is still open when the next refit begins."""
    fail_then_heal(bench, "e0:end_weight_update#1:before:drop")


@scenarios.add("VERIF-1", "PART-1", "ERR-1", "SESS-3", relation=VALIDATED, lanes=["fake", "http", "sglang-cpu"])
def one_of_two_dies(bench: Bench) -> None:
    """In the middle of a refit; its next incarnation takes part in the one after."""
    fail_then_heal(bench, f"e1:{BUCKET}#1:before:die", engines=2)


@scenarios.add("VERIF-1", "VER-4", relation=VALIDATED)
def an_engine_is_replaced(bench: Bench) -> None:
    """Killed between two refits; its next incarnation comes up with the weights that it was launched with."""
    (e,) = prepare(bench, 1)
    bench.refit(1)
    question(bench, [e], "fresh-1")
    e.kill()
    restart(bench, e)
    bench.refit(2)
    question(bench, [e], "fresh-2")


class Interrupted(BaseException):
    """What a signal or a cancelled task raises in the middle of a call: no Exception."""


@scenarios.add(
    "PAUSE-1", "PART-1", "SESS-3", relation="fake only: the call has to be interrupted in process", lanes=["fake"]
)
def a_transfer_is_interrupted(bench: Bench) -> None:
    """While its second bucket is on its way; the refit after it heals."""
    (e,) = prepare(bench, 1)
    bench.refit(1)
    question(bench, [e], "fresh-1")

    def interrupt() -> None:
        raise Interrupted("by the test")

    bench.when(e, BUCKET, 2, interrupt)
    bench.refit(2)
    question(bench, [e], "fresh-2")
    bench.refit(3)
    question(bench, [e], "fresh-3")


@scenarios.add("PAUSE-2", relation=VALIDATED)
def continue_is_dropped(bench: Bench) -> None:
    """Before the engine sees it."""
    fail_then_heal(bench, "e0:continue_generation#1:before:drop")


@scenarios.add("CACHE-1", relation=VALIDATED)
def not_idle_yet(bench: Bench) -> None:
    """Three flushes are refused."""
    fail_then_heal(bench, *[f"e0:flush_cache#{n}:before:status400" for n in (1, 2, 3)])


@scenarios.add("CACHE-1", "PAUSE-1", relation=VALIDATED)
def never_idle(bench: Bench) -> None:
    """No flush is granted before the deadline."""
    fail_then_heal(bench, *[f"e0:flush_cache#{n}:before:status400" for n in range(1, 200)], deadline_s=20.0)


@scenarios.add("LIVE-1", "LIVE-2", relation=VALIDATED)
def slow_then_silent(bench: Bench) -> None:
    """An update that takes 10 of 60 seconds; then one that never answers."""
    handles = prepare(bench, 1)
    bench.fault(f"e0:{BUCKET}#1:before:delay=10")
    bench.refit(1, deadline_s=60.0)
    question(bench, handles, "fresh-1")
    bench.fault(f"e0:{BUCKET}#1:after:hang")
    bench.refit(2, deadline_s=20.0)
    question(bench, handles, "fresh-2")
    bench.refit(3)
    question(bench, handles, "fresh-3")


@scenarios.add("LOCK-2", "PAUSE-1", relation=VALIDATED, versions=">=0.5.21")
def begin_waits_for_ever(bench: Bench) -> None:
    """As an update does that waits for a lock which nobody gives back."""
    fail_then_heal(bench, "e0:begin_weight_update#1:before:hang", deadline_s=20.0)


@scenarios.add("LOCK-2", "LIVE-2", relation=VALIDATED)
def a_bucket_waits_for_ever(bench: Bench) -> None:
    """The same for the update itself."""
    fail_then_heal(bench, f"e0:{BUCKET}#1:before:hang", deadline_s=20.0)
