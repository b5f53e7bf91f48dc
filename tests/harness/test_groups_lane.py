"""Groups and transports as scenarios and clients meet them: lane options, needs, adapters that lack one."""

from __future__ import annotations

import pytest

from harness.bench import Bench
from harness.errors import UsageError
from harness.lanes.fake import FakeLane
from harness.runner import Runner
from harness.scenario import Scenario, ScenarioList
from harness.settings import Settings
from harness.suites import Book
from harness.sut.protocol import Caps, RefitResult


class TensorOnly:
    def capabilities(self):
        return Caps(transports=frozenset({"tensor"}))

    def setup(self, fleet):
        self.fleet = fleet

    def set_weights(self, state, version):
        self.version = version

    def refit(self, deadline_s):
        return RefitResult(self.version)

    def close(self):
        pass


def play(go, sut="tests.harness.test_groups_lane:TensorOnly", options=None, **fields):
    scenario = Scenario("toy/x", frozenset({"X-1"}), go, "fake only: a test", side="refit", **fields)
    runner = Runner(Settings(versions=("0.5.23",), tp=1, lane="fake", lane_options=options or {}), Book())
    try:
        return runner.run_once(scenario, "0.5.23", sut)
    finally:
        runner.close()


@pytest.mark.parametrize("value", ["soon", "0", "-1", "9999"])
def test_hang_s_is_a_number_of_seconds(value):
    with pytest.raises(UsageError, match="hang_s"):
        FakeLane({"hang_s": value})


def test_hang_s_is_how_long_a_wait_without_a_deadline_may_take():
    def go(bench: Bench) -> None:
        bench.fleet(1)
        group = bench.groups.open("g", 2)
        with pytest.raises(TimeoutError, match="rank 1 did not join within 7 s"):
            group.join()
        assert bench.now == pytest.approx(7.0)

    play(go, options={"hang_s": "7"})


def test_an_adapter_without_the_transport_is_not_judged_by_it():
    from harness.errors import Unsupported

    def go(bench: Bench) -> None:
        bench.transport = "distributed"
        bench.refit(1)

    with pytest.raises(Unsupported, match="the adapter has no transport distributed"):
        play(go)


def test_an_adapter_that_reads_no_setup_is_not_judged_by_one():
    from harness.errors import Unsupported

    with pytest.raises(Unsupported, match="reads no setup"):
        play(lambda bench: bench.construct({}))


def test_a_lane_without_groups_says_so():
    from harness.errors import Unsupported

    class Bare(FakeLane):
        provides = frozenset()

    scenario = Scenario("toy/x", frozenset({"X-1"}), lambda bench: None, "fake only: a test", needs={"groups"})
    with pytest.raises(Unsupported, match="lane fake does not provide groups"):
        Runner(Settings(versions=("0.5.23",), tp=1), Book(), Bare()).run_once(scenario, "0.5.23")


def test_a_list_of_scenarios_may_need_something_together():
    listed = ScenarioList("x", needs=["groups"])
    listed.add("X-1", relation="fake only: a test", needs=["core:flush"])(lambda bench: None)
    assert listed[0].needs == {"groups", "core:flush"}


def test_a_call_in_the_background_tells_whether_it_is_over():
    seen = []

    class Client(TensorOnly):
        def refit(self, deadline_s):
            wait = self.fleet.endpoints[0].start("model_info", method="GET", timeout_s=5.0)
            seen.append(wait.done)
            self.fleet.clock.sleep(1.0)
            seen.append(wait.done)
            seen.append(wait().status)
            return RefitResult(self.version)

    import tests.harness.test_groups_lane as here

    here.Waiting = Client
    play(lambda bench: bench.refit(1), sut="tests.harness.test_groups_lane:Waiting")
    assert seen == [False, True, 200]


def test_a_setup_that_is_taken_replaces_the_client():
    def go(bench: Bench) -> None:
        base = {
            **{
                "colocated": True,
                "trainer": "megatron",
                "transport": "auto",
                "kv_scales": None,
                "quantisation": {"scheme": "bf16"},
            },
            **dict.fromkeys(
                ("nodes_per_engine", "data_parallel_size", "pipeline_parallel_size", "expert_parallel_size"), 1
            ),
            "tensor_parallel_size": 1,
            "pause_mode": "retract",
        }
        assert bench.construct(base)
        assert bench.refit(1).ok
        assert not bench.construct({**base, "nodes_per_engine": 2})
        assert bench.construct({**base, "colocated": False})
        assert bench.refit(2).ok

    history = play(go, sut="reference")
    assert [bool(n.get("refused")) for n in history.facts("construct")] == [False, True, False]
    assert [c.op for c in history.calls() if c.op.startswith("update_weights")] == [
        *["update_weights_from_tensor"] * 3,
        *["update_weights_from_distributed"] * 3,
    ]
