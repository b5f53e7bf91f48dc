"""A control call is one message: a busy scheduler reads its socket once a step, and answers what it finds there."""

from __future__ import annotations

import pytest

from tests.fakes.engine.control.driver import Driver, generate_body

GROUP = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g"}


@pytest.mark.parametrize(
    ("op", "body"),
    [
        ("get_weights_by_name", {"name": "model.norm.weight"}),
        ("slow_down", {"forward_sleep_time": 1.0}),
        ("update_weight_version", {"new_version": "2", "abort_all_requests": False}),
        ("server_info", None),
        ("weights_checker", {"action": "checksum"}),
    ],
)
def test_a_call_of_a_busy_engine_is_answered_when_its_step_ends(op: str, body: dict[str, object] | None) -> None:
    """managers/scheduler.py@0.5.23: recv_requests once in each turn of the event loop, between two forward passes."""
    engine = Driver("0.5.23")
    engine.call("slow_down", {"forward_sleep_time": 1.0})
    engine.start("generate", generate_body(20))
    engine.advance(2.5)
    reply = engine.call(op, body, method="GET" if body is None else "POST")
    assert reply.status == 200
    assert reply.elapsed_s < 1.0


def test_a_flush_with_time_is_done_at_once_when_the_engine_is_idle_as_it_comes() -> None:
    """managers/scheduler_components/flush_wrapper.py:32@0.5.23 looks before it waits: what comes after it waits."""
    engine = Driver("0.5.23")
    engine.hang.add("Join")
    engine.start("init_weights_update_group", {**GROUP, "backend": "gloo"})
    flush = engine.start("flush_cache", query={"timeout": "9"})
    generation = engine.start("generate", generate_body(40))
    engine.hang.clear()
    engine.finish_reads()
    assert engine.done(flush)
    assert not engine.done(generation)
    assert engine.result(flush).status == 200
