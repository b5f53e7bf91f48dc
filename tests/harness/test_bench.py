"""The bench asks what an adapter can do before it pays for engines, and how often a client may hang is bounded."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from fakes.trace import TraceWriter
from harness.bench import Bench
from harness.errors import HarnessError, Unsupported
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from harness.runner import Runner, _enough
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Book
from tests.harness.toys import ToyLane, ToySut, soon


@pytest.fixture
def bench():
    lane = ToyLane()
    gate = FaultGate(TraceWriter(), lane.now)
    lane.begin(gate, 0)
    made = []

    def factory():
        made.append(ToySut())
        return made[-1]

    found = Bench(lane, gate, EngineSpec("0.5.23"), sut_factory=factory)
    found.made = made
    return found


def test_no_engine_is_started_for_a_transport_that_the_adapter_lacks(bench):
    bench.transport = "checkpoint-engine"
    with pytest.raises(Unsupported, match=r"^the adapter has no transport checkpoint-engine$"):
        bench.engine()
    assert bench.engines == []


def test_the_adapter_that_was_asked_is_the_one_that_is_set_up(bench):
    bench.transport = "tensor"
    bench.engine()
    assert bench.sut is bench.made[0]
    assert len(bench.made) == 1
    bench.replace_sut()
    assert bench.sut is bench.made[1]


def test_engines_of_a_scenario_that_names_no_transport_need_no_adapter(bench):
    bench.engine()
    assert bench.made == []


def test_what_its_engines_cannot_do_without_is_read_off_the_factory(bench):
    """Each engine has GPUs of its own; what the scenario asks for goes before."""
    bench._sut_factory.engine_options = {"device": "cuda", "page_size": 2}
    bench.spec = EngineSpec("0.5.23", tp=2, options=(("page_size", 4),))
    bench.engine()
    bench.engine(device="cpu")
    assert [dict(e.spec.options) for e in bench.engines] == [
        {"device": "cuda", "page_size": 4, "base_gpu_id": 0},
        {"device": "cpu", "page_size": 4, "base_gpu_id": 2},
    ]
    assert bench.made == []


def test_a_client_hangs_three_times_in_one_family_and_eight_times_in_all():
    one = [f"refit/fleet/{name}: x.py:1 in push" for name in "abc"]
    assert _enough(one, SimpleNamespace(id="refit/fleet/d"))
    assert not _enough(one[:2], SimpleNamespace(id="refit/fleet/d"))
    assert not _enough(one, SimpleNamespace(id="refit/fleeting/d"))
    many = [f"refit/{family}/a: x.py:1 in push" for family in "abcdefgh"]
    assert _enough(many, SimpleNamespace(id="refit/z/a"))
    assert not _enough(many[:7], SimpleNamespace(id="refit/z/a"))


class Holds(ToySut):
    """Counts how often it is closed."""

    closed = 0

    def close(self):
        type(self).closed += 1
        raise ConnectionError("it was being closed already")


class FailsInSetup(Holds):
    def setup(self, fleet):
        raise ValueError("no trainer at this address")


class Hangs(Holds):
    def refit(self, deadline_s):
        soon()
        while True:
            pass


class HangsInClose(Hangs):
    def close(self):
        super_close = super().close
        soon()
        while True:
            with contextlib.suppress(ConnectionError):
                super_close()


def scenario(bench):
    bench.refit(1)
    raise Unsupported("a crystal ball")


@pytest.mark.parametrize(
    ("client", "ends"),
    [(Holds, Unsupported), (FailsInSetup, HarnessError), (Hangs, None), (HangsInClose, None)],
)
def test_a_client_is_closed_however_its_scenario_ends(client, ends):
    client.closed = 0
    runner = Runner(Settings(lane="toy", hang_timeout=77.0), Book(), ToyLane())
    runner._factories["mine:Client"] = client
    toy = Scenario("toy/x", frozenset(), scenario, "fake only: a toy", side="refit")
    with pytest.raises(ends) if ends else contextlib.nullcontext():
        history = runner.run_once(toy, "0.5.23", "mine:Client")
        assert history.refits()[0].error_type == "Hung"
    assert client.closed > 0


def test_the_reference_client_and_a_planted_one_hold_nothing_that_would_have_to_be_closed():
    runner = Runner(Settings(lane="toy"), Book(), ToyLane())
    runner._factories["harness.reference.adapter:ReferenceSut"] = Holds
    Holds.closed = 0
    toy = Scenario("toy/x", frozenset(), scenario, "fake only: a toy", side="refit")
    with pytest.raises(Unsupported):
        runner.run_once(toy, "0.5.23", "harness.reference.adapter:ReferenceSut")
    assert Holds.closed == 0
