"""The real SGLang itself, where REFITCHECK_REAL names a version: installed or made, started once, killed once."""

import os

import pytest

from fakes.trace import TraceWriter
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from real_runs.sglang_cpu import SglangCpuLane
from real_runs.shared_memory import SHM, group_pids, mapped

VERSION = os.environ.get("REFITCHECK_REAL", "")
pytestmark = [
    pytest.mark.skipif(not VERSION, reason="a real server costs half a minute: name its version in REFITCHECK_REAL"),
    pytest.mark.timeout(900),
]


def update(engine, named):
    body = {"serialized_named_tensors": engine.payloads([named]), "load_format": "flattened_bucket"}
    sessions = VERSION >= "0.5.21"
    outcomes = [engine.call("begin_weight_update", {})] if sessions else []
    outcomes.append(engine.call("update_weights_from_tensor", body))
    return [*outcomes, *([engine.call("end_weight_update", {})] if sessions else [])]


def generate(engine, prompt):
    sampling = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
    return engine.call("generate", {"input_ids": prompt, "sampling_params": sampling}).body["output_ids"]


def test_a_refit_a_death_and_a_clean_end():
    used = set()
    lane = SglangCpuLane()
    spec = EngineSpec(VERSION, dtype="float32")
    try:
        lane.begin(FaultGate(TraceWriter(), lane.now), 0)
        engine = lane.engine(spec)
        expected = [lane.expected(spec, seed, [9, 8, 7], 8) for seed in (0, 1)]
        assert generate(engine, [9, 8, 7]) == list(expected[0].tokens)
        assert all(outcome.ok for outcome in update(engine, lane.weights(spec, 1)))
        assert generate(engine, [9, 8, 7]) == list(expected[1].tokens) != list(expected[0].tokens)

        assert engine.call("resume_memory_occupation", {}).ending == "dropped"
        assert engine.call("model_info", method="GET").ending in ("dropped", "refused")  # the closing socket, or none
        group = engine.held.server._process.pid
        used |= engine.held.server._shm
        starts = lane.starts
        engine.restart()
        assert (engine.incarnation, lane.starts) == (1, starts + 1)
        assert generate(engine, [9, 8, 7]) == list(expected[0].tokens)
        used |= mapped(group_pids(engine.held.server._process.pid))
        assert used
    finally:
        lane.close()
    left = {path.name for path in SHM.iterdir()}  # others may start servers meanwhile: only ours must be gone
    assert group_pids(group) == set()
    assert not used & left
    assert not [name for name in left if name.startswith(f"torch_{os.getpid()}_")]
