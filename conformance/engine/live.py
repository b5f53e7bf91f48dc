"""Health, readiness and information, while running and while paused."""

from __future__ import annotations

from conformance.engine.pause import pause, resume
from conformance.engine.steps import VALIDATED
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/live")


@scenarios.add("LIVE-51", "LIVE-54", relation=VALIDATED)
def running_and_paused(bench: Bench) -> None:
    """Both health routes, and model_info before and during a pause."""
    e = bench.e0
    e.call("health", method="GET")
    e.call("health_generate", method="GET")
    e.call("model_info", method="GET")
    pause(e, "retract")
    e.call("model_info", method="GET")
    resume(e)
    e.call("health", method="GET")


@scenarios.add("LIVE-52", relation=VALIDATED)
def health_while_paused(bench: Bench) -> None:
    """503 after 20 seconds, and healthy again afterwards."""
    e = bench.e0
    pause(e, "retract")
    e.call("health", method="GET", timeout_s=60.0)
    resume(e)
    e.call("health", method="GET", timeout_s=60.0)


@scenarios.add("LIVE-53", relation=VALIDATED, versions=">=0.5.20,!=miles")
def ready(bench: Bench) -> None:
    """Before, during and after a pause."""
    e = bench.e0
    e.call("health", method="GET")
    e.call("ready", method="GET")
    pause(e, "in_place")
    e.call("ready", method="GET")
    resume(e)
    e.call("ready", method="GET")
