from __future__ import annotations

import pytest

from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.errors import HarnessError, UsageError
from harness.faults import parse_faults
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec
from harness.lanes.fake import FakeLane


class Stage:
    """A bench on the fake lane, outside any runner."""

    def __init__(self, version="0.5.23", tp=1, faults="", seed=0) -> None:
        self.trace = TraceWriter()
        self.trace.write(Header())
        self.lane = FakeLane()
        self.gate = FaultGate(self.trace, self.lane.now, parse_faults(faults))
        self.lane.begin(self.gate, seed)
        self.bench = Bench(self.lane, self.gate, EngineSpec(version, tp=tp), seed=seed)

    def __enter__(self):
        return self.bench

    def __exit__(self, *_):
        self.lane.finish()

    @property
    def history(self) -> History:
        return History.from_records(self.trace.records)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("shape", ["llama", "qwen2", "qwen3"])
def test_a_clean_engine_answers_what_is_expected_of_it_before_and_after_an_update(tp, shape):
    stage = Stage(tp=tp)
    with stage as bench:
        engine = bench.engine(shape=shape)
        bench.canary(engine, "a", seed=0)
        assert bench.load(engine, 1, buckets=3, weight_version="one").ok
        bench.canary(engine, "a", seed=1)
        bench.canary(engine, "b", seed=0)
    first, second, wrong = stage.history.canaries()
    assert first.matches()
    assert second.matches()
    assert second.weight_version == "one"
    assert wrong.matches() is False


@pytest.mark.parametrize("version", FakeLane().versions)
def test_a_probe_loads_every_version(version):
    stage = Stage(version)
    with stage as bench:
        assert bench.load(bench.e0, 1).ok
        bench.canary(bench.e0, "a", seed=1)
    assert stage.history.canaries()[0].matches()
    assert bool(stage.history.calls("begin_weight_update")) == bench.has_sessions


def test_facts_of_the_core_lie_between_the_invoke_and_the_completion_of_their_call():
    stage = Stage()
    with stage as bench:
        bench.e0.call("flush_cache")
    history = stage.history
    (call,) = history.calls("flush_cache")
    (flush,) = history.facts("flush", source="core")
    assert call.pos < flush.pos < call.end_pos


def test_a_killed_engine_drops_what_is_open_refuses_what_comes_and_restarts_as_the_next_incarnation():
    stage = Stage()
    with stage as bench:
        engine = bench.e0
        running = bench.traffic(engine, "a", n=200)
        bench.sleep(0.1)
        assert engine.alive
        engine.kill()
        assert not engine.alive
        assert running.result(10.0).ending == "dropped"
        assert engine.call("health", method="GET").ending == "refused"
        engine.restart()
        assert engine.alive
        bench.canary(engine, "a", seed=0)
    history = stage.history
    assert history.incarnations("e0") == [0, 1]
    assert [c.incarnation for c in history.calls()] == [0, 0, 1]
    assert history.canaries()[0].matches()
    assert [c.outcome for c in history.calls()] == ["indefinite", "fail", "ok"]


def test_background_traffic_is_recorded_at_the_moment_at_which_it_ends():
    stage = Stage()
    with stage as bench:
        pending = bench.traffic(bench.e0, "a", n=4)
        bench.sleep(5.0)
        bench.barrier("late")
        assert pending.done
        assert pending.result(1.0).ok
    history = stage.history
    (call,) = history.calls("generate")
    assert call.end_pos < history.barriers()[0].pos
    assert call.end_t < 5.0


def test_traffic_can_leave_in_the_middle_of_what_comes_next():
    stage = Stage()
    with stage as bench:
        pending = bench.traffic(bench.e0, "a", n=2, after_s=1.5)
        assert not pending.done
        bench.sleep(1.0)
        bench.barrier("before")
        bench.sleep(1.0)
        bench.barrier("after")
        assert pending.result(9.0).ok
        assert pending.done
    history = stage.history
    (call,) = history.calls("generate")
    before, after = history.barriers()
    assert before.pos < call.pos < call.end_pos < after.pos
    assert call.t == 1.5


def test_time_is_virtual():
    stage = Stage()
    with stage as bench:
        bench.sleep(1e6)
        assert bench.now == 1e6


def test_a_fan_out_with_a_fault_on_one_engine_leaves_the_other_alone():
    stage = Stage(faults="e0:pause_generation#1:after:drop")
    with stage as bench:
        engines = bench.fleet(2)
        calls = [e.start("pause_generation", {"mode": "retract"}, origin="sut", timeout_s=9.0) for e in engines]
        assert [call.result(9.0).ending for call in calls] == ["dropped", "reply"]
    assert sorted(n.engine for n in stage.history.facts("pause", source="core")) == ["e0", "e1"]


def test_an_engine_that_dies_by_a_fault_after_the_call_has_done_what_it_was_asked():
    stage = Stage(faults="e0:pause_generation#1:after:die")
    with stage as bench:
        outcome = bench.e0.call("pause_generation", {"mode": "retract"}, origin="sut")
        assert outcome.ending == "dropped"
        assert bench.e0.call("health", method="GET").ending == "refused"
    assert len(stage.history.facts("pause", source="core")) == 1


def test_the_same_seed_gives_the_same_history():
    def once(seed):
        stage = Stage(seed=seed)
        with stage as bench:
            bench.fleet(2)
            pendings = [bench.traffic(engine, "a", n=8) for engine in bench.engines]
            bench.load(bench.e0, 1)
            [pending.result(9.0) for pending in pendings]
        return [str(item) for item in stage.history.timeline()]

    assert once(1) == once(1)


def test_an_option_that_no_engine_has_is_a_usage_error():
    stage = Stage()
    with stage as bench, pytest.raises(UsageError, match="no launch option warp_speed"):
        bench.engine(warp_speed=True)
    with pytest.raises(UsageError, match=r"^lane fake has no option time_scale; it has hang_s$"):
        FakeLane({"time_scale": "1"})


def test_a_lane_between_scenarios_has_no_engines_to_give():
    lane = FakeLane()
    assert lane.now() == 0.0
    with pytest.raises(HarnessError, match="between scenarios"):
        lane.sleep(1.0)


def test_a_fake_that_broke_is_a_harness_error_whatever_the_client_made_of_it():
    stage = Stage()
    stage.bench.e0.call("health", method="GET")
    stage.lane.world.broken = RuntimeError("a bug of the fake")
    with pytest.raises(HarnessError, match="a bug of the fake"):
        stage.lane.finish()
