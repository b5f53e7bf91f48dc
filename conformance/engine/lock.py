"""The lock: an update among running requests, and one under a pause."""

from __future__ import annotations

from conformance.engine.pause import pause, resume
from conformance.engine.steps import BUCKET, VALIDATED, begin, bucket, end, running
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/lock")


@scenarios.add("LOCK-51", "LOCK-53", "LOCK-54", relation=VALIDATED)
def an_update_while_one_runs(bench: Bench) -> None:
    """The update waits; meanwhile a flush and an info are asked, and a late request arrives."""
    e = bench.e0
    begin(bench, e)
    request = running(bench, e)
    payloads = bench.payloads(e, 1)
    body = {"serialized_named_tensors": payloads, "load_format": "flattened_bucket", "flush_cache": False}
    update = e.start(BUCKET, body, origin="probe")
    e.sleep(0.05)
    e.call("flush_cache")
    e.call("model_info", method="GET")
    late = bench.traffic(e, "late", n=4)
    request.result(60.0)
    update.result(60.0)
    late.result(60.0)
    end(bench, e)


@scenarios.add("LOCK-52", relation=VALIDATED)
def an_update_under_a_pause(bench: Bench) -> None:
    """Retract and in_place; the held request goes on afterwards."""
    e = bench.e0
    for mode in ("retract", "in_place"):
        request = running(bench, e, f"held-{mode}")
        pause(e, mode)
        begin(bench, e)
        bucket(bench, e, 1, flush_cache=False)
        end(bench, e)
        resume(e)
        request.result(60.0)
