"""/generate: bodies, spans, aborts, streams, the cache, and sampling."""

from typing import Any

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Opened, Token
from tests.fakes.engine.control.driver import PROMPT, Driver, generate_body


@pytest.mark.parametrize("version", ORDER)
def test_the_keys_of_a_reply(version: str) -> None:
    body = Driver(version).call("generate", generate_body(60)).body
    keys = ["id", "finish_reason", "prompt_tokens", "weight_version", "num_retractions", "reasoning_tokens"]
    keys += ["completion_tokens", "cached_tokens"]
    keys += ["weight_versions"] if PROFILES[version].spans else []
    keys += ["cached_tokens_details", "dp_rank", "e2e_latency", "response_sent_to_client_ts"]
    assert list(body) == ["output_ids", "meta_info"]
    assert list(body["meta_info"]) == keys
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 60}
    assert len(body["meta_info"]["id"]) == 32


@pytest.mark.parametrize("version", ORDER)
def test_a_request_across_two_versions_reports_spans_or_only_the_last(version: str) -> None:
    engine = Driver(version)
    call = engine.start("generate", generate_body(100))
    engine.advance(0.2)
    reply = engine.call("update_weight_version", {"new_version": "2", "abort_all_requests": False})
    assert reply.body == {"success": True, "message": "Weight version updated to 2", "new_version": "2"}
    meta = engine.result(call).body["meta_info"]
    assert meta["weight_version"] == "2"
    if not PROFILES[version].spans:
        assert "weight_versions" not in meta
        return
    first, second = meta["weight_versions"]
    assert (first["version"], first["start"], second["version"], second["end"]) == ("default", 0, "2", 100)
    assert first["end"] == second["start"] > 0


def test_a_version_that_changed_before_the_first_token_leaves_no_span() -> None:
    engine = Driver("0.5.23", max_running_requests=1)
    engine.start("generate", generate_body(40))
    queued = engine.start("generate", generate_body(4, [1, 2]))
    engine.advance(0.05)
    engine.call("update_weight_version", {"new_version": "2", "abort_all_requests": False})
    meta = engine.result(queued).body["meta_info"]
    assert meta["weight_versions"] == [{"version": "2", "start": 0, "end": 4}]


@pytest.mark.parametrize("version", ORDER)
def test_update_weight_version_aborts_everything_by_default(version: str) -> None:
    engine = Driver(version)
    call = engine.start("generate", generate_body(80))
    engine.advance(0.2)
    assert engine.call("update_weight_version", {"new_version": "2"}).status == 200
    assert engine.result(call).body["meta_info"]["finish_reason"]["type"] == "abort"
    assert engine.call("model_info", method="GET").body["weight_version"] == "2"


