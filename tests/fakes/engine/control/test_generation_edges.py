"""Edges of a generation and of routes: names used again, spans at their end, the longest prompt, odd paths."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.generation import _put_spans
from tests.fakes.engine.control.driver import Driver, generate_body


def test_the_name_of_a_request_that_was_aborted_in_the_queue_is_free_again() -> None:
    """rid_to_state forgets it with its answer (managers/tokenizer_manager.py:3577@0.5.23)."""
    engine = Driver("0.5.23", max_running_requests=1)
    engine.start("generate", generate_body(60))
    queued = engine.start("generate", generate_body(4, [1], rid="b"))
    engine.advance(0.02)
    engine.call("abort_request", {"rid": "b"})
    assert engine.result(queued).body["meta_info"]["finish_reason"]["type"] == "abort"
    assert engine.call("generate", generate_body(4, [1], rid="b")).status == 200


@pytest.mark.parametrize(("count", "kept"), [(0, [0]), (2, [0]), (3, [0, 2]), (9, [0, 2])])
def test_a_span_of_no_answered_token_is_not_told(count: int, kept: list[int]) -> None:
    """utils/weight_versions.py:90@0.5.23."""
    spans = [{"version": "a", "start": 0, "end": 2}, {"version": "b", "start": 2, "end": 5}]
    meta: dict[str, Any] = {}
    _put_spans(meta, spans, count)
    assert [span["start"] for span in meta["weight_versions"]] == kept
    assert all(span["end"] <= count for span in meta["weight_versions"])
    assert meta["weight_version"] == ("a" if len(kept) == 1 else "b")


def test_one_best_token_is_told() -> None:
    engine = Driver("0.5.23")
    meta = engine.call("generate", generate_body(3, return_logprob=True, top_logprobs_num=1)).body["meta_info"]
    assert [len(row) for row in meta["output_top_logprobs"]] == [1, 1, 1]


def test_the_longest_prompt_that_a_small_pool_takes() -> None:
    """max_req_len is one less than the pool, and the prompt at least 5 less (managers/tp_worker.py@0.5.23)."""
    taken = [
        length
        for length in range(50, 66)
        if Driver("0.5.23", max_total_tokens=64).call("generate", generate_body(1, [7] * length)).status == 200
    ]
    assert max(taken) == 57


@pytest.mark.parametrize(("path", "status"), [("health/", 307), ("health~/", 404), ("health~", 404), ("nowhere/", 404)])
def test_odd_paths(path: str, status: int) -> None:
    """Starlette redirects a slash too many, and nothing else."""
    assert Driver("0.5.23").call(path, method="GET").status == status


def test_an_engine_in_process_has_no_attribute_of_any_other_name() -> None:
    engine = Driver("0.5.23")
    reply = engine.call("~nothing", {}, via="engine")
    assert reply.value.message == "'Engine' object has no attribute '~nothing'"
    assert engine.call("model_info", via="engine").value["model_path"] == "/models/tiny"
