"""Memory that is really gone: what is put back, on which rank, and who notices that it is not there."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from tests.fakes.engine.control.driver import Driver, generate_body

GPU: dict[str, Any] = {"device": "cuda", "enable_memory_saver": True}


def test_a_backup_puts_every_rank_back_and_only_once() -> None:
    engine = Driver("0.5.23", tp_size=2, enable_weights_cpu_backup=True, **GPU)
    before = [rank.state_id() for rank in engine.core.scheduler.ranks]
    assert before[0] != before[1]
    for _ in range(2):
        engine.call("release_memory_occupation", {"tags": ["kv_cache"]})
        engine.call("release_memory_occupation", {"tags": ["weights"]})
        for rank in engine.core.scheduler.ranks:
            rank.zero()
        engine.call("resume_memory_occupation", {"tags": ["kv_cache", "weights"]})
        assert [rank.state_id() for rank in engine.core.scheduler.ranks] == before
    engine.generate(1)
    assert not engine.named("serve")[-1]["torn"]


def test_without_one_they_are_zeros_or_poison_that_differs_each_time() -> None:
    seen = []
    for strict in (False, True):
        engine = Driver("0.5.23", tp_size=2, strict_memory=strict, **GPU)
        for _ in range(2):
            engine.call("release_memory_occupation", {"tags": ["weights"]})
            engine.call("resume_memory_occupation", {"tags": ["weights"]})
            seen.append(engine.core.state_id())
            assert any(rank.params["model.norm.weight"].any() for rank in engine.core.scheduler.ranks) == strict
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


@pytest.mark.parametrize("tags", [["weights"], ["kv_cache"]])
def test_an_idle_engine_without_memory_lives_until_it_is_asked_for_a_token(tags: list[str]) -> None:
    engine = Driver("0.5.23", stale_batch_steps=2, **GPU)
    engine.generate(2)
    engine.advance(1.0)
    engine.call("release_memory_occupation", {"tags": tags})
    engine.advance(100.0)
    assert engine.died is None
    assert engine.call("flush_cache").status == 200
    assert engine.call("generate", generate_body(1)).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.type == ("AcceleratorError" if tags == ["weights"] else "ValueError")


def test_cuda_graphs_are_not_needed_to_serve_here_but_cannot_be_released_twice() -> None:
    engine = Driver("0.5.23", **GPU)
    engine.call("release_memory_occupation", {"tags": ["cuda_graph"]})
    assert engine.call("generate", generate_body(1)).status == 200
    assert engine.call("release_memory_occupation", {"tags": ["cuda_graph"]}).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.message.endswith("tag=cuda_graph")


@pytest.mark.parametrize("version", ORDER)
@pytest.mark.parametrize("paused", [True, False])
def test_a_queue_alone_is_busy_unless_paused_from_0_5_21(version: str, paused: bool) -> None:
    engine = Driver(version, max_running_requests=1)
    engine.start("generate", generate_body(60))
    engine.start("generate", generate_body(60, [1]))
    engine.advance(0.02)
    if paused:
        engine.call("pause_generation", {"mode": "retract"})
    reply = engine.call("release_memory_occupation", {})
    fine = paused and PROFILES[version].idle_ignores_queue_when_paused
    assert reply.ending == ("reply" if fine else "dropped")


def test_only_the_tags_that_were_asked_for_come_and_go() -> None:
    engine = Driver("0.5.23", **GPU)
    engine.generate(1)
    cached = engine.core.scheduler.cache.size
    engine.call("release_memory_occupation", {"tags": ["weights", "cuda_graph"]})
    assert engine.core.scheduler.cache.size == cached, "only the KV cache is flushed with its tag"
    memory = engine.core.scheduler.memory
    assert [tag for tag in ("weights", "kv_cache", "cuda_graph") if memory.unmapped(tag)] == ["weights", "cuda_graph"]
    engine.call("resume_memory_occupation", {"tags": ["cuda_graph"]})
    assert [tag for tag in ("weights", "kv_cache", "cuda_graph") if memory.unmapped(tag)] == ["weights"]
    engine.call("release_memory_occupation", {"tags": ["kv_cache"]})
    assert engine.core.scheduler.cache.size == 0
    assert engine.named("memory")[-1] == {"tags": ["kv_cache", "weights"]}
