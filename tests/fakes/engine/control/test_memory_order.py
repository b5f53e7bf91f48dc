"""What release and resume do first, and at which moment they look."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.protocol import Barrier, Raised
from tests.fakes.engine.control.driver import Driver, generate_body

GPU: dict[str, Any] = {"device": "cuda", "enable_memory_saver": True}
GROUP = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g"}


def behind_a_rendezvous(engine: Driver, *later: tuple[str, Any]) -> list[int]:
    """Calls that reach the scheduler together, when it is free again."""
    engine.hang.add("Join")
    engine.start("init_weights_update_group", {**GROUP, "backend": "gloo"})
    calls = [engine.start(op, body) for op, body in later]
    engine.hang.clear()
    engine.finish_reads()
    return calls


@pytest.mark.parametrize("version", ["0.5.20", "0.5.21", "0.5.23"])
def test_a_request_that_came_just_before_a_release_makes_the_engine_busy(version: str) -> None:
    """Only a paused engine ignores its queue (managers/scheduler.py:5337, weight_updater.py:337@0.5.23)."""
    engine = Driver(version)
    _, release = behind_a_rendezvous(engine, ("generate", generate_body(4)), ("release_memory_occupation", {}))
    assert engine.result(release).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.type == "AssertionError"


@pytest.mark.parametrize("version", ["0.5.20", "0.5.21", "0.5.23"])
def test_a_request_that_came_just_before_a_flush_makes_it_fail(version: str) -> None:
    """managers/scheduler.py:5518@0.5.23."""
    engine = Driver(version)
    generation, flush = behind_a_rendezvous(engine, ("generate", generate_body(4)), ("flush_cache", None))
    assert engine.result(flush).status == 400
    assert engine.named("flush")[0]["reason"] == "#queue-req: 1, #running-req: 0"
    assert engine.result(generation).status == 200


def test_the_ranks_meet_before_the_weights_go() -> None:
    """weight_updater.py:354@0.5.23: a second release dies in torch_memory_saver, after the barrier."""
    engine = Driver("0.5.23", **GPU)
    engine.call("release_memory_occupation", {"tags": ["weights"]})
    assert engine.call("release_memory_occupation", {"tags": ["weights"]}).ending == "dropped"
    assert [effect for effect in engine.effects if isinstance(effect, Barrier)] == [
        Barrier("release_memory_occupation")
    ] * 2


def test_the_backup_is_of_the_moment_when_the_weights_went() -> None:
    """--enable-weights-cpu-backup copies in the pause of the tag "weights" alone (model_runner.py@0.5.23)."""
    engine = Driver("0.5.23", enable_weights_cpu_backup=True, **GPU)
    before = engine.core.state_id()
    engine.call("release_memory_occupation", {"tags": ["weights"]})
    for rank in engine.core.scheduler.ranks:
        rank.zero()
    engine.call("release_memory_occupation", {"tags": ["kv_cache", "cuda_graph"]})
    engine.call("resume_memory_occupation", {})
    assert engine.core.state_id() == before


@pytest.mark.parametrize("tags", [["weights", "bogus"], ["bogus"]])
def test_a_tag_that_was_not_released_kills_by_name(tags: list[str]) -> None:
    """offload_tags.remove(tag) is a KeyError (weight_updater.py:390@0.5.23)."""
    engine = Driver("0.5.23")
    engine.call("release_memory_occupation", {"tags": ["weights"]})
    assert engine.call("resume_memory_occupation", {"tags": tags}).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("KeyError", "'bogus'")
