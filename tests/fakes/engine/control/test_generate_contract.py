"""The JSON contract of /generate (sglang/api/v1/api_types.py@0.5.23) and what SamplingParams.verify refuses."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path
from typing import Any

import pytest

from fakes.engine.generate_batch import Item
from fakes.engine.generate_contract import SAMPLING_FIELDS, Refused, check_contract
from fakes.engine.generate_request import prepare
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.request import Logprobs, Sampling
from tests.fakes.engine.control.driver import Driver, generate_body

NEW, OLD = PROFILES["0.5.23"], PROFILES["0.5.12.post1"]

JSON = {
    "boolean `true`": True,
    "boolean `false`": False,
    "integer `3`": 3,
    "floating point `1.5`": 1.5,
    'string "x"': "x",
    "sequence": [1],
    "map": {"a": 1},
}
INTEGERS = ("max_new_tokens", "top_k", "min_new_tokens", "n", "stream_interval", "sampling_seed", "beam_width")
NUMBERS = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
BOOLEANS = ("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim")
TEXTS = ("json_schema", "regex", "ebnf", "structural_tag")
TYPES = [
    *((name, (int,), "i64") for name in INTEGERS),
    *((name, (int, float), "f64") for name in NUMBERS),
    *((name, (bool,), "a boolean") for name in BOOLEANS),
    *((name, (str,), "a string") for name in TEXTS),
]


def contract(body: dict[str, Any], version: str = "0.5.23") -> str:
    """What the gate says, "" when it lets the body pass."""
    try:
        check_contract(PROFILES[version], body)
    except Refused as refused:
        (said,) = refused.body.items()
        return said[1] if said[0] == "error" else repr(said)
    return ""


@pytest.mark.parametrize(("name", "kinds", "expected"), TYPES)
def test_every_sampling_parameter_has_its_json_type(name, kinds, expected):
    for shown, value in JSON.items():
        fits = type(value) in kinds
        assert contract({"sampling_params": {name: value}}) == (
            "" if fits else f"invalid type: {shown}, expected {expected}"
        )
    assert contract({"sampling_params": {name: None}}) == ""


def test_the_first_thing_that_is_wrong_is_told_in_the_order_of_the_body():
    wrong = {"sampling_params": [{"top_k": 1}, {"ignore_eos": 1, "top_k": 1.5}]}
    assert contract(wrong) == "invalid type: integer `1`, expected a boolean"
    assert contract({"sampling_params": None}) == contract({}) == contract({"sampling_params": [{}, {}]}) == ""


@pytest.mark.parametrize("version", ["0.5.22", "0.5.23"])
def test_every_field_with_every_kind_of_value_is_told_as_the_real_one_tells_it(version):
    """validated: 0.5.22 and 0.5.23, the real decoder"""
    recorded = json.loads(lzma.decompress((Path(__file__).parent / "generate_bodies.json.xz").read_bytes()))
    rows = [row for row in recorded["contract"] if row[0] == version]
    assert len(rows) > 2000
    for _, body, expected in rows:
        assert contract(body, version) == expected, body


def test_stream_is_a_boolean():
    assert contract({"stream": 1}) == "invalid type: integer `1`, expected a boolean"
    for value in (True, False, None):
        assert contract({"stream": value}) == ""


@pytest.mark.parametrize("version", ["0.5.22", "0.5.23"])
def test_every_field_is_known_and_an_unknown_one_is_told_which_are(version):
    fields = SAMPLING_FIELDS if version == "0.5.23" else SAMPLING_FIELDS[:-1]
    assert [name for name in fields if contract({"sampling_params": {name: None}}, version)] == []
    listed = ", ".join(f"`{name}`" for name in fields)
    assert contract({"sampling_params": {"bogus": 1}}, version) == f"unknown field `bogus`, expected one of {listed}"
    assert (contract({"sampling_params": {"choice": []}}, version) == "") == (version == "0.5.23")


def item(sampling: dict[str, Any] | None = None, prompt: Any = (5, 6, 7), logprobs: Logprobs | None = None) -> Item:
    return Item("r", None if prompt is None else list(prompt), None, sampling or {}, logprobs, None)


def prepared(sampling: dict[str, Any], p=NEW, **more: Any) -> Sampling:
    return prepare(p, item(sampling, **more), 512, 500, 506)[1]


def said(sampling: dict[str, Any], p=NEW, **more: Any) -> str:
    with pytest.raises(ValueError) as error:
        prepared(sampling, p, **more)
    return str(error.value)


def test_what_is_not_given_has_sglangs_default():
    assert prepared({}) == Sampling(128, 1.0, 1.0, -1, 0, frozenset(), False, None)
    absent = dict.fromkeys(("temperature", "top_p", "top_k", "min_new_tokens", "stop_token_ids", "ignore_eos"))
    assert prepared(absent) == prepared({})


def test_what_is_given_arrives():
    given = {"max_new_tokens": 9, "temperature": 0.5, "top_p": 0.25, "top_k": 4, "stop_token_ids": [3, 3, 8]}
    made = prepared({**given, "ignore_eos": True, "sampling_seed": 11})
    assert made == Sampling(9, 0.5, 0.25, 4, 0, frozenset({3, 8}), True, 11)
    assert prepared({"min_new_tokens": 2}, OLD).min_new_tokens == 2
    assert prepare(NEW, item(), 512, 500, 506)[0] == [5, 6, 7]


def test_null_new_tokens_are_as_many_as_fit():
    """managers/scheduler.py:2695@0.5.23: no limit but the memory's."""
    assert prepared({"max_new_tokens": None}).max_new_tokens == 506 - 3 - 1
    engine = Driver("0.5.23", max_total_tokens=100)
    reply = engine.call("generate", {"input_ids": [5], "sampling_params": {"max_new_tokens": None, "ignore_eos": True}})
    assert reply.body["meta_info"]["finish_reason"] == {"type": "length", "length": 97}


