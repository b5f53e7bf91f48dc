"""Memory tags, without a memory saver: the set is kept all the same, and it kills."""

from __future__ import annotations

from conformance.engine.pause import pause, resume
from conformance.engine.steps import VALIDATED, VALIDATED_ON_20, ask, running
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/mem")
RELEASE, RESUME = "release_memory_occupation", "resume_memory_occupation"


@scenarios.add("MEM-51", "MEM-52", "MEM-55", relation=VALIDATED)
def release_and_resume(bench: Bench) -> None:
    """All tags, twice; back; some tags; an unknown one."""
    e = bench.e0
    e.sleep(1.0)
    e.call(RELEASE, {})
    e.call(RELEASE, {})
    e.call(RESUME, {})
    e.call(RELEASE, {"tags": ["weights", "kv_cache"]})
    e.call(RESUME, {"tags": ["weights"]})
    e.call(RESUME, {"tags": ["kv_cache"]})
    e.call(RELEASE, {"tags": ["bogus"]})
    e.call(RESUME, {"tags": ["bogus"]})


@scenarios.add("MEM-56", relation=VALIDATED, versions=">=0.5.21")
def a_session_while_weights_are_released(bench: Bench) -> None:
    """Begin and end, nothing sent."""
    e = bench.e0
    e.sleep(1.0)
    e.call(RELEASE, {"tags": ["weights"]})
    e.call("begin_weight_update", {})
    e.call("end_weight_update", {})
    e.call(RESUME, {"tags": ["weights"]})


@scenarios.add("MEM-59", relation=VALIDATED)
def releasing_kv_drops_the_cache(bench: Bench) -> None:
    """A warm prompt, before and after."""
    e = bench.e0
    ask(bench, e, "warm")
    e.sleep(1.0)
    e.call(RELEASE, {"tags": ["kv_cache"]})
    e.call(RESUME, {"tags": ["kv_cache"]})
    ask(bench, e, "warm")


@scenarios.add("MEM-53", "ERR-51", relation=VALIDATED, fatal=True)
def resume_what_was_not_released(bench: Bench) -> None:
    """One tag was released, another one is resumed."""
    e = bench.e0
    e.sleep(1.0)
    e.call(RELEASE, {"tags": ["weights"]})
    e.call(RESUME, {"tags": ["kv_cache"]})
    e.call("model_info", method="GET")


@scenarios.add("MEM-54", "ERR-51", relation=VALIDATED, fatal=True)
def release_while_one_runs(bench: Bench) -> None:
    """Not paused."""
    e = bench.e0
    request = running(bench, e)
    e.call(RELEASE, {})
    e.call("model_info", method="GET")
    request.result(60.0)


@scenarios.add("MEM-57", relation=VALIDATED, versions=">=0.5.21")
def release_with_a_queue(bench: Bench) -> None:
    """Paused by retract; the queued request goes on after resume and continue."""
    e = bench.e0
    request = running(bench, e)
    pause(e, "retract")
    e.call(RELEASE, {})
    e.call(RESUME, {})
    resume(e)
    request.result(60.0)


@scenarios.add("MEM-58", "ERR-51", relation=VALIDATED_ON_20, versions="<0.5.21 || miles", fatal=True)
def release_with_a_queue_kills(bench: Bench) -> None:
    """Paused by retract: the queue counts as busy before 0.5.21."""
    e = bench.e0
    request = running(bench, e)
    pause(e, "retract")
    e.call(RELEASE, {})
    e.call("model_info", method="GET")
    request.result(60.0)
