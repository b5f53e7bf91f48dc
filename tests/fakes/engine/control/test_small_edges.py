"""A flush while one waits, groups on a GPU and of one, a probe at the very moment of a reply."""

from __future__ import annotations

from fakes.engine.flushing import DeferredFlush
from fakes.engine.protocol import Join
from tests.fakes.engine.control.driver import Driver, generate_body

GROUP = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g"}


def test_a_scheduler_that_has_a_flush_waiting_refuses_another() -> None:
    """Several HTTP workers could send two (managers/scheduler_components/flush_wrapper.py:23@0.5.23)."""
    engine = Driver("0.5.23")
    engine.start("generate", generate_body(40))
    engine.advance(0.02)
    flush = DeferredFlush(engine.core.scheduler)
    assert flush.handle({"timeout_s": 5.0}) is None
    refused = {"success": False, "message": "Another flush_cache is already in progress."}
    assert flush.handle({"timeout_s": 5.0}) == refused
    assert flush.handle({"timeout_s": 0.0}) == refused


def test_no_timeout_is_no_wait() -> None:
    """float(recv_req.timeout_s or 0.0): None, 0 and what is missing (flush_wrapper.py:28@0.5.23)."""
    engine = Driver("0.5.23")
    engine.start("generate", generate_body(40))
    engine.advance(0.02)
    flush = DeferredFlush(engine.core.scheduler)
    for obj in ({"timeout_s": None}, {"timeout_s": 0}, {}):
        assert flush.handle(obj) == {"success": False, "message": ""}
    assert flush.deadline is None


def test_nccl_is_there_on_a_gpu_and_gloo_takes_a_group_of_one() -> None:
    """The CPU build of torch refuses nccl once its store is connected; nothing else does (seen: 0.5.23)."""
    gpu = Driver("0.5.23", device="cuda")
    assert gpu.call("init_weights_update_group", {**GROUP, "backend": "nccl"}).status == 200
    assert [e.store_only for e in gpu.effects if isinstance(e, Join)] == [False]
    alone = Driver("0.5.23")
    body = {**GROUP, "backend": "gloo", "rank_offset": 0, "world_size": 1}
    assert alone.call("init_weights_update_group", body).status == 200
    assert [e.store_only for e in alone.effects if isinstance(e, Join)] == [False]


def test_a_reply_of_before_is_no_sign_of_life() -> None:
    """last_receive_tstamp must be later than the probe's own start (entrypoints/http_server.py:770@0.5.23)."""
    engine = Driver("0.5.23")
    engine.call("pause_generation", {})
    engine.advance(1.0)
    assert engine.call("flush_cache").elapsed_s == 0.0
    assert engine.call("health", method="GET").status == 503
