"""The fake's model against the tokens and log-probabilities of the real engine (validated: 0.5.23, cpu)."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.checker import CheckerRules, WeightChecker, engine_checksum
from fakes.engine.model import log_softmax
from tests.fakes.engine.data.recorded import model_of, ranks_of, run_id, runs

RUNS = runs("tokens.json.xz")
BFLOAT16_STEP = 2**-7  # of a logit between 1 and 2


def replay(model, case):
    """Per generated token: what the real engine chose, and our log-probabilities after the same tokens."""
    kv, feed = model.empty_kv(), case["prompt"]
    for token in case["tokens"]:
        logits, new = model.forward(feed, kv, last_only=True)
        kv.append(new)
        yield token, log_softmax(logits[-1])
        feed = [token]


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_greedy_tokens_are_those_of_the_real_engine(run):
    model = model_of(run)
    wrong = []
    for case in run["cases"]:
        for token, ours in replay(model, case):
            if int(ours.argmax()) != token and ours.max() - ours[token] > (
                0 if run["dtype"] == "float32" else BFLOAT16_STEP
            ):
                wrong.append((case["prompt"], token, int(ours.argmax())))
    assert not wrong


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_log_probabilities_are_those_of_the_real_engine(run):
    model = model_of(run)
    atol = 1e-4 if run["dtype"] == "float32" else 0.05
    for case in run["cases"]:
        ours = [logprobs[token] for token, logprobs in replay(model, case)]
        np.testing.assert_allclose(ours, case["logprobs"], atol=atol)


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_prompt_log_probabilities_are_those_of_the_real_engine(run):
    model = model_of(run)
    atol = 1e-4 if run["dtype"] == "float32" else 0.05
    for case in run["cases"]:
        logits, _ = model.forward(case["prompt"])
        logprobs = log_softmax(logits)
        ours = [logprobs[at][token] for at, token in enumerate(case["prompt"][1:])]
        assert case["input_logprobs"][0] is None
        np.testing.assert_allclose(ours, case["input_logprobs"][1:], atol=atol)


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_checksums_are_those_of_the_real_engine(run):
    infos = [WeightChecker(rank, CheckerRules()).handle("checksum") for rank in ranks_of(run)]
    assert infos == run["checksum"]["ranks"]
    assert [list(info["checksums"]) for info in infos] == [list(r["checksums"]) for r in run["checksum"]["ranks"]]
    assert engine_checksum([info["per_gpu_checksum"] for info in infos]) == run["checksum"]["per_engine_checksum"]


def test_the_recorded_runs_cover_every_shape_dtype_and_tp_2():
    assert {run["shape"] for run in RUNS} == {"llama", "qwen2", "qwen3"}
    assert {run["dtype"] for run in RUNS} == {"float32", "bfloat16"}
    assert any(run["tp"] == 2 for run in RUNS)
    assert any(run["tied"] for run in RUNS)
