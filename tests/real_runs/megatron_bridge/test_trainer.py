"""The trainer kit with a job's export: ranks in step, ranks that only drain, a rank that does not come."""

import ml_dtypes
import numpy as np
import pytest

from fakes.tiny import tiny_config, tiny_weights
from fakes.trainer import TrainerKit
from fakes.world import World
from harness.errors import Unsupported
from real_runs.megatron_bridge.trainer import BridgeTrainer, config_of

NAMES = ("a", "b", "c")


class Job:
    """A job without processes; `names` by rank, where they differ."""

    def __init__(self, world, names=None):
        self.world, self.names = world, names or {}
        self.asked, self.taken = [0] * world, [0] * world
        self.loaded, self.begun, self.fit = [], [], True

    def load(self, config, state):
        self.loaded.append((config, state))

    def begin(self, rank):
        self.begun.append(rank)

    def ask(self, rank):
        self.asked[rank] += 1

    def take(self, rank):
        assert min(self.asked) > self.taken[rank], "a rank waits for one that was not sent on"
        names = self.names.get(rank, NAMES)
        self.taken[rank] += 1
        step = self.taken[rank] - 1
        return (names[step], np.full((2, 3), step, np.float32)) if step < len(names) else None


class Rig:
    def __init__(self, ranks=2, world=2, names=None):
        self.records, self.jobs = [], []
        self.world = World(seed=0)
        self.kit = TrainerKit(self.world, ranks, lambda *record: self.records.append(record))

        def make():
            self.jobs.append(Job(world, names))
            return self.jobs[-1]

        self.trainer = BridgeTrainer(self.kit, make)

    def run(self, fn=None, timeout_s=5.0):
        def whole(rank):
            return list(self.trainer.stream(rank, {"a": 1}, 1.0))

        try:
            return self.trainer.run(fn or whole, timeout_s)
        finally:
            self.world.close()


def names(stream):
    return [name for name, _ in stream]


def test_every_rank_streams_what_its_rank_of_the_job_gives():
    rig = Rig()
    first, second = rig.run()
    assert names(first) == names(second) == list(NAMES)
    assert [tensor[0, 0] for _, tensor in first] == [0, 1, 2]
    assert sorted(rig.jobs[0].begun) == [0, 1]
    walks = sorted(record[1:] for record in rig.records if record[0] == "walk")
    assert walks == [(0, {"tensors": 1}), (1, {"tensors": 1})]


@pytest.mark.parametrize(("ranks", "world"), [(1, 2), (2, 4), (3, 4)])
def test_ranks_that_feed_nobody_are_sent_on_and_drain(ranks, world):
    rig = Rig(ranks, world)
    assert [names(stream) for stream in rig.run()] == [list(NAMES)] * ranks
    assert rig.jobs[0].asked == rig.jobs[0].taken == [4] * world


def test_a_rank_that_stops_early_is_missed_at_the_deadline_by_name():
    rig = Rig()

    def stops(rank):
        stream = rig.trainer.stream(rank, {}, 1.0)
        return [next(stream) for _ in range(1)] if rank == 1 else list(stream)

    waited, stopped = rig.run(stops)
    assert names(stopped) == ["a"]
    assert isinstance(waited, TimeoutError)
    assert "1" in str(waited)
    assert rig.world.now == pytest.approx(1.0)


def test_ranks_whose_exports_differ_are_told_apart():
    rig = Rig(names={1: ("a", "x", "c")})
    results = rig.run()
    assert all("export different tensors at once: b, x" in str(error) for error in results)


def test_views_and_what_a_scenario_spoils_are_as_on_the_kit():
    rig = Rig(1, 1)
    rig.kit.transposed = True
    rig.kit.spoil = lambda rank, walk: ((name + "_", tensor) for name, tensor in walk)
    ((first, *_),) = rig.run()
    assert first[0] == "a_"
    assert not first[1].flags.c_contiguous


def test_a_job_out_of_step_is_replaced_before_the_next_run_and_has_the_policy():
    rig = Rig(1, 1)
    state = tiny_weights(tiny_config(), 0)
    rig.trainer.hold(state)
    rig.jobs[0].fit = False
    rig.run()
    assert [len(job.loaded) for job in rig.jobs] == [1, 1]
    assert rig.jobs[1].loaded[0][1] == state
    assert rig.jobs[1].asked == [4]


def test_a_fit_job_is_not_loaded_again():
    rig = Rig(1, 1)
    rig.trainer.hold(tiny_weights(tiny_config(), 0))
    rig.run()
    assert len(rig.jobs[0].loaded) == 1


def test_everything_else_is_the_kits():
    rig = Rig()
    assert rig.trainer.lock is rig.kit.lock
    assert rig.trainer.live_exports() == 0
    rig.world.close()


def test_what_it_cannot_hold_is_said_when_it_is_to_be_exported_and_the_next_state_is_held():
    rig = Rig(1, 1)
    rig.trainer.hold({})
    with pytest.raises(Unsupported, match="one dtype, not nothing"):
        rig.trainer.run(lambda rank: None, 1.0)
    assert rig.jobs[0].loaded == []
    rig.trainer.hold(tiny_weights(tiny_config(), 0))
    assert names(rig.run()[0]) == list(NAMES)


@pytest.mark.parametrize("shape", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_config_of_a_state(shape, tied, dtype):
    config = tiny_config(shape, tied, dtype, num_hidden_layers=3)
    assert config_of(tiny_weights(config, 0)) == config


def test_states_that_it_cannot_hold():
    state = tiny_weights(tiny_config(), 0)
    with pytest.raises(Unsupported, match="one dtype, not bfloat16, float32"):
        config_of({**state, "model.norm.weight": state["model.norm.weight"].astype(np.float32)})
    with pytest.raises(Unsupported, match="one dtype, not float8_e4m3fn"):
        config_of({"model.norm.weight": np.zeros(64, ml_dtypes.float8_e4m3fn)})
    with pytest.raises(Unsupported, match="this llama is none of them"):
        config_of({**state, "model.norm.weight": state["model.norm.weight"][:32]})
