"""What a /generate body may hold at the edges of its fields, by version."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.generate_features import refusal
from fakes.engine.generate_fields import typed_structs
from fakes.engine.generate_schema import check_schema
from fakes.engine.messages import LORA_OFF
from fakes.engine.penalties import NONE
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.request import Logprobs, Req, Sampling
from fakes.engine.routes import routes
from tests.fakes.engine.control.driver import PROMPT, Driver, generate_body


@pytest.mark.parametrize("version", ORDER)
def test_thinking_tokens_are_unknown_to_0_5_12_and_off_later(version: str) -> None:
    """managers/tokenizer_manager.py:911@0.5.23."""
    status = Driver(version).call("generate", generate_body(1, max_thinking_tokens=5)).status
    assert status == (200 if version == "0.5.12.post1" else 400)


@pytest.mark.parametrize(("lora", "name"), [("a", "a"), (["a", "b"], "a"), ([None, "b"], "b")])
def test_the_first_adapter_is_named(lora: Any, name: str) -> None:
    assert refusal(PROFILES["0.5.23"], {"lora_path": lora}, 8) == LORA_OFF(adapter=name)


@pytest.mark.parametrize(("token", "fits"), [("0", True), ("7", True), ("8", False), ("-1", False)])
def test_a_bias_is_of_a_token_of_the_vocabulary(token: str, fits: bool) -> None:
    """sampling/sampling_params.py:298@0.5.23."""
    said = refusal(PROFILES["0.5.23"], {"sampling_params": {"logit_bias": {token: 1.0}}}, 8)
    assert (said == "") is fits


@pytest.mark.parametrize(
    ("ids", "wrong"), [([8, 1], 8), ([1, 8], 8), ([[8], [1]], 8), ([[1], [8]], 8), ([[0, 7]], None)]
)
def test_every_token_id_is_looked_at(ids: Any, wrong: int | None) -> None:
    said = refusal(PROFILES["0.5.23"], {"token_ids_logprob": ids}, 8)
    assert (str(wrong) in said) if wrong is not None else said == ""


def test_which_structs_a_version_has() -> None:
    names = {version: set(typed_structs(PROFILES[version])) for version in ORDER}
    base = {"GenerateReqInput", "ImageData", "VideoData"}
    assert names["0.5.12.post1"] == names["0.5.18"] == base
    assert names["0.5.20"] == names["miles"] == {*base, "WeightVersionSpan"}
    assert names["0.5.23"] == {*base, "WeightVersionSpan", "KvHintsEnvelope", "KvHintAction"}
    assert typed_structs(PROFILES["miles"]) == typed_structs(PROFILES["0.5.19"])


def test_the_smallest_token_id_of_64_bits() -> None:
    """utils/field_validators.py:36@0.5.17."""
    p = PROFILES["0.5.23"]
    body = {"input_ids": [-(2**63), 2**63 - 1]}
    assert check_schema(p, routes(p)["/generate"], "POST", body) == body


@pytest.mark.parametrize("name", ["sampling_params", "session_params", "external_trace_header"])
def test_keys_of_an_object_are_not_looked_at_up_to_0_5_12(name: str) -> None:
    """managers/io_struct.py@0.5.12.post1: Dict, where pydantic takes a key that is no UTF-8; later bodies cannot hold
    one."""
    p = PROFILES["0.5.12.post1"]
    body = {name: {"\ud800": 1}}
    assert check_schema(p, routes(p)["/generate"], "POST", body) == body


def test_no_penalties_leave_the_very_logits() -> None:
    import numpy as np

    logits = np.zeros(4, np.float32)
    assert NONE.apply(logits, [1]) is logits


def test_a_request_for_one_token_has_its_chosen_ones_alone() -> None:
    """managers/scheduler.py:3260@0.5.23."""
    wanted = Logprobs(token_ids=(1,))
    starts = [Req("r", list(PROMPT), Sampling(max_new_tokens=n), logprobs=wanted).logprob_start() for n in (0, 1, 2)]
    assert starts == [len(PROMPT), None, None]


def test_a_min_p_of_one_leaves_the_best_token() -> None:
    """probs >= max * min_p (layers/sampler.py@0.5.23)."""
    hot = {"temperature": 1.0, "min_p": 1.0, "max_new_tokens": 4, "ignore_eos": True}
    engine = Driver("0.5.23")
    sampled = engine.call("generate", {"input_ids": PROMPT, "sampling_params": hot}).body["output_ids"]
    assert sampled == engine.generate(4)


def test_cached_tokens_and_own_ones_make_up_a_request() -> None:
    """What the cache had replaces what was computed again, token by token (mem_cache/radix_cache.py@0.5.23)."""
    engine = Driver("0.5.23")
    engine.generate(1, PROMPT[:3])
    engine.start("generate", generate_body(20, PROMPT, return_logprob=True, logprob_start_len=0))
    engine.advance(0.02)
    (req,) = engine.core.scheduler.batch.in_flight()
    assert req.kv is not None
    assert len(req.states) == len(req.kv) >= len(PROMPT)
