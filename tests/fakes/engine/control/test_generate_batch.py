"""How a /generate body falls apart into prompts: managers/io_struct.py:406-860@0.5.23, sentence by sentence."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.generate_batch import build
from fakes.engine.protocol import Raised
from fakes.engine.request import Logprobs
from tests.fakes.engine.control.driver import Driver, generate_body

TWO = [[5, 6], [7]]


def items(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(i.rid, i.prompt, i.text, i.sampling, i.logprobs, i.extra_key) for i in build(body).items]


def said(body: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as error:
        build(body)
    return str(error.value)


@pytest.mark.parametrize(
    ("body", "single", "prompts", "texts"),
    [
        ({"input_ids": [5, 6]}, True, [[5, 6]], [None]),
        ({"input_ids": [0]}, True, [[0]], [None]),
        ({"input_ids": [[5, 6]]}, False, [[5, 6]], [None]),
        ({"input_ids": TWO}, False, TWO, [None, None]),
        ({"text": "abc"}, True, [None], ["abc"]),
        ({"text": ""}, True, [None], [None]),
        ({"text": ["a"]}, False, [None], ["a"]),
        ({"text": ["a", "b"]}, False, [None, None], ["a", "b"]),
        ({"text": "a", "input_ids": [5]}, True, [[5]], ["a"]),
        ({"text": ["a", "b"], "input_ids": TWO}, False, TWO, ["a", "b"]),
    ],
)
def test_a_list_of_prompts_is_a_batch_and_text_decides_first(body, single, prompts, texts):
    request = build(body)
    assert (request.single, request.stream, request.n) == (single, False, 1)
    assert [item.prompt for item in request.items] == prompts
    assert [item.text for item in request.items] == texts


def test_nothing_that_was_not_asked_for():
    assert items({"input_ids": TWO}) == [(None, [5, 6], None, {}, None, None), (None, [7], None, {}, None, None)]
    assert items({"input_ids": [5]}) == [(None, [5], None, {}, None, None)]


@pytest.mark.parametrize("body", [{}, {"text": None, "input_ids": None}])
def test_no_prompt_is_refused(body):
    assert said(body) == "Either text, input_ids or input_embeds should be provided."


@pytest.mark.parametrize("ids", [[], [[]], [[5], []]])
def test_an_empty_prompt_is_refused(ids):
    assert said({"input_ids": ids}) == "input_ids cannot be empty."


def test_one_value_is_for_all_prompts_and_a_list_is_one_for_each():
    alike = {"input_ids": TWO, "sampling_params": {"top_k": 3}, "extra_key": "k"}
    assert [(i[3], i[5]) for i in items(alike)] == [({"top_k": 3}, "k")] * 2
    apart = {"input_ids": TWO, "sampling_params": [{"top_k": 3}, {}], "extra_key": ["k", "l"]}
    assert [(i[3], i[5]) for i in items(apart)] == [({"top_k": 3}, "k"), ({}, "l")]


def test_log_probabilities_are_wanted_by_all_or_by_each():
    body = {"input_ids": TWO, "return_logprob": True, "logprob_start_len": 1, "top_logprobs_num": 2}
    assert [i[4] for i in items(body)] == [Logprobs(1, 2, None)] * 2
    body = {
        "input_ids": TWO,
        "return_logprob": [False, True],
        "logprob_start_len": [0, None],
        "top_logprobs_num": [1, None],
    }
    assert [i[4] for i in items(body)] == [None, Logprobs(-1, 0, None)]
    assert items({"input_ids": [5], "return_logprob": True})[0][4] == Logprobs(-1, 0, None)
    assert items({"input_ids": [5], "return_logprob": True, "logprob_start_len": 0})[0][4] == Logprobs(0, 0, None)
    assert items({"input_ids": [5], "return_logprob": False, "top_logprobs_num": 2})[0][4] is None


@pytest.mark.parametrize(
    ("ids", "given", "wanted"),
    [
        ([5], [1, 2], [(1, 2)]),
        ([5], [], [None]),
        ([5], None, [None]),
        (TWO, None, [None, None]),
        (TWO, 3, [(3,), (3,)]),
        (TWO, [1, 2], [(1, 2), (1, 2)]),
        (TWO, [[1], [2, 3]], [(1,), (2, 3)]),
    ],
)
def test_token_ids_are_one_list_for_all_or_a_list_of_lists(ids, given, wanted):
    found = items({"input_ids": ids, "return_logprob": True, "token_ids_logprob": given})
    assert [i[4].token_ids for i in found] == wanted


@pytest.mark.parametrize(
    ("ids", "rid", "rids"),
    [
        ([5], "r", ["r"]),
        (TWO, "r", ["r_0", "r_1"]),
        (TWO, ["a", "b"], ["a", "b"]),
        ([[5]], ["a"], ["a"]),
        (TWO, None, [None, None]),
    ],
)
def test_request_ids(ids, rid, rids):
    assert [i[0] for i in items({"input_ids": ids, "rid": rid})] == rids


def test_request_ids_that_do_not_fit_are_refused():
    mismatch = "The specified rids length mismatch with the batch_size for batch processing."
    assert said({"input_ids": TWO, "rid": ["a"]}) == mismatch
    assert said({"input_ids": TWO, "rid": ["a", "a", "b"]}) == mismatch
    three = [*TWO, [8], [9]]
    twice = "Duplicate request IDs detected within the request: ['b', 'a']"
    assert said({"input_ids": three, "rid": ["b", "a", "a", "b"]}) == twice


def test_several_answers_make_a_batch_of_one_prompt():
    request = build({"input_ids": [5], "rid": "r", "sampling_params": {"n": 3}, "stream": True})
    assert (request.single, request.stream, request.n) == (False, True, 3)
    assert [(i.rid, i.prompt) for i in request.items] == [("r_0", [5])]
    assert build({"input_ids": [5], "sampling_params": {"n": 1}}).single
    assert build({"input_ids": [5], "sampling_params": {"n": None}}).n == 1
    assert build({"input_ids": TWO, "sampling_params": [{"n": 2}, {"n": 2}]}).n == 2
    assert build({"input_ids": TWO, "sampling_params": [{"n": 1}, {}]}).n == 1
    assert build({"input_ids": TWO, "sampling_params": [{"n": None}, {"n": None}]}).n == 1


def test_prompts_with_different_numbers_of_answers_are_refused():
    text = "The parallel_sample_num should be the same for all samples in sample params."
    assert said({"input_ids": TWO, "sampling_params": [{"n": 2}, {}]}) == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("return_logprob", [True]),
        ("logprob_start_len", [0]),
        ("top_logprobs_num", [1]),
        ("token_ids_logprob", [[1]]),
    ],
)
def test_several_answers_want_one_value_for_all(name, value):
    body = {"input_ids": [[5]], "sampling_params": {"n": 2}, name: value}
    assert said(body) == f"Cannot use list {name} with parallel_sample_num > 1"


def test_a_flat_list_of_token_ids_goes_with_several_answers():
    body = {"input_ids": [5], "sampling_params": {"n": 2}, "return_logprob": True, "token_ids_logprob": [1]}
    assert items(body)[0][4].token_ids == (1,)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"input_ids": [5], "sampling_params": [{}]}, Raised("AttributeError", "'list' object has no attribute 'get'")),
        ({"input_ids": TWO, "sampling_params": [{}]}, Raised("IndexError", "list index out of range")),
        ({"input_ids": TWO, "sampling_params": []}, Raised("IndexError", "list index out of range")),
        ({"input_ids": TWO, "return_logprob": [True]}, Raised("IndexError", "list index out of range")),
        ({"input_ids": [5], "rid": ["a"]}, Raised("TypeError", "unhashable type: 'list'")),
        ({"input_ids": [5], "rid": ["a", "b"]}, Raised("TypeError", "unhashable type: 'list'")),
    ],
)
def test_a_list_that_does_not_fit_the_batch_is_a_bare_500(body, error):
    engine = Driver("0.5.23")
    reply = engine.call("generate", body)
    assert (reply.status, reply.body, reply.value) == (500, "Internal Server Error", error)
    assert engine.call("generate", generate_body(1)).status == 200


def test_more_answers_than_anybody_wants_are_refused_before_they_are_made():
    assert said({"input_ids": TWO, "sampling_params": {"n": 5_001}}) == (
        "the fake gives at most 10000 answers to a call; this one asks for 10002"
    )
    assert len(build({"input_ids": TWO, "sampling_params": {"n": 5_000}}).items) == 2
