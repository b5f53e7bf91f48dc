from __future__ import annotations

import base64

import numpy as np
import pytest

from fakes.engine.allowlist import EXACT202
from fakes.engine.payload import open_payload
from fakes.tiny import tiny_config, tiny_weights
from fakes.trainer import TrainerKit
from fakes.world import World

STATE = tiny_weights(tiny_config("qwen2"), 0)


@pytest.fixture(params=["world", "threads"])
def make_kit(request):
    """A kit in a world and one on plain threads: the same promises."""
    worlds = []

    def make(ranks, **options):
        if request.param == "threads":
            return TrainerKit(None, ranks, **options)
        worlds.append(World(seed=3))
        return TrainerKit(worlds[-1], ranks, **options)

    yield make
    for world in worlds:
        world.close()


@pytest.mark.parametrize("layout", ["fsdp", "megatron"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_streams_the_whole_state_in_its_order(make_kit, ranks, layout):
    kit = make_kit(ranks, layout=layout)
    for out in kit.run(lambda rank: list(kit.stream(rank, STATE, 10.0)), 30.0):
        assert [name for name, _ in out] == list(STATE)
        assert all((tensor == STATE[name]).all() for name, tensor in out)


def test_a_rank_holds_only_its_part(make_kit):
    shards = make_kit(2).policy(1, STATE).shards
    assert (shards["model.norm.weight"] == STATE["model.norm.weight"][32:]).all()
    whole = sum(tensor.nbytes for tensor in STATE.values())
    assert sum(shard.nbytes for shard in shards.values()) == whole // 2


def test_errors_stay_with_their_rank(make_kit):
    def fn(rank):
        if rank == 1:
            raise KeyError("mine")
        if rank == 2:
            raise KeyboardInterrupt
        return rank * 10

    ok, error, interrupt = make_kit(3).run(fn, 10.0)
    assert ok == 0
    assert isinstance(error, KeyError)
    assert isinstance(interrupt, KeyboardInterrupt)


def test_one_rank_runs_in_the_caller_and_never_raises(make_kit):
    kit = make_kit(1)
    assert kit.run(lambda rank: rank, 1.0) == [0]
    (error,) = kit.run(lambda rank: 1 / rank, 1.0)
    assert isinstance(error, ZeroDivisionError)


def test_gather_gives_the_groups_values_in_its_order_on_one_rank(make_kit):
    kit = make_kit(4)

    def fn(rank):
        group = (3, 1) if rank in (1, 3) else (0, 2)
        return kit.gather(rank, rank * 10, dst=group[1], group=group, timeout_s=10.0)

    assert kit.run(fn, 30.0) == [None, [30, 10], [0, 20], None]


def test_all_ranks_gather_broadcast_and_meet(make_kit):
    kit = make_kit(3)

    def fn(rank):
        kit.barrier(rank, 10.0)
        return kit.all_gather(rank, rank, 10.0), kit.broadcast(rank, rank, src=2, timeout_s=10.0)

    assert kit.run(fn, 30.0) == [([0, 1, 2], 2)] * 3


def test_a_rank_that_does_not_come_is_a_timeout_that_names_it(make_kit):
    kit = make_kit(2)
    first, second = kit.run(lambda rank: kit.barrier(rank, 0.05) if rank == 0 else None, 10.0)
    assert isinstance(first, TimeoutError)
    assert "ranks [1]" in str(first)
    assert second is None


def test_after_a_broken_collective_the_next_run_meets_again(make_kit):
    kit = make_kit(2)
    kit.run(lambda rank: kit.barrier(rank, 0.05) if rank == 0 else None, 10.0)
    assert kit.run(lambda rank: kit.all_gather(rank, rank, 10.0), 30.0) == [[0, 1], [0, 1]]


def test_ranks_that_export_different_tensors_are_found(make_kit):
    kit = make_kit(2)
    states = [{"a": np.zeros(2)}, {"b": np.zeros(2)}]
    errors = kit.run(lambda rank: list(kit.stream(rank, states[rank], 10.0)), 30.0)
    assert all("different tensors at once: a, b" in str(error) for error in errors)


def test_a_group_of_strangers_is_refused(make_kit):
    kit = make_kit(2)
    for group in ((0, 0), (0, 5)):
        with pytest.raises(ValueError, match="are not a group of 2 trainer ranks"):
            kit.gather(0, 1, dst=0, group=group, timeout_s=1.0)


def test_exports_are_payloads_for_their_consumers_and_are_counted(make_kit):
    records = []
    kit = make_kit(2, record=lambda name, rank, data: records.append((name, rank, dict(data))))
    named = list(STATE.items())
    export = kit.export(1, named, (("e0", 0),))
    assert kit.live_exports() == 1
    got = open_payload(
        base64.b64decode(export.payload),
        profile_allow=EXACT202,
        rank=0,
        load_format="flattened_bucket",
        resolver=kit.registry.bind("e0"),
    )
    assert all((tensor == STATE[name]).all() for name, tensor in got)
    export.release()
    assert kit.live_exports() == 0
    assert [(name, rank) for name, rank, _ in records] == [("export", 1), ("open", 1), ("release", 1), ("free", 1)]


def test_the_seed_picks_the_same_order_of_ranks_again():
    def order(seed):
        seen = []
        with World(seed=seed) as world:
            kit = TrainerKit(world, 4)

            def fn(rank):
                for _ in range(3):
                    seen.append(rank)
                    world.sleep(0)

            kit.run(fn, 10.0)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1
