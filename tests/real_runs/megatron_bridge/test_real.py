"""The real megatron-bridge: what it exports, and what of it reaches an engine. CI makes its environment."""

import numpy as np
import pytest

from fakes.tiny import tiny_config, tiny_weights
from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec
from harness.lanes.fake import FakeLane
from real_runs.megatron_bridge import environment, jobs
from real_runs.megatron_bridge.sut import MegatronBridgeSut

pytestmark = [
    pytest.mark.skipif(environment.find() is None, reason=f"needs {environment.COMMAND}"),
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("nothing_stays"),
]
LAYOUTS = {"tp1": (1, 1), "tp2": (2, 1), "pp2": (1, 2)}


def job(world, layout):
    found = environment.find()
    assert found is not None
    return jobs.job_of(found, world, *layout)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", ["llama", "qwen3"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_exports_the_checkpoint_bit_for_bit(layout, shape, dtype):
    size = LAYOUTS[layout]
    config = tiny_config(shape, dtype=dtype)
    state = tiny_weights(config, 7)
    made = job(size[0] * size[1], size)
    parameters = made.load(config, state)

    for export in walked(made):
        assert set(export) == set(state)
        for name, values in state.items():
            assert (export[name].shape, export[name].dtype) == (values.shape, values.dtype), name
            assert export[name].tobytes() == values.tobytes(), name
    total = sum(values.size for values in state.values())
    assert max(parameters) < total if made.world > 1 else parameters == [total]  # the model is really cut


def walked(made):
    for rank in range(made.world):
        made.begin(rank)
    out = [{} for _ in range(made.world)]
    while True:
        for rank in range(made.world):
            made.ask(rank)
        items = [made.take(rank) for rank in range(made.world)]
        if None in items:
            assert items == [None] * made.world
            return out
        for mine, (name, tensor) in zip(out, items, strict=True):
            assert name not in mine
            mine[name] = tensor


class Stage:
    """Refits on the fake lane, outside any runner."""

    def __init__(self, shape="llama", tp=2, sut=MegatronBridgeSut, **options):
        self.trace = TraceWriter()
        self.trace.write(Header())
        self.lane = FakeLane()
        gate = FaultGate(self.trace, self.lane.now, ())
        self.lane.begin(gate, 0)
        spec = EngineSpec("0.5.23", tp=tp, shape=shape)
        self.bench = Bench(self.lane, gate, spec, sut_factory=sut, sut_options=options)

    def __enter__(self):
        return self.bench

    def __exit__(self, *_):
        self.bench.abandon_sut()
        self.lane.finish()

    @property
    def history(self):
        return History.from_records(self.trace.records)

    def params(self):
        """Name to array of every engine rank: what the fake holds."""
        ranks = self.lane.world.engines["e0"].core.scheduler.ranks
        return [{name: array.copy() for name, array in rank.params.items()} for rank in ranks]


def held_after(seed, shape, tp):
    """What an engine holds that began with these weights."""
    stage = Stage(shape, tp)
    with stage as bench:
        bench.engine(seed=seed)
        return stage.params()


@pytest.mark.parametrize("shape", ["llama", "qwen3"])
@pytest.mark.parametrize(("layout", "tp"), [("tp1", 1), ("tp2", 2), ("pp2", 2), ("tp2", 1), ("pp2", 1)])
def test_the_values_that_reach_the_fake_are_the_checkpoints(shape, layout, tp):
    """At engine tp 1 and two Megatron ranks, rank 1 feeds no engine and drains."""
    size = LAYOUTS[layout]
    stage = Stage(shape, tp, megatron_tp=str(size[0]), megatron_pp=str(size[1]))
    with stage as bench:
        for seed in (3, 4):
            assert bench.refit(seed).ok
            for mine, wanted in zip(stage.params(), held_after(seed, shape, tp), strict=True):
                assert set(mine) == set(wanted)
                assert all(np.array_equal(mine[name], wanted[name]) for name in wanted)
        bench.canary(bench.e0, "a", seed=4)
    (canary,) = stage.history.canaries()
    assert canary.matches()
