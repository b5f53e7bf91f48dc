"""What a scheduler counts as a current batch, how long a step may take, and what its log says of a flush."""

from __future__ import annotations

import pytest

from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import Driver, generate_body

GROUP = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g"}


def block(engine: Driver) -> None:
    """A rendezvous that nobody else comes to: the scheduler thread waits."""
    engine.hang.add("Join")
    engine.start("init_weights_update_group", {**GROUP, "backend": "gloo"})


def test_a_prefill_alone_is_a_batch_that_an_in_place_pause_holds_up() -> None:
    """The pause that came during the first step: no decode has begun, and the watchdog counts all the same
    (utils/watchdog.py:103, scheduler_components/invariant_checker.py:494@0.5.23)."""
    engine = Driver("0.5.23", watchdog_timeout=2.0)
    engine.start("generate", generate_body(40))
    engine.start("pause_generation", {"mode": "in_place"})
    engine.advance(200.0)
    assert {fact["phase"] for fact in engine.named("serve")} == {"prefill"}
    assert engine.died is not None
    assert engine.died.error.type == "Watchdog"


@pytest.mark.parametrize(("busy", "dies"), [(False, False), (True, True)])
def test_a_blocked_scheduler_is_killed_only_over_a_current_batch(busy: bool, dies: bool) -> None:
    """utils/watchdog.py:103@0.5.23: an idle scheduler may wait for its group for ever."""
    engine = Driver("0.5.23", watchdog_timeout=2.0)
    if busy:
        engine.start("generate", generate_body(40))
        engine.advance(0.02)
    block(engine)
    engine.advance(200.0)
    assert (engine.died is not None) == dies


def test_a_scheduler_that_goes_on_in_time_is_watched_no_more() -> None:
    engine = Driver("0.5.23", watchdog_timeout=2.0)
    engine.call("slow_down", {"forward_sleep_time": 0.2})
    call = engine.start("generate", generate_body(60))
    engine.advance(0.5)
    block(engine)
    engine.advance(1.0)
    engine.hang.clear()
    engine.finish_reads()
    engine.advance(8.0)
    assert engine.died is None
    assert engine.result(call).status == 200


def test_a_step_is_never_shorter_than_it_is() -> None:
    """managers/scheduler.py:6102@0.5.23: a negative sleep is none."""
    plain, slowed = Driver("0.5.23"), Driver("0.5.23")
    assert slowed.call("slow_down", {"forward_sleep_time": -5.0}).status == 200
    took = [engine.call("generate", generate_body(8)).elapsed_s for engine in (plain, slowed)]
    assert took[0] == took[1] > 0


def test_a_bad_token_on_a_gpu_is_an_assertion_of_the_device() -> None:
    """Read, not run: the embedding kernel asserts, and the context of the device is lost."""
    engine = Driver("0.5.23", device="cuda")
    assert engine.call("generate", generate_body(1, [512])).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("AcceleratorError", "CUDA error: device-side assert triggered")


def test_a_flush_that_gives_up_in_the_middle_of_a_step_says_so_when_the_step_ends() -> None:
    """check_pending runs between two steps (managers/scheduler_components/flush_wrapper.py:41@0.5.23)."""
    engine = Driver("0.5.23")
    engine.call("slow_down", {"forward_sleep_time": 1.0})
    engine.start("generate", generate_body(20))
    engine.advance(2.5)
    reply = engine.call("flush_cache", query={"timeout": "1.3"})
    assert reply.body == "Timed out waiting for idle state."
    assert reply.elapsed_s == pytest.approx(2.5, abs=0.1), "read at the end of one step, given up at that of the next"


def test_the_reason_of_a_refused_flush_counts_queue_and_batch() -> None:
    """managers/scheduler.py:5541@0.5.23."""
    engine = Driver("0.5.23", max_running_requests=2)
    for first in range(3):
        engine.start("generate", generate_body(40, [first + 1]))
    engine.advance(0.03)
    assert engine.call("flush_cache").status == 400
    assert engine.named("flush")[-1] == {"ok": False, "reason": "#queue-req: 1, #running-req: 2"}
    engine.advance(5.0)
    assert engine.call("flush_cache").status == 200
    assert engine.named("flush")[-1] == {"ok": True, "reason": ""}


