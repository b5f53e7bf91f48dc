"""/get_load, which routers and some trainers poll: requests and tokens, up to 0.5.20."""

from __future__ import annotations

import pytest

from fakes.engine.profiles import ORDER
from tests.fakes.engine.control.driver import PROMPT, Driver, generate_body

VERSIONS = ("0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "miles")


def load(engine: Driver, timeout: float = 5.0) -> dict[str, int]:
    reply = engine.call("get_load", method="GET", timeout=timeout)
    assert reply.status == 200, reply
    (one,) = reply.body
    assert list(one) == ["dp_rank", "num_reqs", "num_waiting_reqs", "num_tokens", "num_pending_tokens", "ts_tic"]
    return {name.removeprefix("num_"): value for name, value in one.items() if name.startswith("num_")}


@pytest.mark.parametrize("version", ORDER)
def test_the_route_went_with_0_5_21(version: str) -> None:
    status = Driver(version).call("get_load", method="GET").status
    assert status == (200 if version in VERSIONS else 404)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_then_one_that_runs_and_one_that_waits_then_nothing(version: str) -> None:
    nothing = {"reqs": 0, "waiting_reqs": 0, "tokens": 0, "pending_tokens": 0}
    engine = Driver(version, max_running_requests=1)
    assert load(engine) == nothing
    calls = [engine.start("generate", generate_body(20)) for _ in range(2)]
    engine.advance(0.05)
    busy = load(engine)
    assert (busy["reqs"], busy["waiting_reqs"], busy["pending_tokens"]) == (2, 1, len(PROMPT))
    assert busy["tokens"] > busy["pending_tokens"] + len(PROMPT)
    for call in calls:
        assert engine.result(call).ok
    engine.advance(1.0)
    assert load(engine) == nothing


@pytest.mark.parametrize("version", VERSIONS)
def test_a_blocked_scheduler_is_asked_in_vain_by_0_5_12_alone(version: str) -> None:
    engine = Driver(version)
    engine.hang.add("ReadDisk")
    engine.start("update_weights_from_disk", {"model_path": "/x"})
    reply = engine.call("get_load", method="GET", timeout=5.0)
    assert reply.ending == ("timeout" if version == "0.5.12.post1" else "reply")


def test_what_was_published_before_a_pause_stays() -> None:
    """managers/scheduler.py:4602@0.5.20: after a step, or without work; a paused loop does neither."""
    engine = Driver("0.5.20")
    engine.start("generate", generate_body(80))
    engine.advance(0.1)
    running = load(engine)
    assert running["reqs"] == 1
    engine.call("pause_generation", {"mode": "retract"})
    assert load(engine)["waiting_reqs"] == 0, "though it waits now"
