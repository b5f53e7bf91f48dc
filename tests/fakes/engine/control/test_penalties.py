"""Penalties over the output, a bias, min_p: greedy answers are those of changed logits; grammars are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.engine.penalties import NONE, Penalties
from fakes.engine.profiles import ORDER
from fakes.engine.request import Req, Sampling, choose
from tests.fakes.engine.control.driver import PROMPT, Driver

LOGITS = np.array([1.0, -2.0, 3.0, 0.5], dtype=np.float32)


@pytest.mark.parametrize(
    ("made", "output", "wanted"),
    [
        (NONE, [2, 2], [1.0, -2.0, 3.0, 0.5]),
        (Penalties(frequency=0.5), [2, 2, 0], [0.5, -2.0, 2.0, 0.5]),
        (Penalties(presence=0.5), [2, 2, 0], [0.5, -2.0, 2.5, 0.5]),
        (Penalties(repetition=2.0), [1, 2], [1.0, -4.0, 1.5, 0.5]),
        (Penalties(frequency=2.0, presence=2.0, repetition=2.0), [2], [1.0, -2.0, -2.0, 0.5]),
        (Penalties(repetition=2.0, bias=((2, 10.0), (1, -1.0))), [2], [1.0, -3.0, 11.5, 0.5]),
        (Penalties(frequency=1.0, presence=1.0, repetition=2.0), [], [1.0, -2.0, 3.0, 0.5]),
    ],
)
def test_what_becomes_of_logits(made: Penalties, output: list[int], wanted: list[float]) -> None:
    kept = LOGITS.copy()
    assert made.apply(LOGITS, output).tolist() == wanted
    assert (kept == LOGITS).all(), "they may be in a memo"


def asked(engine: Driver, new: int, sampling: dict[str, Any] | None = None, prompt: Any = PROMPT, **more: Any) -> Any:
    body = {"temperature": 0, "max_new_tokens": new, "ignore_eos": True, **(sampling or {})}
    reply = engine.call("generate", {"input_ids": list(prompt), "sampling_params": body, **more})
    assert reply.status == 200, reply
    return reply.body


@pytest.mark.parametrize("version", ORDER)
@pytest.mark.parametrize(("name", "value"), [("frequency_penalty", 1.5), ("presence_penalty", -2.0)])
def test_a_greedy_answer_is_that_of_the_penalised_logits(version: str, name: str, value: float) -> None:
    engine, output = Driver(version), []
    every = {"return_logprob": True, "token_ids_logprob": list(range(512))}
    for _ in range(12):
        meta = asked(engine, 1, prompt=[*PROMPT, *output], **every)["meta_info"]
        logits = np.array([row[0] for row in meta["output_token_ids_logprobs"][0]])
        for token in output if name == "frequency_penalty" else set(output):
            logits[token] -= value
        output.append(int(logits.argmax()))
    assert asked(engine, 12, {name: value})["output_ids"] == output
    assert asked(engine, 12)["output_ids"] != output, "it made a difference"


def test_a_bias_forces_a_token_and_shows_in_its_log_probability() -> None:
    body = asked(Driver("0.5.23"), 3, {"logit_bias": {"7": 1000.0}}, return_logprob=True)
    assert body["output_ids"] == [7, 7, 7]
    assert [row[0] for row in body["meta_info"]["output_token_logprobs"]] == [0.0, 0.0, 0.0]


def test_a_retracted_request_is_forgiven_what_it_said() -> None:
    """A prefill makes the counts anew (sampling/penaltylib/orchestrator.py@0.5.23)."""
    engine = Driver("0.5.23")
    sampling = {"frequency_penalty": 2.0}
    call = engine.start(
        "generate",
        {
            "input_ids": PROMPT,
            "sampling_params": {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True, **sampling},
        },
    )
    engine.advance(0.1)
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("continue_generation", {})
    forgiven = engine.result(call).body["output_ids"]
    whole = asked(engine, 60, sampling)["output_ids"]
    assert forgiven[:10] == whole[:10]
    assert forgiven != whole


@pytest.mark.parametrize(("bias", "told"), [("512", "512"), ("-1", "-1")])
def test_a_bias_outside_the_vocabulary_is_refused(bias: str, told: str) -> None:
    reply = Driver("0.5.17").call("generate", {"input_ids": PROMPT, "sampling_params": {"logit_bias": {bias: 1.0}}})
    assert reply.status == 400
    assert reply.body["error"]["message"] == f"logit_bias must has keys in [0, 511], got {told}."


def test_min_p_leaves_what_is_likely_enough() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    found = set()
    for number in range(200):
        req = Req("r", [1], Sampling(temperature=1.0, min_p=0.4), number=number)
        found.add(choose(req, logits, 0)[0])
    assert found == {0, 1}


@pytest.mark.parametrize("version", ORDER)
@pytest.mark.parametrize("name", ["json_schema", "regex", "ebnf", "structural_tag"])
def test_grammars_need_a_tokenizer(version: str, name: str) -> None:
    engine = Driver(version)
    body = {"input_ids": PROMPT, "sampling_params": {name: "x", "max_new_tokens": 2}}
    reply = engine.call("generate", body)
    assert reply.status == 400
    assert reply.body["error"]["message"].startswith("Grammar-based generation (json_schema, regex, ebnf,")
    body["sampling_params"] = {name: None, "max_new_tokens": 2}
    assert engine.call("generate", body).status == 200
