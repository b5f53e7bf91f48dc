"""How fast each transport moves a whole model between trainer and fake engine in one process, beside a plain memcpy.

`pytest tests/benchmarks/bench_transport.py -o python_files='bench_*.py' -o python_functions='bench_*' --benchmark-only`

Every figure is for 1 GiB (REFITCHECK_BENCH_MIB changes that); `extra_info` has bytes per second and the copies made.
"""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

from fakes.engine.protocol import EngineConfig
from fakes.tiny import hf_shapes, tiny_config
from fakes.trainer import ExportRegistry, TrainerKit
from fakes.transport.groups import WorldGroups
from fakes.world import World

MIB = int(os.environ.get("REFITCHECK_BENCH_MIB", "1024"))
HIDDEN = 4096
CONFIG = tiny_config(
    "llama", num_hidden_layers=1, hidden_size=HIDDEN, intermediate_size=1024, num_attention_heads=4,
    num_key_value_heads=4, head_dim=16, vocab_size=MIB * 2**20 // (2 * 2 * HIDDEN),
)  # fmt: skip
BUCKET_MIB = 128


@pytest.fixture(scope="module")
def state():
    return {name: np.ones(shape, dtype=ml_dtypes.bfloat16) for name, shape in hf_shapes(CONFIG).items()}


@pytest.fixture
def world(state):
    registry = ExportRegistry()
    with World(0, resolver=registry) as made:
        made.registry = registry
        made.add_engine("e0", EngineConfig(profile="0.5.23"), state, CONFIG)
        yield made


def rows(state):
    """The state in pieces of at most BUCKET_MIB, as (name, piece): whole tensors cannot be cut, so views of them."""
    return list(state.items())


def told(benchmark, state, copies: str) -> None:
    size = sum(array.nbytes for array in state.values())
    rate = size / benchmark.stats.stats.median
    benchmark.extra_info |= {"GiB": round(size / 2**30, 3), "GiB/s": round(rate / 2**30, 3), "copies": copies}


@pytest.mark.benchmark(group="1 GiB")
def bench_memcpy(benchmark, state):
    target = {name: np.empty_like(array) for name, array in state.items()}

    def copy():
        for name, array in state.items():
            np.copyto(target[name], array)

    benchmark.pedantic(copy, rounds=3, warmup_rounds=1)
    told(benchmark, state, "1")


@pytest.mark.benchmark(group="1 GiB")
def bench_tensor(benchmark, world, state):
    kit = TrainerKit(world, 1, registry=world.registry)
    world.call("e0", "POST", "/begin_weight_update", {})

    def move():
        for named in rows(state):
            export = kit.export(0, [named], (("e0", 0),))
            body = {"serialized_named_tensors": [export.payload], "load_format": "flattened_bucket"}
            outcome = world.call("e0", "POST", "/update_weights_from_tensor", {**body, "flush_cache": False})
            assert outcome.status == 200, outcome
            export.release()

    benchmark.pedantic(move, rounds=3, warmup_rounds=1)
    told(benchmark, state, "2: into the export, into the engine")


@pytest.mark.benchmark(group="1 GiB")
def bench_distributed(benchmark, world, state):
    groups = WorldGroups(world, lambda *record: None)
    group = groups.open("g", 2)
    where = {"master_address": group.address, "master_port": group.port, "rank_offset": 1, "world_size": 2}
    ticket = world.submit("e0", "POST", "/init_weights_update_group", {**where, "group_name": "g", "backend": "gloo"})
    assert group.join(5.0)
    assert world.run_until(ticket).status == 200
    world.call("e0", "POST", "/begin_weight_update", {})

    def move():
        body = {
            "names": list(state),
            "dtypes": [str(array.dtype) for array in state.values()],
            "shapes": [list(array.shape) for array in state.values()],
            "group_name": "g",
            "flush_cache": False,
        }
        ticket = world.submit("e0", "POST", "/update_weights_from_distributed", body)
        assert group.wait([group.broadcast(array) for array in state.values()], 60.0)
        assert world.run_until(ticket).status == 200

    benchmark.pedantic(move, rounds=3, warmup_rounds=1)
    told(benchmark, state, "2: when it is broadcast, into the engine")
