"""Bodies that are no JSON, or JSON that one parser takes and another does not."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fakes.engine.json_body import Unreadable, decode_json, is_json
from fakes.engine.profiles import PROFILES
from fakes.engine.routes import routes
from fakes.engine.validation import Invalid
from tests.fakes.engine.control.driver import Driver, generate_body

ORJSON = json.loads(lzma.decompress((Path(__file__).parent / "orjson.json.xz").read_bytes()))
"""[text, [message, position] or ["ok", the value as JSON]]: orjson 3.13.0 of the environment of 0.5.23."""


def decode(text: bytes, version: str = "0.5.23") -> Any:
    profile = PROFILES[version]
    return decode_json(profile, routes(profile)["/pause_generation"], "POST", text)


def complaint(text: bytes, version: str = "0.5.23") -> list[Any]:
    with pytest.raises(Invalid) as error:
        decode(text, version)
    (entry,) = error.value.errors
    return [entry["ctx"]["error"], entry["loc"][1]]


def test_every_text_is_read_as_orjson_reads_it() -> None:
    """validated: 0.5.23, its parser"""
    assert len(ORJSON) > 400
    for text, expected in ORJSON:
        raw = text.encode()
        if expected[0] == "ok":
            assert json.dumps(decode(raw)) == expected[1], text
        else:
            assert complaint(raw) == expected, text


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_has_a_limit(opening: bytes) -> None:
    assert complaint(opening * 200_000) == ["depth limit exceeded", 1024 * len(opening) + 1]
    assert decode(b"[" * 500 + b"]" * 500) is not None
    engine = Driver()
    for op in ("pause_generation", "generate", "update_weights_from_tensor"):
        reply = engine.call(op, raw=opening * 200_000)
        assert reply.status == 400
        assert "depth limit exceeded" in reply.body["message"]


def test_text_that_is_not_utf_8_is_refused() -> None:
    assert complaint(b'{"a": "\xff"}') == ["str is not valid UTF-8: surrogates not allowed", 0]
    assert complaint(b"\xef\xbb\xbf{}") == ["UTF-8 byte order mark (BOM) is not supported", 0]


@pytest.mark.parametrize("raw", [b"[" * 200_000, b'{"mode": "\xff"}', b"1" * 5000])
def test_up_to_0_5_12_what_breaks_the_parser_is_a_400_of_fastapi(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(raw, "0.5.12.post1")
    reply = Driver("0.5.12.post1").call("pause_generation", raw=raw)
    text = "There was an error parsing the body"
    body = {"object": "error", "message": text, "type": "400", "param": None, "code": 400}
    assert (reply.status, reply.body) == (400, body)


def test_up_to_0_5_12_the_words_are_pythons() -> None:
    assert complaint(b"[1, 2", "0.5.12.post1") == ["Expecting ',' delimiter", 6 - 1]
    assert decode(b'{"a": NaN}', "0.5.12.post1") is not None
    assert decode(b"\xef\xbb\xbf{}", "0.5.12.post1") == {}
    assert decode(str(2**70).encode(), "0.5.12.post1") == 2**70


LONE = b'{"rid": "\\ud800", "input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2}, "new_version": "\\ud800"}'


@pytest.mark.parametrize("op", ["generate", "update_weight_version"])
def test_a_lone_surrogate_is_no_json_for_orjson_and_breaks_the_answer_of_0_5_12(op: str) -> None:
    for version, status in (("0.5.23", 400), ("0.5.17", 400), ("0.5.12.post1", 500)):
        engine = Driver(version)
        reply = engine.call(op, raw=LONE)
        assert reply.status == status
        if status == 400:
            assert "no low surrogate in string" in reply.body["message"]
        else:
            assert reply.body == "Internal Server Error"
        assert engine.died is None
        assert engine.call("generate", generate_body()).status == (200 if op == "generate" or status == 400 else 500)


@pytest.mark.parametrize(
    ("content_type", "json_"),
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("APPLICATION/JSON", True),
        ("application/vnd.api+json", True),
        ("text/json", False),
        ("application/jsonx", False),
        ("", False),
    ],
)
def test_the_content_type_decides(content_type: str, json_: bool) -> None:
    assert is_json(content_type) is json_


def test_no_body_is_no_value() -> None:
    assert decode(b"") is None