@pytest.mark.parametrize(
    ("name", "good", "bad", "text"),
    [
        ("temperature", (0, 1e-9, 2.5, 1e9), (-0.01, math.inf, math.nan), "a non-negative finite number"),
        ("top_p", (0.01, 1, 1.0), (0, 0.0, 1.01, -1), "in (0, 1]"),
        ("min_p", (0, 0.5, 1), (-0.01, 1.01), "in [0, 1]"),
        ("top_k", (-1, 1, 2, 1 << 30), (0, -2), "-1 (disable) or at least 1"),
        ("frequency_penalty", (-2, 0, 2), (-2.01, 2.01), "in [-2, 2]"),
        ("presence_penalty", (-2, 0, 2), (-2.01, 2.01), "in [-2, 2]"),
        ("repetition_penalty", (0.01, 1, 2), (0, 2.01), "in (0, 2] (1.0 = no penalty)"),
        ("max_new_tokens", (0, 1, 128), (-1,), "at least 0"),
    ],
)
def test_the_range_of_every_parameter(name, good, bad, text):
    """sampling/sampling_params.py:252@0.5.23."""
    for value in good:
        prepared({name: value})
    for value in bad:
        assert said({name: value}) == f"{name} must be {text}, got {value}."


def test_a_temperature_that_is_no_number_is_pythons_own_error():
    with pytest.raises(TypeError):
        prepared({"temperature": "hot"}, PROFILES["0.5.21"])


def test_0_5_12_only_asks_that_a_temperature_is_not_negative():
    assert said({"temperature": -1}, OLD) == "temperature must be non-negative, got -1."
    assert prepared({"temperature": math.inf}, OLD).temperature == math.inf


def test_what_is_wrong_first_in_sglangs_order_is_told():
    wrong = {"max_new_tokens": -1, "top_k": 0, "top_p": 2, "temperature": -1}
    for name, text in [("temperature", "temper"), ("top_p", "top_p"), ("top_k", "top_k"), ("max_new_tokens", "max_")]:
        assert said(wrong).startswith(text)
        del wrong[name]


