"""Bodies of refused requests, word for word, against the real FastAPI apps of five versions.

refused.jsonl.xz was recorded in process from the released wheels (0.5.12.post1, 0.5.17, 0.5.20, 0.5.21, 0.5.23) with
FastAPI 0.165.0 and pydantic 2.14.4 on 2026-11-30; the installation's path in front of `sglang/` was cut.
"""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import Driver, generate_body

RECORDED = [
    json.loads(line)
    for line in lzma.decompress(Path(__file__).with_name("refused.jsonl.xz").read_bytes()).decode().splitlines()
]


def test_every_recorded_refusal_is_said_in_the_same_words() -> None:
    engines = {version: Driver(version) for version in {case["version"] for case in RECORDED}}
    wrong = []
    for case in RECORDED:
        raw = None if case["raw"] is None else case["raw"].encode()
        reply = engines[case["version"]].call(case["op"], raw=raw, method=case["method"], query=case["query"])
        if (reply.status, reply.body) != (case["status"], case["body"]):
            wrong.append((case, reply))
    assert not wrong
    assert len(RECORDED) == 270


@pytest.mark.parametrize("version", ORDER)
def test_bad_base64_dies_in_0_5_12_and_is_refused_later(version: str) -> None:
    engine = Driver(version)
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    reply = engine.call("update_weights_from_tensor", {"serialized_named_tensors": ["***"]})
    if version == "0.5.12.post1":
        assert reply.ending == "dropped"
    else:
        assert reply.status == 400
        assert "Expected base64-encoded bytes" in reply.body["message"]


def test_unknown_keys_are_ignored_over_http_and_a_type_error_in_process() -> None:
    engine = Driver("0.5.23")
    assert engine.call("begin_weight_update", {"bogus": 1}).status == 200
    value = engine.call("update_weights_from_tensor", {"disable_draft_model": True}, via="engine").value
    assert value == Raised("TypeError", "Unexpected keyword argument 'disable_draft_model'")


def test_lax_json_types_are_coerced_as_pydantic_does() -> None:
    engine = Driver("0.5.23")
    assert engine.call("update_weight_version", {"new_version": "7", "abort_all_requests": "false"}).status == 200
    assert engine.call("get_weights_by_name", {"name": "model.norm.weight", "truncate_size": "2"}).body[1:2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Either text, input_ids or input_embeds should be provided."),
        (generate_body(prompt=[]), "input_ids cannot be empty."),
        ({"text": "hi"}, "The engine initialized with skip_tokenizer_init=True cannot accept text prompts."),
        (generate_body(600), "Requested token count exceeds the model's maximum context length of 512 tokens."),
        (
            generate_body(2, list(range(510))),
            "Input length (510 tokens) exceeds the maximum allowed length (506 tokens).",
        ),
        (generate_body(2, [1] * 512), "The input (512 tokens) is longer than the model's context length (512 tokens)."),
        (generate_body(-1), "max_new_tokens must be at least 0, got -1."),
        (
            {"input_ids": [1], "sampling_params": {"temperature": -1}},
            "temperature must be a non-negative finite number, got -1.",
        ),
    ],
)
def test_what_the_tokenizer_manager_refuses(body: dict[str, Any], message: str) -> None:
    engine = Driver("0.5.23")
    reply = engine.call("generate", body)
    assert reply.status == 400
    assert reply.body["error"]["message"].startswith(message)
    assert engine.call("pause_generation", {"mode": "abort"}).elapsed_s == 0.0, "a refused request holds no lock"


@pytest.mark.parametrize("version", ORDER)
def test_an_unknown_sampling_parameter_is_a_bare_500_until_the_contract_gate(version: str) -> None:
    engine = Driver(version)
    reply = engine.call("generate", {"input_ids": [1], "sampling_params": {"bogus": 1}})
    if version in ("0.5.22", "0.5.23"):
        assert (reply.status, reply.body["error"][:38]) == (400, "unknown field `bogus`, expected one of")
        assert reply.body["error"].endswith("`watermark`" if version == "0.5.22" else "`choice`")
    else:
        assert (reply.status, reply.body) == (500, "Internal Server Error")
    assert engine.call("pause_generation", {"mode": "abort"}).elapsed_s == 0.0


