"""n > 1: one pass without output for each prompt, then n samples under names of the engine's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.engine.control.driver import Driver, generate_body


def body(n: int, tokens: int, **more: Any) -> dict[str, Any]:
    made = generate_body(tokens, **more)
    made["sampling_params"]["n"] = n
    return made


def sent(engine: Driver) -> list[list[Any]]:
    """Of every request that reaches the scheduler from now on: how long it may get, whether it streams there and is
    streamed, and whether its log-probabilities are wanted."""
    found: list[list[Any]] = []
    generate = engine.core.scheduler._handlers["generate"]

    def handle(obj: dict[str, Any]) -> None:
        req = obj["req"]
        state = engine.core._tm.states[req.rid]
        found.append([req.sampling.max_new_tokens, req.stream, state.stream, req.logprobs is not None])
        generate(obj)

    engine.core.scheduler._handlers["generate"] = handle
    return found


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.23"])
def test_what_is_sent(version: str) -> None:
    """managers/tokenizer_manager.py:1444@0.5.12.post1, 2145@0.5.22: a copy of the tokenized request."""
    engine = Driver(version)
    found = sent(engine)
    engine.call("generate", body(2, 3, stream=True, return_logprob=True))
    assert found == [[0, False, False, True], [3, True, True, True], [3, True, True, True]]


def test_the_pass_without_output_is_not_verified() -> None:
    """Only what the caller sent is (sampling_params.verify); 0.5.12 then dies of min_new_tokens as without n."""
    engine = Driver("0.5.12.post1")
    request = body(2, 3)
    request["sampling_params"]["min_new_tokens"] = 1
    assert engine.call("generate", request).ending == "dropped"
    assert engine.died is not None
    assert "NoneType" in engine.died.error.message


def test_nothing_is_sent_when_a_later_prompt_is_refused() -> None:
    """All are tokenized first (managers/tokenizer_manager.py:2124@0.5.22)."""
    engine = Driver("0.5.23")
    found = sent(engine)
    request = {**body(2, 3), "input_ids": [[5, 6], [5] * 5000]}
    refused = engine.call("generate", request)
    assert (refused.status, refused.elapsed_s, found) == (400, 0.0, [])


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.23"])
def test_the_name_that_the_caller_gave_is_free_again(version: str) -> None:
    engine = Driver(version)
    for _ in range(2):
        assert engine.call("generate", body(2, 2, rid="a")).status == 200


def leave(engine: Driver, request: dict[str, Any], after: float = 0.35) -> int:
    """Start a stream of slow steps, leave it; how many tokens were served until then."""
    engine.call("slow_down", {"forward_sleep_time": 0.1})
    call = engine.start("generate", {**request, "stream": True})
    engine.advance(after)
    engine.cancel(call)
    engine.advance(0.2)  # the step that runs
    return len(engine.named("serve"))


def test_samples_that_nobody_waits_for_end_at_once() -> None:
    """They are released with their stream (managers/tokenizer_manager.py:3850@0.5.23)."""
    engine = Driver("0.5.23")
    served = leave(engine, body(2, 40, rid="a"))
    assert served > 2
    engine.advance(5.0)
    assert len(engine.named("serve")) == served
    assert engine.call("generate", generate_body(2, rid="a")).status == 200


def test_of_0_5_12_they_run_to_their_end_for_the_task_of_the_client_does_not_know_their_names() -> None:
    """managers/tokenizer_manager.py:1606@0.5.12.post1: it aborts obj.rid alone, and nothing is released."""
    engine = Driver("0.5.12.post1")
    leave(engine, body(2, 40))
    engine.advance(10.0)
    assert len(engine.named("serve")) == 1 + 2 * 40


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.19", "0.5.23"])
def test_two_seconds_after_a_client_left_its_name_is_aborted_whoever_bears_it(version: str) -> None:
    """managers/tokenizer_manager.py:1606@0.5.12.post1, 2427@0.5.22: by name."""
    engine = Driver(version)
    leave(engine, generate_body(5, rid="a"))
    engine.advance(0.5)
    began = engine.now
    other = engine.start("generate", generate_body(40, rid="a"))
    ended = engine.result(other)
    assert ended.body["meta_info"]["finish_reason"]["type"] == "abort"
    assert 1.0 < engine.now - began < 2.2


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.19", "0.5.23"])
def test_a_stream_that_was_left_gets_nothing_more(version: str) -> None:
    engine = Driver(version)
    call = engine.start("generate", {**generate_body(30, stream=True), "input_ids": [[5, 6], [7, 8]]})
    engine.advance(0.05)
    engine.cancel(call)
    got = len(engine.chunks(call))
    assert got > 1
    engine.advance(5.0)
    assert len(engine.chunks(call)) == got


def test_a_stream_that_is_left_while_the_engine_is_paused_is_forgotten() -> None:
    engine = Driver("0.5.23")
    engine.call("pause_generation", {"mode": "retract"})
    call = engine.start("generate", generate_body(4, rid="a", stream=True))
    engine.cancel(call)
    engine.call("continue_generation", {})
    assert engine.call("generate", generate_body(4, rid="a")).status == 200