def test_min_new_tokens():
    """Refused without a tokenizer from 0.5.17 on; before that it only has to be in range."""
    assert said({"min_new_tokens": -1}, OLD) == "min_new_tokens must be in [0, max_new_tokens], got -1."
    assert (
        said({"min_new_tokens": 5, "max_new_tokens": 4}) == "min_new_tokens must be in [0, max_new_tokens(4)], got 5."
    )
    assert prepared({"min_new_tokens": 4, "max_new_tokens": 4}, OLD).min_new_tokens == 4
    text = "min_new_tokens=1 is unavailable when skip_tokenizer_init=True (requires tokenizer for eos_token_id)."
    assert said({"min_new_tokens": 1}) == text
    assert prepared({"min_new_tokens": 0}).min_new_tokens == 0


@pytest.mark.parametrize("name", ["stop", "stop_regex"])
def test_stop_texts_need_a_tokenizer_from_0_5_17(name):
    words = "is unavailable when skip_tokenizer_init=True (requires tokenizer to decode tokens to text for matching)."
    assert said({name: "end"}) == f"{name}=['end'] {words}"
    assert said({name: ["a", "b"]}) == f"{name}=['a', 'b'] {words}"
    for nothing in ([], None):
        prepared({name: nothing})
    prepared({name: "end"}, OLD)


@pytest.mark.parametrize("version", ORDER)
def test_a_name_that_sampling_params_does_not_have_is_a_type_error(version):
    """`choice` is only in the JSON contract; watermark came in 0.5.22, beam_width in 0.5.19."""
    late = {"choice"} | ({"watermark"} if version not in ("0.5.22", "0.5.23") else set())
    late |= {"beam_width"} if version in ("0.5.12.post1", "0.5.17", "0.5.18") else set()
    for name in SAMPLING_FIELDS:
        if name not in late:
            prepared({name: None}, PROFILES[version])
    for name in (*late, "bogus"):
        with pytest.raises(TypeError, match=f"Unexpected keyword argument '{name}'"):
            prepared({name: None}, PROFILES[version])


def test_lengths():
    """managers/tokenizer_manager.py:1310@0.5.23, managers/utils.py:259@0.5.23."""
    assert said({}, prompt=[1] * 512) == (
        "The input (512 tokens) is longer than the model's context length (512 tokens)."
    )
    assert said({"max_new_tokens": 0}, prompt=[1] * 500) == (
        "Input length (500 tokens) exceeds the maximum allowed length (500 tokens). "
        "Use a shorter input or enable --allow-auto-truncate."
    )
    assert prepared({"max_new_tokens": 0}, prompt=[1] * 499).max_new_tokens == 0
    assert said({"max_new_tokens": 510}) == (
        "Requested token count exceeds the model's maximum context length of 512 tokens. "
        "You requested a total of 513 tokens: 3 tokens from the input messages and 510 tokens for the completion. "
        "Please reduce the number of tokens in the input messages or the completion to fit within the limit."
    )
    assert prepared({"max_new_tokens": 509}).max_new_tokens == 502, "cut to what the memory holds"
    assert prepared({"max_new_tokens": 502}).max_new_tokens == 502
    assert prepared({"max_new_tokens": 501}).max_new_tokens == 501
    assert said({}, prompt=None).startswith("The engine initialized with skip_tokenizer_init=True cannot accept text")


def test_prompt_log_probabilities_start_inside_the_prompt_or_just_behind_it():
    prepared({}, logprobs=Logprobs(3, 0, None))
    prepared({}, logprobs=Logprobs(-1, 0, None))
    assert said({}, logprobs=Logprobs(4, 0, None)) == (
        "req.logprob_start_len=4 is higher than the number of input tokens len(req.origin_input_ids)=3. "
        "Please use a smaller logprob_start_len."
    )


def test_the_gate_is_only_there_from_0_5_22():
    body = generate_body(1, sampling={})
    body["sampling_params"]["top_k"] = 1.0
    for version in ORDER:
        reply = Driver(version).call("generate", body)
        if version in ("0.5.22", "0.5.23"):
            assert (reply.status, reply.body) == (400, {"error": "invalid type: floating point `1.0`, expected i64"})
        else:
            assert reply.status == 200
