"""Requests that kill a version: what it needs a tokenizer for, and log-probabilities of a prompt on a CPU."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import PROMPT, Driver, generate_body

OLD, NEXT = "0.5.12.post1", "0.5.17"
NO_TOKENIZER = Raised("AttributeError", "'NoneType' object has no attribute 'additional_stop_token_ids'")
NO_DECODER = Raised("AttributeError", "'NoneType' object has no attribute 'decode'")
NO_PINNED_MEMORY = Raised(
    "RuntimeError",
    "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is available on this "
    "system.",
)


def body(new: int = 4, sampling: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "input_ids": PROMPT,
        "sampling_params": {"temperature": 0, "max_new_tokens": new, "ignore_eos": True, **(sampling or {})},
        **more,
    }


@pytest.mark.parametrize(
    ("sampling", "error", "said"),
    [
        ({"min_new_tokens": 3}, NO_TOKENIZER, "min_new_tokens=3 is unavailable"),
        ({"min_new_tokens": 3, "stop_token_ids": [1]}, NO_TOKENIZER, "min_new_tokens=3 is unavailable"),
        ({"stop": "x"}, NO_DECODER, "stop=['x'] is unavailable"),
        ({"stop": ["x", "y"]}, NO_DECODER, "stop=['x', 'y'] is unavailable"),
        ({"stop": ""}, NO_DECODER, "stop=[''] is unavailable"),
        ({"stop_regex": "x+"}, NO_DECODER, "stop_regex=['x+'] is unavailable"),
    ],
)
def test_what_needs_a_tokenizer_kills_0_5_12_and_is_refused_later(sampling, error, said) -> None:
    old = Driver(OLD)
    assert old.call("generate", body(sampling=sampling)).ending == "dropped"
    assert old.died is not None
    assert old.died.error == error
    new = Driver(NEXT)
    reply = new.call("generate", body(sampling=sampling))
    assert reply.status == 400
    assert said in reply.body["error"]["message"]
    assert new.call("generate", body()).ok


@pytest.mark.parametrize(
    ("new", "sampling"), [(4, {"min_new_tokens": 0}), (4, {"stop": []}), (1, {"stop": "x"}), (0, {"stop": "x"})]
)
def test_what_needs_no_tokenizer_after_all(new, sampling) -> None:
    """A first token that is the last one is compared with no text (managers/schedule_batch.py:1215@0.5.12.post1)."""
    engine = Driver(OLD)
    assert engine.call("generate", body(new, sampling)).ok
    assert engine.died is None


@pytest.mark.parametrize("version", [OLD, NEXT])
@pytest.mark.parametrize("stop", [True, 1, [None], [1]])
def test_what_has_no_length_is_a_bare_500(version, stop) -> None:
    engine = Driver(version)
    assert engine.call("generate", body(sampling={"stop": stop})).status == 500
    assert engine.call("generate", body()).ok


def test_a_paused_engine_dies_of_such_a_request_when_it_goes_on() -> None:
    engine = Driver(OLD)
    engine.call("pause_generation", {"mode": "retract"})
    engine.core.scheduler.inbox.append(("generate", {"req": _queued({"min_new_tokens": 1})}))
    engine.advance(1.0)
    assert engine.died is None
    engine.call("continue_generation", {})
    engine.advance(1.0)
    assert engine.died is not None
    assert engine.died.error == NO_TOKENIZER


def _queued(sampling: dict[str, Any]) -> Any:
    from fakes.engine.request import Req, Sampling

    return Req("waits", PROMPT, Sampling(max_new_tokens=4, **sampling))


WANTED = {"return_logprob": True}


@pytest.mark.parametrize(
    ("more", "dies"),
    [
        (WANTED, False),
        ({**WANTED, "logprob_start_len": 0}, True),
        ({**WANTED, "logprob_start_len": 4}, True),
        ({**WANTED, "logprob_start_len": 5}, False),
        ({**WANTED, "top_logprobs_num": 2}, False),
        ({**WANTED, "token_ids_logprob": [1]}, False),
        ({"logprob_start_len": 0}, False),
    ],
)
def test_log_probabilities_of_the_prompt_kill_0_5_12_on_a_cpu(more, dies) -> None:
    engine = Driver(OLD)
    assert (engine.call("generate", body(**more)).ending == "dropped") is dies
    assert (engine.died.error if engine.died else None) == (NO_PINNED_MEMORY if dies else None)
    for version, device in ((OLD, "cuda"), (NEXT, "cpu")):
        other = Driver(version, device=device)
        assert other.call("generate", body(**more)).ok, (version, device)


@pytest.mark.parametrize(("more", "dies"), [({}, False), (WANTED, True), ({**WANTED, "token_ids_logprob": [1]}, False)])
def test_a_retracted_request_counts_its_output_as_prompt(more, dies) -> None:
    """managers/schedule_batch.py:1335@0.5.12.post1: from len(prompt) on, in a prefill of prompt and output."""
    engine = Driver(OLD)
    running = engine.start("generate", {**generate_body(80), **more})
    engine.advance(0.1)
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("continue_generation", {})
    assert (engine.result(running).ending == "dropped") is dies
    assert (engine.died.error if engine.died else None) == (NO_PINNED_MEMORY if dies else None)
