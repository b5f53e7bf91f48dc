"""How fast each transport moves a whole model between trainer and fake engine in one process, beside a plain memcpy.

`pytest tests/benchmarks/bench_transport.py -o python_files='bench_*.py' -o python_functions='bench_*' --benchmark-only`

Every figure is for 1 GiB (REFITCHECK_BENCH_MIB changes that). What is printed at the end, and `extra_info`, has bytes
per second, the share of memcpy's and the copies made. Disk, NIXL and IPC go through the reference client's transports.
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
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine
from harness.reference.transports.checkpoint_engine import CheckpointEngineTransport
from harness.reference.transports.disk import DiskTransport
from harness.reference.transports.ipc import IpcTransport

MIB = int(os.environ.get("REFITCHECK_BENCH_MIB", "1024"))
HIDDEN = 4096
LAYERS = max(1, MIB // 128)
LAYER_MIB = 98  # three matrices of 32 MiB, four of half a MiB
CONFIG = tiny_config(
    "llama", num_hidden_layers=LAYERS, hidden_size=HIDDEN, intermediate_size=4096, num_attention_heads=4,
    num_key_value_heads=4, head_dim=16, vocab_size=max(64, (MIB - LAYERS * LAYER_MIB) * 2**20 // (2 * 2 * HIDDEN)),
)  # fmt: skip
BUCKET_MIB = 32
MEMCPY: dict[str, float] = {}


@pytest.fixture(scope="module")
def state():
    return {name: np.ones(shape, dtype=ml_dtypes.bfloat16) for name, shape in hf_shapes(CONFIG).items()}


@pytest.fixture
def world(state, request):
    registry = ExportRegistry()
    config = EngineConfig(profile="0.5.23", **getattr(request, "param", {}))
    with World(0, resolver=registry) as made:
        made.registry = registry
        made.add_engine("e0", config, state, CONFIG)
        yield made


class Clock:
    """Virtual seconds."""

    def __init__(self, world):
        self.world = world

    def now(self):
        return self.world.now


class Near:
    """An engine of a world as the reference client's transports call it, without a gate and its digests."""

    name, tp, gpu_ids, incarnation = "e0", 1, (0,), 0

    def __init__(self, world):
        self.world = world

    def start(self, op, body=None, *, method="POST", timeout_s):
        return Waiting(self.world, self.world.submit("e0", method, f"/{op}", body, timeout_s=timeout_s))

    def request(self, op, body=None, *, method="POST", timeout_s):
        return self.start(op, body, method=method, timeout_s=timeout_s)()


class Waiting:
    def __init__(self, world, ticket):
        self.world, self.ticket = world, ticket

    @property
    def done(self):
        return self.ticket.done

    def __call__(self):
        return self.world.run_until(self.ticket)


def client_moves(benchmark, world, state, transport_of, copies: str) -> None:
    """One transfer by a transport of the reference client: what lies between pause and continue."""
    kit = TrainerKit(world, 1, registry=world.registry)
    transport = transport_of(kit, BUCKET_MIB * 2**20)
    engines = [Engine(Near(world), (0,), 0)]
    transport.connect(engines, Deadline(Clock(world), 600.0))

    def move():
        transport.send(engines, Deadline(Clock(world), 600.0), state, "1")

    try:
        benchmark.pedantic(move, rounds=3, warmup_rounds=1)
    finally:
        transport.close(engines)
        kit.close()
    told(benchmark, state, copies)


def rows(state):
    """The state in pieces of at most BUCKET_MIB, as (name, piece): whole tensors cannot be cut, so views of them."""
    return list(state.items())


def told(benchmark, state, copies: str) -> None:
    size = sum(array.nbytes for array in state.values())
    rate = size / benchmark.stats.stats.median
    MEMCPY.setdefault("rate", rate)  # the first of all
    share = rate / MEMCPY["rate"]
    benchmark.extra_info |= {
        "GiB": round(size / 2**30, 3), "GiB/s": round(rate / 2**30, 3), "of memcpy": round(share, 2), "copies": copies,
    }  # fmt: skip
    print(f"\n{benchmark.name:20} {rate / 2**30:6.2f} GiB/s  {share:5.2f} of memcpy  {copies}")


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


@pytest.mark.benchmark(group="1 GiB")
def bench_disk(benchmark, world, state):
    copies = "3: into the file (page cache), out of it, into the engine"
    client_moves(benchmark, world, state, DiskTransport, copies)


@pytest.mark.benchmark(group="1 GiB")
def bench_nixl(benchmark, world, state):
    world.call("e0", "POST", "/begin_weight_update", {})
    copies = "4, large tensors 5: into the buffer, over, (together,) into the export, into the engine"
    client_moves(benchmark, world, state, CheckpointEngineTransport, copies)


@pytest.mark.benchmark(group="1 GiB")
@pytest.mark.parametrize("world", [{"device": "cuda", "checkpoint_engine": "0.4.2"}], indirect=True, ids=[""])
def bench_ipc(benchmark, world, state):
    client_moves(benchmark, world, state, IpcTransport, "2: into the buffer, into the engine")