@pytest.mark.parametrize("version", ORDER)
def test_in_0_5_12_a_refused_rid_stays_taken(version: str) -> None:
    engine = Driver(version)
    assert engine.call("generate", generate_body(600, rid="r")).status == 400
    again = engine.call("generate", generate_body(2, rid="r"))
    assert again.status == (400 if PROFILES[version].failed_generation == "leak" else 200)


def test_a_bad_token_kills_the_engine() -> None:
    engine = Driver("0.5.23")
    assert engine.call("generate", generate_body(prompt=[5000])).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("IndexError", "index out of range in self")


def test_the_same_rid_twice_is_refused_while_the_first_lives() -> None:
    engine = Driver("0.5.23")
    first = engine.start("generate", generate_body(100, rid="r"))
    engine.advance(0.05)
    assert engine.call("generate", generate_body(rid="r")).body == {
        "error": {"message": "Duplicate request ID detected: r"}
    }
    assert engine.result(first).status == 200
    assert engine.call("generate", generate_body(rid="r")).status == 200


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_called_json_stays_bytes(content_type: str) -> None:
    engine = Driver("0.5.23")
    raw = b'{"selector":"all"}'
    reply = engine.call("begin_weight_update", raw=raw, content_type=content_type)
    assert reply.status == 400
    assert f"'input': {raw!r}}}" in reply.body["message"]
    assert engine.call("begin_weight_update", raw=raw, content_type="application/json; charset=utf-8").status == 200


def test_a_slash_too_many_is_redirected() -> None:
    engine = Driver("0.5.23")
    for method in ("GET", "POST"):
        reply = engine.call("model_info/", method=method)
        assert (reply.status, reply.body) == (307, None)


@pytest.mark.parametrize("version", ORDER)
def test_get_weight_version_answers_404_in_its_own_way(version: str) -> None:
    reply = Driver(version).call("get_weight_version", method="GET")
    assert reply.status == 404
    if PROFILES[version].get_weight_version:
        assert reply.body["message"].startswith("Endpoint '/get_weight_version' or '/weight_version' is deprecated.")
    else:
        assert reply.body == {"detail": "Not Found"}


@pytest.mark.parametrize(
    ("op", "key", "status"),
    [
        ("begin_weight_update", "admin", 200),
        ("begin_weight_update", "user", 401),
        ("begin_weight_update", None, 401),
        ("generate", "user", 200),
        ("generate", "admin", 401),
        ("nope", None, 401),
        ("health", None, 405),
    ],
)
def test_keys_open_what_they_should(op: str, key: str | None, status: int) -> None:
    engine = Driver("0.5.23", api_key="user", admin_api_key="admin")
    reply = engine.call(op, generate_body() if op == "generate" else {}, bearer=key)
    assert reply.status == status
    if status == 401:
        assert reply.body == {"error": "Unauthorized"}


def test_an_api_key_alone_opens_control_routes_too_and_an_admin_key_alone_leaves_generation_open() -> None:
    engine = Driver("0.5.23", api_key="user")
    assert engine.call("begin_weight_update", {}, bearer="user").status == 200
    engine = Driver("0.5.23", admin_api_key="admin")
    assert engine.call("generate", generate_body()).status == 200
    assert engine.call("flush_cache").status == 401


@pytest.mark.parametrize("version", ORDER)
def test_data_parallel_replicas_are_a_bare_500(version: str) -> None:
    engine = Driver(version, dp_size=2)
    reply = engine.update()
    assert (reply.status, reply.body) == (500, "Internal Server Error")
    new = "data-parallel replicas are not supported for update weights from tensor"
    old = "dp_size must be 1 or dp attention must be enabled for update weights from tensor"
    assert reply.value == Raised("AssertionError", new if PROFILES[version].dp_guard == "new" else old)
    ipc = engine.call("update_weights_from_ipc", {"zmq_handles": {}})
    assert ipc.status == 400
    assert ipc.body["message"].startswith("IPC weight update failed: ")