def test_a_batch_that_was_just_prefilled_is_not_the_running_one_yet() -> None:
    """managers/scheduler.py:5544@0.5.23 counts running_batch, into which a prefill is merged by the next step."""
    engine = Driver("0.5.23")
    for first in range(2):
        engine.start("generate", generate_body(40, [first + 1]))
    engine.advance(0.05)
    engine.start("generate", generate_body(40, [9]))
    seen = len([fact for fact in engine.named("serve") if fact["phase"] == "prefill"])
    flush = None
    while len([fact for fact in engine.named("serve") if fact["phase"] == "prefill"]) == seen:
        if (
            flush is None
            and engine.core.scheduler.forward is not None
            and engine.core.scheduler.forward.phase[0] == "p"
        ):
            flush = engine.start("flush_cache")
        engine.advance(0.001)
    assert flush is not None
    assert engine.named("flush")[-1]["reason"] == "#queue-req: 0, #running-req: 2"


def test_a_blocked_scheduler_gives_up_no_flush_until_it_goes_on() -> None:
    """check_pending is part of the event loop that a rendezvous holds up (managers/scheduler.py@0.5.23)."""
    engine = Driver("0.5.23")
    engine.start("generate", generate_body(400))
    engine.advance(0.02)
    flush = engine.start("flush_cache", query={"timeout": "1"})
    engine.advance(0.02)
    block(engine)
    engine.advance(10.0)
    assert not engine.done(flush)
    engine.hang.clear()
    engine.finish_reads()
    assert engine.result(flush).body == "Timed out waiting for idle state."


def test_a_step_that_reports_nothing_is_no_sign_of_life() -> None:
    """A request that does not stream reports every 50 tokens (output_streamer.py:452@0.5.23): a probe that waits behind
    a pause hears nothing of the step that was under way."""
    engine = Driver("0.5.23")
    engine.call("slow_down", {"forward_sleep_time": 3.0})
    engine.start("generate", generate_body(40))
    engine.call("pause_generation", {"mode": "in_place"})
    assert engine.call("health", method="GET").status == 503


def test_a_probe_of_a_busy_engine_is_answered_once() -> None:
    """managers/scheduler.py@0.5.23: the health request that was waiting is gone with the answer."""
    engine = Driver("0.5.23")
    engine.call("slow_down", {"forward_sleep_time": 3.0})
    engine.start("generate", generate_body(40))
    engine.advance(0.1)
    assert engine.call("health", method="GET").status == 200
    engine.call("pause_generation", {"mode": "in_place"})
    assert engine.call("health", method="GET").status == 503


def test_a_retract_after_an_in_place_pause_leaves_no_current_batch() -> None:
    engine = Driver("0.5.23", watchdog_timeout=2.0)
    engine.start("generate", generate_body(40))
    engine.advance(0.05)
    engine.call("pause_generation", {"mode": "in_place"})
    engine.call("pause_generation", {"mode": "retract"})
    engine.advance(200.0)
    assert engine.died is None


def test_abort_all_aborts_all_whatever_rid_is_named() -> None:
    """managers/scheduler.py:5675@0.5.23: `abort_all or req.rid.startswith(rid)`."""
    engine = Driver("0.5.23", max_running_requests=1)
    calls = [engine.start("generate", generate_body(400, [n], rid=f"r{n}")) for n in (1, 2)]
    engine.advance(0.05)
    engine.call("abort_request", {"rid": "r1", "abort_all": True})
    for call in calls:
        assert engine.result(call, 1.0).body["meta_info"]["finish_reason"]["type"] == "abort"


def test_a_request_that_was_aborted_in_the_queue_never_runs() -> None:
    """managers/scheduler.py:5690@0.5.23 takes it out of the waiting queue; its rows are those that it had."""
    engine = Driver("0.5.23", max_running_requests=1)
    running = engine.start("generate", generate_body(40, rid="a"))
    queued = engine.start("generate", generate_body(40, [1], rid="b", return_logprob=True))
    engine.advance(0.02)
    engine.call("abort_request", {"rid": "b"})
    meta = engine.result(queued).body["meta_info"]
    assert meta["output_token_logprobs"] == []
    assert engine.result(running).status == 200
    engine.advance(1.0)
    assert [fact["event"] for fact in engine.named("request") if fact["rid"] == "b"] == ["queued", "aborted"]


def test_a_sleep_counts_for_prefills_too_and_has_an_end() -> None:
    """time.sleep takes nanoseconds in 64 bits: more is an OverflowError that nobody catches."""
    engine = Driver("0.5.23")
    engine.call("slow_down", {"forward_sleep_time": 2.0})
    assert engine.call("generate", generate_body(1)).elapsed_s > 2.0
    for seconds, dies in ((9223372036.0, False), (9223372037.0, True)):
        sleepy = Driver("0.5.23")
        sleepy.call("slow_down", {"forward_sleep_time": seconds})
        sleepy.start("generate", generate_body(1))
        sleepy.advance(60.0)
        assert (sleepy.died is not None) == dies
