from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.errors import HarnessError, UsageError
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec
from harness.lanes.http import HttpLane, launch_options


@pytest.fixture(scope="module")
def lane():
    lane = HttpLane({"time_scale": "0.5"})
    yield lane
    lane.close()


@pytest.fixture
def stage(lane):
    trace = TraceWriter()
    trace.write(Header())
    gate = FaultGate(trace, lane.now)
    lane.begin(gate, 0)
    bench = Bench(lane, gate, EngineSpec("0.5.23"))

    def finish() -> History:
        return History.from_records(trace.records, *lane.finish())

    yield bench, finish
    lane.finish()


def test_a_server_is_updated_and_its_facts_are_merged_into_the_order_of_the_calls(stage):
    bench, finish = stage
    assert bench.load(bench.e0, 1, weight_version="one").ok
    bench.canary(bench.e0, "a", seed=1)
    history = finish()
    assert history.canaries()[0].matches()
    (update,) = history.calls("update_weights_from_tensor")
    (load,) = history.facts("load", source="core", rank=0)
    assert update.pos < load.pos < update.end_pos
    assert load.data["digest"] == update.request["serialized_named_tensors"][0]["sha256"]


def test_death_is_a_dropped_connection_then_refused_ones_and_nothing_is_left(stage, lane):
    bench, finish = stage
    engine = bench.e0
    process = psutil.Process(engine._process.pid)
    assert engine.call("slow_down", {"forward_sleep_time": 100.0}).ok  # or it is over before the kill comes
    running = bench.traffic(engine, "a", n=400)
    while '"name":"request"' not in lane._traces[0].read_text():  # it arrives; the test's own time limit ends it
        pass
    engine.kill()
    assert running.result(200.0).ending == "dropped"
    assert engine.call("health", method="GET").ending == "refused"
    assert not engine.alive
    engine.restart()
    bench.canary(engine, "a", seed=0)
    history = finish()
    assert [c.incarnation for c in history.calls()] == [0, 0, 0, 1]
    assert {n.incarnation for n in history.facts(source="core")} == {0, 1}
    assert history.canaries()[0].matches()
    assert not process.is_running()
    assert psutil.Process(lane.launcher.pid).children() == []


def test_a_call_that_takes_longer_than_its_caller_waits_is_a_timeout(stage):
    bench, finish = stage
    bench.e0.call("pause_generation", {"mode": "retract"})
    outcome = bench.e0.call("generate", {"input_ids": [9, 9, 9]}, timeout_s=0.5, origin="traffic")
    assert outcome.ending == "timeout"
    assert bench.e0.call("continue_generation", {}).ok
    history = finish()
    assert [c.outcome for c in history.calls("generate")] == ["indefinite"]


def test_raw_bytes_a_query_and_a_bearer_travel_as_they_are(stage):
    bench, _ = stage
    engine = bench.engine(admin_api_key="secret")
    assert engine.call("pause_generation", b"not json", bearer="secret").status == 400
    assert engine.call("flush_cache", query={"timeout": "-1"}, bearer="secret").status == 400
    assert engine.call("flush_cache").status in (401, 403)
    assert engine.call("flush_cache", bearer="secret").body.startswith("Cache flushed.")


def test_a_server_that_does_not_come_up_is_a_harness_error_with_the_end_of_its_log(stage):
    bench, _ = stage
    with pytest.raises(HarnessError, match="unrecognized arguments: --warp-speed"):
        bench.engine(warp_speed=True)


def test_a_server_that_breaks_is_a_harness_error_and_no_answer(stage, lane):
    bench, _ = stage
    engine = bench.e0
    log = lane.folder / "e0-0-0.log"
    assert "on http://127.0.0.1:" in log.read_text()
    log.write_text("ERROR: Exception\nTraceback (most recent call last):\n  File x\n    y\nKeyError: 'z'\n")
    assert engine.alive
    with pytest.raises(HarnessError, match="the fake broke: KeyError: 'z'"):
        lane.finish()
    assert not log.exists()


def test_options_become_launch_arguments():
    spec = EngineSpec(
        "0.5.23",
        options=(
            ("enable_memory_saver", True),
            ("strict_memory", False),
            ("api_key", "k"),
            ("health_generation", False),
        ),
    )
    args, env = launch_options(spec)
    assert args == ["--enable-memory-saver", "--api-key", "k"]
    assert env == {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}


@pytest.mark.parametrize("options", [{"time_scale": "fast"}, {"time_scale": "0"}, {"warp": "1"}])
def test_a_wrong_option_of_the_lane_is_a_usage_error(options):
    with pytest.raises(UsageError):
        HttpLane(options)


def test_closing_the_lane_removes_its_folder():
    lane = HttpLane()
    folder = Path(lane.folder)
    lane.model(EngineSpec("0.5.23"))
    assert folder.exists()
    launcher = psutil.Process(lane.launcher.pid)
    lane.close()
    assert not folder.exists()
    assert not launcher.is_running()
