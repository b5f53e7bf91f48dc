"""Remembered steps: the same answers as computed ones, and never more than the budget."""

from typing import Any

import numpy as np
import pytest

from fakes.engine import batching
from fakes.engine.memo import SHARED, StepMemo
from tests.fakes.engine.control.driver import PROMPT, Driver, generate_body


def story(**config: Any) -> list[list[int]]:
    """Clean, stale and torn serving, a prefix of another length, a sampled request."""
    engine = Driver("0.5.20", **config)
    told = [engine.generate(12), engine.generate(12, PROMPT[:3])]
    engine.update(seed=1, flush_cache=False)
    told += [engine.generate(12), engine.generate(6, [*PROMPT, 7])]
    names = engine.weights(2)
    engine.update({name: names[name] for name in list(names)[:4]})
    told.append(engine.generate(12))
    sampled = {"input_ids": PROMPT, "sampling_params": {"temperature": 1.0, "max_new_tokens": 6, "sampling_seed": 1}}
    told.append(engine.call("generate", sampled).body["output_ids"])
    logprobs = engine.call("generate", generate_body(4, return_logprob=True)).body["meta_info"]
    told.append([round(row[0] * 1e6) for row in logprobs["output_token_logprobs"]])
    return told


@pytest.mark.parametrize("tp", [1, 2])
def test_a_remembered_step_says_what_a_computed_one_says(tp: int) -> None:
    SHARED.clear()
    cold = story(tp_size=tp)
    assert story(tp_size=tp) == cold
    SHARED.clear()
    assert story(tp_size=tp) == cold


def test_stale_steps_are_never_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    memo = StepMemo()
    monkeypatch.setattr(batching, "SHARED", memo)
    engine = Driver("0.5.20")
    engine.generate(4)
    engine.update(seed=1, flush_cache=False)
    stale = engine.generate(4)
    assert {key[1] for key in memo._entries} == {engine.named("serve")[0]["weights"]}, "only what the old weights made"
    engine.call("flush_cache")
    assert engine.generate(4) != stale
    assert engine.generate(4) == engine.expected(1, 4)


def test_models_do_not_share() -> None:
    assert Driver("0.5.20", dtype="float32").generate(8) != [] != Driver("0.5.20", shape="qwen2").generate(8)
    keys = {key[0] for key in SHARED._entries}
    Driver("0.5.20", tp_size=2).generate(2)
    assert len({key[0] for key in SHARED._entries} | keys) >= 3


def test_the_oldest_step_goes_first() -> None:
    memo = StepMemo(max_bytes=3 * 128)
    row = np.zeros(16, np.float32)
    for token in range(3):
        memo.put(("m", "s", (token,)), row, row)
    assert memo.get(("m", "s", (0,)), 1) is not None
    memo.put(("m", "s", (9,)), row, row)
    assert memo.get(("m", "s", (1,)), 1) is None
    assert memo.get(("m", "s", (0,)), 1) is not None
    assert memo.get(("m", "s", (0,)), 17) is None, "only the KV of the tokens that were asked for"
