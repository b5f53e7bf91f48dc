"""0.5.17 looks again and again whether what waits was aborted meanwhile (managers/tokenizer_manager.py:3405@0.5.17)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.engine.control.driver import Driver, generate_body
from tests.fakes.engine.control.test_parallel_samples import body, sent

DISK = ("update_weights_from_disk", {"model_path": "/elsewhere"})


def updating(**config: Any) -> Driver:
    """An engine whose update holds the lock until `finish_reads`."""
    engine = Driver("0.5.17", **config)
    engine.hang = {"ReadDisk"}
    engine.start(*DISK)
    return engine


def test_what_was_aborted_under_a_pause_does_not_wait_for_an_update() -> None:
    """managers/tokenizer_manager.py:785@0.5.17, before the lock."""
    engine = updating()
    engine.start("pause_generation", {"mode": "in_place"})
    waiting = engine.start("generate", generate_body(4, rid="one"))
    engine.start("abort_request", {"rid": "one"})
    engine.start("continue_generation", {})
    assert engine.done(waiting)
    assert engine.result(waiting).status == 499


def test_what_was_aborted_while_it_waited_for_an_update_is_not_sent() -> None:
    """managers/tokenizer_manager.py:789@0.5.17, behind the lock."""
    engine = updating()
    found = sent(engine)
    waiting = engine.start("generate", generate_body(4, rid="one"))
    engine.start("abort_request", {"rid": "one"})
    engine.hang = set()
    engine.disk["/elsewhere"] = []
    engine.finish_reads()
    assert (engine.result(waiting).status, found) == (499, [])


def test_an_adapter_that_nobody_has_is_missed_before_the_abort_is_looked_for() -> None:
    """managers/tokenizer_manager.py:788@0.5.17."""
    engine = updating(enable_lora=True, max_lora_rank=8, lora_target_modules=["all"])
    waiting = engine.start("generate", generate_body(4, rid="one", lora_path="nobody"))
    engine.start("abort_request", {"rid": "one"})
    engine.hang = set()
    engine.disk["/elsewhere"] = []
    engine.finish_reads()
    assert engine.result(waiting).status == 400


@pytest.mark.parametrize(
    ("aborted", "during", "sent_before"),
    [("one", 1, 1), ("two", 1, 1), ("one", 2, 2), ("two", 2, 2)],
    ids=["the-pass-that-runs", "a-pass-to-come", "a-pass-that-was", "the-last-pass"],
)
def test_of_samples_nothing_is_sent_behind_an_abort(aborted: str, during: int, sent_before: int) -> None:
    """Looked at around every pass without output and before every sample (managers/tokenizer_manager.py:1831,1847,1853
    @0.5.17)."""
    engine = Driver("0.5.17")
    engine.call("slow_down", {"forward_sleep_time": 0.1})
    found = sent(engine)
    request: dict[str, Any] = {**body(2, 3), "input_ids": [[5, 6], [7, 8]], "rid": ["one", "two"]}
    call = engine.start("generate", request)
    while len(found) < during:
        engine.advance(0.01)
    engine.start("abort_request", {"rid": aborted})
    ended = engine.result(call)
    assert (ended.status, len(found)) == (499, sent_before)
    assert ended.body["error"]["message"] == f"Request {aborted} was aborted"


def test_in_process_it_is_an_error_of_its_own() -> None:
    """managers/tokenizer_manager.py:198@0.5.17."""
    engine = Driver("0.5.17")
    engine.call("pause_generation", {"mode": "in_place"})
    waiting = engine.start("generate", generate_body(4, rid="one"), via="engine")
    engine.call("abort_request", {"rid": "one"})
    engine.call("continue_generation", {})
    raised = engine.result(waiting).value
    assert (raised.type, raised.message) == ("RequestAbortedError", "Request one was aborted")
