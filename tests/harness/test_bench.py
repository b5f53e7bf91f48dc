"""The bench asks what an adapter can do before it pays for engines, and how often a client may hang is bounded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fakes.trace import TraceWriter
from harness.bench import Bench
from harness.errors import Unsupported
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from harness.runner import _enough
from tests.harness.toys import ToyLane, ToySut


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


def test_a_client_hangs_three_times_in_one_family_and_eight_times_in_all():
    one = [f"refit/fleet/{name}: x.py:1 in push" for name in "abc"]
    assert _enough(one, SimpleNamespace(id="refit/fleet/d"))
    assert not _enough(one[:2], SimpleNamespace(id="refit/fleet/d"))
    assert not _enough(one, SimpleNamespace(id="refit/fleeting/d"))
    many = [f"refit/{family}/a: x.py:1 in push" for family in "abcdefgh"]
    assert _enough(many, SimpleNamespace(id="refit/z/a"))
    assert not _enough(many[:7], SimpleNamespace(id="refit/z/a"))