@pytest.mark.parametrize("version", ORDER)
def test_aborts(version: str) -> None:
    """A running request gets one more token, a queued one an answer without prompt_tokens; unknown rids are a 200."""
    engine = Driver(version, max_running_requests=1)
    running = engine.start("generate", generate_body(400, rid="a1"))
    engine.advance(0.1)
    queued = engine.start("generate", generate_body(400, rid="b1"))
    engine.advance(0.1)
    for rid in ("nope", "", None):
        reply = engine.call("abort_request", {"rid": rid} if rid is not None else {})
        assert (reply.status, reply.body) == (200, None)
    assert not engine.done(running)
    engine.call("abort_request", {"rid": "b1"})
    body = engine.result(queued).body
    assert (body["text"], body["output_ids"]) == ("", [])
    assert body["meta_info"]["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
    assert not {"prompt_tokens", "cached_tokens"} & set(body["meta_info"])
    engine.call("abort_request", {"abort_all": True})
    assert engine.result(running).body["meta_info"]["finish_reason"]["message"] == "Aborted"


def test_an_aborted_retracted_request_reports_what_was_reported_so_far() -> None:
    """A request that does not stream reports every 50 tokens: a real 0.5.23 gave 150 of some 180."""
    engine = Driver("0.5.23")
    call = engine.start("generate", generate_body(400, rid="r"))
    engine.advance(0.5)
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("abort_request", {"rid": "r"})
    body = engine.result(call).body
    assert len(body["output_ids"]) == body["meta_info"]["completion_tokens"] == 100


def test_the_spans_of_an_aborted_retracted_request_end_where_its_answer_ends() -> None:
    """Its tokens were made in the scheduler and never sent: SGLang cuts the spans to what is answered."""
    for stream, count in ((False, 0), (True, 3)):
        engine = Driver()
        call = engine.start("generate", generate_body(80, rid="r", stream=stream))
        while len(engine.chunks(call)) < 3 and engine.now < 0.03:
            engine.advance(0.001)
        engine.call("pause_generation", {"mode": "retract"})
        engine.call("update_weight_version", {"new_version": "2", "abort_all_requests": False})
        engine.call("abort_request", {"rid": "r"})
        reply = engine.result(call)
        body = engine.chunks(call)[-1] if stream else reply.body
        assert body["meta_info"]["completion_tokens"] == len(body["output_ids"]) >= count
        assert body["meta_info"]["weight_versions"] == [
            {"version": "default", "start": 0, "end": len(body["output_ids"])}
        ]
        assert body["meta_info"]["weight_version"] == "default"


def test_a_version_of_which_no_token_is_answered_is_not_told() -> None:
    engine = Driver()
    call = engine.start("generate", generate_body(40, rid="r"))
    engine.advance(0.03)
    engine.call("update_weight_version", {"new_version": "2", "abort_all_requests": False})
    engine.advance(0.03)
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("abort_request", {"rid": "r"})
    meta = engine.result(call).body["meta_info"]
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": 0}]
    assert meta["weight_version"] == "default", "although the engine is at 2"


def test_logprobs_have_the_shapes_of_the_real_reply() -> None:
    engine = Driver("0.5.23")
    wanted = generate_body(4, return_logprob=True, logprob_start_len=0, top_logprobs_num=2, token_ids_logprob=[1, 2])
    engine.generate()
    meta = engine.call("generate", wanted).body["meta_info"]
    assert meta["cached_tokens"] == 0, "prompt log-probabilities are never cached"
    assert meta["input_token_logprobs"][0] == [None, 5, None]
    assert [row[1] for row in meta["input_token_logprobs"]] == PROMPT
    assert meta["input_top_logprobs"][0] is None
    assert len(meta["input_top_logprobs"][1]) == 2
    assert meta["output_token_logprobs_length"] == len(meta["output_token_logprobs"]) == 4
    for row, top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True):
        assert row[:2] == top[0][:2]
        assert row[0] < 0
    assert [token for _, token, _ in meta["output_token_ids_logprobs"][0]] == [1, 2]
    plain = engine.call("generate", generate_body(4, return_logprob=True)).body["meta_info"]
    assert plain["input_token_logprobs"] == []
    assert plain["output_token_logprobs"] == meta["output_token_logprobs"]
    assert "output_top_logprobs" not in plain


def test_a_stream_is_cumulative_and_only_its_end_has_spans() -> None:
    engine = Driver("0.5.23")
    call = engine.start("generate", generate_body(3, stream=True))
    assert engine.result(call).body is None
    chunks = engine.chunks(call)
    tokens = engine.generate(3)
    assert [chunk["output_ids"] for chunk in chunks] == [tokens[:1], tokens[:2], tokens[:3]]
    assert [chunk["meta_info"]["finish_reason"] for chunk in chunks] == [None, None, {"type": "length", "length": 3}]
    assert ["weight_versions" in chunk["meta_info"] for chunk in chunks] == [False, False, True]
    assert "response_sent_to_client_ts" in chunks[0]["meta_info"]
    assert "response_sent_to_client_ts" not in chunks[2]["meta_info"]


@pytest.mark.parametrize("version", ORDER)
@pytest.mark.parametrize("body", [generate_body(600, stream=True), {"input_ids": [], "stream": True}])
def test_a_refused_stream_says_so_in_a_chunk(version: str, body: Any) -> None:
    """entrypoints/http_server.py:716@0.5.12.post1, 894@0.5.17."""
    engine = Driver(version)
    call = engine.start("generate", body)
    assert engine.result(call).status == 200
    (chunk,) = engine.chunks(call)
    kind = {"type": "invalid_request_error", "code": 400, "retryable": False}
    assert chunk["error"].pop("message")
    assert chunk == {"error": {} if version == "0.5.12.post1" else kind}


@pytest.mark.parametrize("version", ORDER)
def test_the_headers_of_a_stream_are_out_before_it_has_its_turn(version: str) -> None:
    """StreamingResponse sends them before the first chunk, also while the engine is paused."""
    engine = Driver(version)
    engine.call("pause_generation", {"mode": "abort"})
    engine.start("generate", generate_body(2, stream=True))
    assert [type(effect).__name__ for effect in engine.effects if isinstance(effect, Opened | Token)] == ["Opened"]


@pytest.mark.parametrize("version", ORDER)
def test_a_stream_that_fails_otherwise_is_a_200_that_breaks_off(version: str) -> None:
    """Observed nowhere; Starlette has sent the status, so that uvicorn can only close the connection."""
    engine = Driver(version)
    shapes = {"input_ids": [[1, 2], [3]], "sampling_params": [{"max_new_tokens": 2}], "stream": True}
    reply = engine.call("generate", shapes)
    assert (reply.ending, reply.error) == ("dropped", "IndexError")
    assert engine.died is None
    assert engine.call("generate", {**shapes, "stream": False}).status == 500
    assert engine.call("generate", generate_body(2)).status == 200


