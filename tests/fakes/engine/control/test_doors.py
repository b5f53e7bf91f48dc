"""The outermost layer: the root, deprecated routes, keys and texts that cannot be handled, callers that go away."""

from __future__ import annotations

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Cancel, Raised, Reply, Token
from tests.fakes.engine.control.driver import Driver, generate_body


@pytest.mark.parametrize("version", ORDER)
def test_the_root_and_the_deprecated_routes(version: str) -> None:
    """entrypoints/http_server.py:610@0.5.12.post1, 798@0.5.20; gone in 0.5.21."""
    engine = Driver(version)
    root = engine.call("", method="GET")
    assert (root.status, root.body) == (200, "SGLang is running")
    for op in ("get_weight_version", "weight_version"):
        reply = engine.call(op, method="GET")
        text = "Endpoint '/get_weight_version' or '/weight_version' is deprecated. Please use '/model_info' instead."
        old = {"object": "error", "message": text, "type": "404", "param": None, "code": 404}
        known = PROFILES[version].get_weight_version
        assert (reply.status, reply.body) == (404, old if known else {"detail": "Not Found"})
    assert engine.call("server_info", method="GET").status == 200


def test_a_key_that_cannot_be_compared_is_a_bare_500() -> None:
    """secrets.compare_digest takes no text beyond ASCII."""
    reply = Driver("0.5.23", api_key="k").call("model_info", method="GET", bearer="\u00e9")
    assert (reply.status, reply.body) == (500, "Internal Server Error")


def test_a_text_that_is_no_utf8_breaks_every_json_answer_of_0_5_12_that_holds_it() -> None:
    """Later versions read bodies with orjson, which refuses it."""
    raw = b'{"new_version":"\\ud800"}'
    engine = Driver("0.5.12.post1")
    error = Raised("TypeError", "str is not valid UTF-8: surrogates not allowed")
    for reply in (engine.call("update_weight_version", raw=raw), engine.call("model_info", method="GET")):
        assert (reply.status, reply.body, reply.value) == (500, "Internal Server Error", error)
    assert engine.call("flush_cache").status == 200
    assert engine.call("pause_generation", {}).status == 200
    newer = Driver("0.5.20")
    assert newer.call("update_weight_version", raw=raw).status == 400
    assert newer.call("model_info", method="GET").status == 200


def test_fields_that_a_caller_leaves_out_have_their_defaults() -> None:
    engine = Driver("0.5.23")
    assert engine.call("weights_checker", method="GET").body["success"]
    assert engine.call("get_weights_by_name", {"name": "model.embed_tokens.weight"}).status == 200
    assert len(engine.call("get_weights_by_name", {"name": "model.embed_tokens.weight"}).body) == 100


def test_slashes_in_front_are_no_part_of_a_method_of_the_engine() -> None:
    value = Driver("0.5.23").call("nothing", {}, via="engine").value
    assert value == Raised("AttributeError", "'Engine' object has no attribute 'nothing'")


def test_who_left_gets_no_more_answers_and_a_cancel_of_what_is_over_does_nothing() -> None:
    engine = Driver("0.5.23")
    engine._absorb(engine.core.step(Cancel(999), 0.0))
    over = engine.start("generate", generate_body(1))
    engine.result(over)
    engine.cancel(over)
    stream = engine.start("generate", generate_body(40, stream=True))
    engine.advance(0.02)
    seen = len(engine.chunks(stream))
    assert seen > 1
    engine.cancel(stream)
    control = engine.start("flush_cache", query={"timeout": "0.01"})
    engine.cancel(control)
    engine.advance(10.0)
    assert len(engine.chunks(stream)) == seen
    replies = [effect.id for effect in engine.effects if isinstance(effect, Reply)]
    assert replies == [over]
    assert {effect.id for effect in engine.effects if isinstance(effect, Token)} == {stream}
    assert engine.call("pause_generation", {"mode": "abort"}).elapsed_s == 0.0


@pytest.mark.parametrize("stream", [True, False])
def test_coroutines_of_a_dead_engine_are_closed(stream: bool) -> None:
    engine = Driver("0.5.23")
    calls = [engine.start("generate", generate_body(80, [n], stream=stream)) for n in range(3)]
    engine.advance(0.02)
    tasks = list(engine.core._open.values())
    engine.call("resume_memory_occupation", {})
    assert len(tasks) == 3
    assert all(task.done for task in tasks)
    assert all(engine.result(call).ending == "dropped" for call in calls)
