"""At tp 2 rank 0 alone answers an update from disk: the other rank reads in its own time."""

from __future__ import annotations

import shutil

import pytest

from fakes.engine.late_ranks import LOOKS_WITHIN_S, READS_WITHIN_S
from fakes.engine.protocol import EngineConfig
from fakes.engine.weight_update import hub_words
from fakes.tiny import tiny_config, tiny_weights, write_tensors
from fakes.world import World

CONFIG = tiny_config("llama")
OLD, NEW = tiny_weights(CONFIG, 0), tiny_weights(CONFIG, 1)
UPDATE = "/update_weights_from_disk"
ASK = {"input_ids": [5, 6, 7], "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}}
LOOKS_AT_ONCE, LOOKS_LATE = 0, 13  # seeds
SOON = 0.02  # the world lets a read take 4 ms


class One:
    """One engine of tp 2, and a folder with new weights."""

    def __init__(self, folder, seed=LOOKS_AT_ONCE, version="0.5.23", weights=NEW):
        self.world = World(0)
        config = EngineConfig(profile=version, tp_size=2, random_seed=seed)
        self.engine = self.world.add_engine("e0", config, OLD, CONFIG)
        self.folder = folder / "new"
        self.folder.mkdir()
        write_tensors(self.folder / "model.safetensors", weights)

    def call(self, path, body=None):
        return self.world.call("e0", "POST", path, body)

    def update(self, **more):
        return self.call(UPDATE, {"model_path": str(self.folder), "flush_cache": False, **more})

    @property
    def late(self):
        return self.engine.core.scheduler.late

    def holds(self, weights):
        with World(0) as other:
            whole = other.add_engine("e0", EngineConfig(tp_size=2), weights, CONFIG)
            return self.engine.core.state_id() == whole.core.state_id()


@pytest.fixture
def one(tmp_path):
    made = One(tmp_path)
    with made.world:
        yield made


def test_the_answer_comes_before_the_other_rank_has_read(one):
    assert one.update().status == 200
    assert one.world.now < SOON
    assert one.late.busy
    assert not one.holds(NEW)
    one.world.sleep(LOOKS_WITHIN_S + READS_WITHIN_S + SOON)
    assert not one.late.busy
    assert one.holds(NEW)


@pytest.mark.parametrize(
    "alone", ["/pause_generation", "/flush_cache", "/continue_generation", "/update_weight_version"]
)
def test_rank_0_goes_on_by_itself_until_it_meets_the_other(one, alone):
    one.update()
    body = {"mode": "retract"} if "pause" in alone else {"new_version": "7"} if "version" in alone else {}
    assert one.call(alone, body).status == 200
    assert one.world.now < SOON
    assert one.late.busy


@pytest.mark.parametrize("together", ["/generate", "/begin_weight_update", "/weights_checker"])
def test_what_needs_all_ranks_is_answered_when_the_other_has_read(one, together):
    one.update()
    body = ASK if together == "/generate" else {"action": "checksum"} if "checker" in together else {}
    assert one.call(together, body).status == 200
    assert one.world.now > SOON
    assert not one.late.busy
    assert one.holds(NEW)


def test_while_a_step_waits_for_the_other_rank_nothing_is_answered(one):
    one.update()
    asked = one.world.submit("e0", "POST", "/generate", ASK)
    assert one.call("/flush_cache").status == 400, "the step is under way by then"
    assert not one.late.busy
    assert one.world.run_until(asked).status == 200


def test_a_folder_that_goes_after_the_other_rank_looked_kills_in_the_rollback(one):
    assert one.update().status == 200
    shutil.rmtree(one.folder)
    assert one.call("/generate", ASK).ending == "dropped"
    assert (one.engine.shell.dead.rank, one.engine.shell.dead.error.type) == (1, "HFValidationError")
    assert one.engine.shell.dead.error.message == hub_words(str(one.folder))


def test_a_folder_that_goes_before_it_looked_leaves_old_weights_on_that_rank_and_nobody_hears_of_it(tmp_path):
    one = One(tmp_path, LOOKS_LATE)
    with one.world:
        assert one.update(weight_version="7").status == 200
        shutil.rmtree(one.folder)
        assert one.call("/generate", ASK).body["meta_info"]["weight_version"] == "7"
        assert not one.holds(NEW)
        assert not one.holds(OLD)
        assert one.engine.core.scheduler.updater.torn


def test_a_folder_that_comes_after_rank_0_looked_is_read_by_the_other_alone(tmp_path):
    one = One(tmp_path, LOOKS_LATE)
    with one.world:
        there = one.folder.rename(tmp_path / "elsewhere")
        assert one.update().status == 400
        there.rename(one.folder)
        one.world.sleep(LOOKS_WITHIN_S + READS_WITHIN_S + SOON)
        assert not one.holds(OLD)
        assert not one.holds(NEW)


def test_two_updates_are_read_in_their_order(one, tmp_path):
    one.update()
    again = tmp_path / "again"
    again.mkdir()
    write_tensors(again / "model.safetensors", OLD)
    one.call(UPDATE, {"model_path": str(again), "flush_cache": False})
    assert one.world.now < SOON
    one.call("/generate", ASK)
    assert one.holds(OLD)


def test_the_seed_says_when(tmp_path):
    times = set()
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        one = One(folder, seed)
        with one.world:
            one.update()
            deadline = one.late.deadline
            assert one.world.now <= deadline <= LOOKS_WITHIN_S + READS_WITHIN_S
            times.add(deadline)
    assert len(times) > 6


def test_at_tp_1_there_is_nobody_to_wait_for(tmp_path):
    write_tensors(tmp_path / "model.safetensors", NEW)
    with World(0) as world:
        engine = world.add_engine("e0", EngineConfig(), OLD, CONFIG)
        assert world.call("e0", "POST", UPDATE, {"model_path": str(tmp_path)}).status == 200
        assert not engine.core.scheduler.late.busy
