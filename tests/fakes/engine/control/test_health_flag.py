"""What a probe leaves behind: the flag that /ready and /ping read, and its own request."""

from __future__ import annotations

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from tests.fakes.engine.control.driver import Driver

GROUP = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g"}


@pytest.mark.parametrize("version", [v for v in ORDER if PROFILES[v].ready_route])
def test_ready_remembers_a_failed_probe_until_one_succeeds(version: str) -> None:
    """server_status stays UnHealthy when the engine runs again: only a probe looks (entrypoints/http_server.py:505)."""
    engine = Driver(version)
    assert engine.call("ready", method="GET").status == 200
    engine.call("pause_generation", {})
    engine.call("health", method="GET")
    engine.call("continue_generation", {})
    assert engine.call("ready", method="GET").status == 503
    assert engine.call("health", method="GET").status == 200
    assert engine.call("ready", method="GET").status == 200


@pytest.mark.parametrize("version", ORDER)
def test_a_probe_that_nobody_waits_for_any_more_is_forgotten_not_aborted(version: str) -> None:
    """Its rid is taken out of rid_to_state at once, so that its cancelled task finds nothing to abort
    (entrypoints/http_server.py:780@0.5.23): it runs when the scheduler is free again."""
    engine = Driver(version)
    engine.hang.add("Join")
    engine.start("init_weights_update_group", {**GROUP, "backend": "gloo"})
    assert engine.call("health", method="GET").status == 503
    engine.hang.clear()
    engine.finish_reads()
    engine.advance(1.0)
    (rid,) = {fact["rid"] for fact in engine.named("request")}
    assert rid.startswith("HEALTH_CHECK")
    assert [fact["event"] for fact in engine.named("request")] == ["queued", "running", "finished"]