def test_a_list_of_prompts_gives_a_list_and_n_gives_n() -> None:
    engine = Driver("0.5.23")
    body = generate_body(3)
    body["input_ids"] = [[5, 6, 7], [8, 9]]
    replies = engine.call("generate", body).body
    assert [reply["meta_info"]["prompt_tokens"] for reply in replies] == [3, 2]
    assert replies[0]["output_ids"] == Driver("0.5.23").generate(3, [5, 6, 7])
    call = engine.start("generate", {**body, "stream": True})
    engine.result(call)
    assert sorted({chunk["index"] for chunk in engine.chunks(call)}) == [0, 1]
    body = generate_body(3)
    body["sampling_params"]["n"] = 2
    twins = engine.call("generate", body).body
    assert [twin["output_ids"] for twin in twins] == [engine.generate(3)] * 2
    assert twins[0]["meta_info"]["cached_tokens"] == 4


def test_stop_tokens_and_zero_tokens() -> None:
    engine = Driver("0.5.23")
    tokens = engine.generate()
    body: dict[str, Any] = {"input_ids": PROMPT, "sampling_params": {"temperature": 0, "stop_token_ids": [tokens[2]]}}
    reply = engine.call("generate", body).body
    assert reply["output_ids"] == tokens[:3]
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": tokens[2]}
    reply = engine.call("generate", generate_body(0)).body
    assert (reply["output_ids"], reply["meta_info"]["finish_reason"]) == ([], {"type": "length", "length": 0})


def test_sampling_is_seeded() -> None:
    body: dict[str, Any] = {"input_ids": PROMPT, "sampling_params": {"temperature": 1.0, "max_new_tokens": 8}}
    engine = Driver("0.5.23")
    first, second = (engine.call("generate", body).body["output_ids"] for _ in range(2))
    assert first != second
    assert Driver("0.5.23").call("generate", body).body["output_ids"] == first
    assert Driver("0.5.23", random_seed=1).call("generate", body).body["output_ids"] != first
    body["sampling_params"]["sampling_seed"] = 3
    assert engine.call("generate", body).body["output_ids"] == engine.call("generate", body).body["output_ids"]


def test_the_cache_is_used_up_to_the_last_token_and_batching_changes_no_token() -> None:
    engine = Driver("0.5.23")
    alone = engine.generate(20)
    assert engine.call("generate", generate_body()).body["meta_info"]["cached_tokens_details"] == {
        "device": 4,
        "host": 0,
    }
    calls = [engine.start("generate", generate_body(20, [i + 1, i + 2, i + 3])) for i in range(12)]
    assert engine.generate(20) == alone
    for index, call in enumerate(calls):
        assert engine.result(call).body["output_ids"] == Driver("0.5.23").generate(
            20, [index + 1, index + 2, index + 3]
        )


def test_a_client_that_leaves_is_noticed_within_four_seconds() -> None:
    engine = Driver("0.5.23")
    call = engine.start("generate", generate_body(400, rid="gone"))
    engine.call("slow_down", {"forward_sleep_time": 1.0})
    engine.cancel(call)
    engine.advance(6)
    assert {"rid": "gone", "event": "aborted"} in engine.named("request")
    assert engine.call("pause_generation", {"mode": "abort"}).elapsed_s <= 1.0
    assert not engine.done(call)


@pytest.mark.parametrize("version", ORDER)
def test_a_stream_whose_client_left_lets_go_of_the_lock_at_once(version: str) -> None:
    """It is aborted at once, or only 2 s later by a background task (0.5.12), or not at all (0.5.18, 0.5.19)."""
    engine = Driver(version)
    engine.call("slow_down", {"forward_sleep_time": 0.1})
    call = engine.start("generate", generate_body(400, rid="gone", stream=True))
    engine.advance(1.0)
    engine.cancel(call)
    seen = len(engine.chunks(call))
    assert seen > 3
    engine.advance(1.0)
    aborted = {"rid": "gone", "event": "aborted"}
    fate = PROFILES[version].failed_generation
    assert (aborted in engine.named("request")) == (fate == "abort")
    engine.advance(2.0)
    assert (aborted in engine.named("request")) == (fate != "drop")
    assert engine.call("flush_cache").status == (400 if fate == "drop" else 200)
    assert len(engine.chunks(call)) == seen
    assert engine.call("pause_generation", {"mode": "abort"}).elapsed_s < 1.0


def test_a_client_that_leaves_during_a_control_call_changes_nothing() -> None:
    engine = Driver("0.5.23")
    running = engine.start("generate", generate_body(200))
    engine.advance(0.1)
    begin = engine.start("begin_weight_update", {})
    engine.cancel(begin)
    engine.result(running)
    assert engine.call("begin_weight_update", {}).status == 400, "the session was opened all the same"
