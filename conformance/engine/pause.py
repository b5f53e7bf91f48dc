"""Pausing: what is answered, and what becomes of running and of new requests."""

from __future__ import annotations

from conformance.engine.steps import VALIDATED, running
from harness.bench import Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/pause")


def pause(engine: EngineHandle, mode: str) -> None:
    """Pause in `mode`."""
    engine.call("pause_generation", {"mode": mode})


def resume(engine: EngineHandle) -> None:
    """Continue."""
    engine.call("continue_generation", {})


@scenarios.add("PAUSE-51", "PAUSE-52", relation=VALIDATED)
def every_mode_twice(bench: Bench) -> None:
    """Continue without a pause, then each mode, again, and back; at last a mode that does not exist."""
    e = bench.e0
    resume(e)
    for mode in ("abort", "retract", "in_place"):
        pause(e, mode)
        pause(e, mode)
        resume(e)
    e.call("pause_generation", {"mode": "bogus"})


def _with_one_running(bench: Bench, mode: str) -> None:
    e = bench.e0
    request = running(bench, e)
    pause(e, mode)
    e.sleep(0.5)
    resume(e)
    request.result(60.0)


@scenarios.add("PAUSE-53", relation=VALIDATED)
def abort_with_one_running(bench: Bench) -> None:
    """Mode abort."""
    _with_one_running(bench, "abort")


@scenarios.add("PAUSE-54", relation=VALIDATED)
def retract_with_one_running(bench: Bench) -> None:
    """Mode retract."""
    _with_one_running(bench, "retract")


@scenarios.add("PAUSE-55", relation=VALIDATED)
def in_place_with_one_running(bench: Bench) -> None:
    """Mode in_place."""
    _with_one_running(bench, "in_place")


@scenarios.add("PAUSE-56", relation=VALIDATED)
def a_new_request_while_paused(bench: Bench) -> None:
    """It arrives in each mode, waits, and is served after continue."""
    e = bench.e0
    for mode in ("abort", "retract", "in_place"):
        pause(e, mode)
        late = bench.traffic(e, f"late-{mode}", n=4)
        e.sleep(0.5)
        resume(e)
        late.result(60.0)
