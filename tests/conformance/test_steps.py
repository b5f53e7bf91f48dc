"""The helpers of scenarios: where the truth comes from, and what the device's names are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.engine.steps import device_names, know
from conformance.tokens import truths
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config, tiny_weights
from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec
from harness.lanes.fake import FakeLane


class Ignorant(FakeLane):
    """A lane that has no model of its own."""

    def expected(self, *_: Any) -> None:
        return None


def truth_of(lane: FakeLane) -> dict[tuple[int, ...], Any]:
    trace = TraceWriter()
    trace.write(Header(engine_version="0.5.23", clock="virtual"))
    gate = FaultGate(trace, lane.now)
    lane.begin(gate, 0)
    bench = Bench(lane, gate, EngineSpec(version="0.5.23"))
    know(bench, bench.e0, "one", "two")
    lane.finish()
    return truths(History.from_records(trace.records))


def test_what_an_engine_is_asked_after_a_clean_load_is_what_the_lane_expects() -> None:
    learned, told = truth_of(Ignorant()), truth_of(FakeLane())
    assert learned.keys() == told.keys()
    for prompt, seeds in told.items():
        for seed, (tokens, logprobs) in seeds.items():
            assert learned[prompt][seed][0] == tokens
            assert learned[prompt][seed][1] == pytest.approx(logprobs, abs=1e-3)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("shape", ["llama", "qwen2", "qwen3"])
def test_device_names_hold_what_the_engine_holds(shape: str, tp: int) -> None:
    config = tiny_config(shape)
    weights = tiny_weights(config, 1)
    for rank in range(tp):
        engine = RankWeights(config, rank, tp, "bfloat16")
        engine.load(weights.items())
        made = device_names(weights, tp, rank)
        assert made.keys() == engine.params.keys()
        for name, value in made.items():
            np.testing.assert_array_equal(np.asarray(value), np.asarray(engine.params[name]))
