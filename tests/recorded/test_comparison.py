"""The comparison can fail: every kind of planted difference is found, and what may differ is not taken for one."""

from dataclasses import replace

import numpy as np
import pytest

from real_runs.comparing import Answer, Exchange, differences
from real_runs.replaying import NearTies

META = {
    "id": "0" * 32,
    "finish_reason": {"type": "length", "length": 3},
    "weight_version": "v1",
    "e2e_latency": 0.5,
    "output_token_logprobs": [[-1.0, 5, None], [-2.0, 6, None], [-3.0, 7, None]],
}
REPLY = Answer("generate", {"input_ids": [1, 2]}, "reply", 200, {"output_ids": [5, 6, 7], "meta_info": META})


def exchange(answer, *, died=False, name="x"):
    return Exchange({"name": name}, (answer,), died)


def with_body(**changes):
    return replace(REPLY, body={**REPLY.body, **changes})


def with_meta(**changes):
    return with_body(meta_info={**META, **changes})


def found(real, fake, **options):
    return [difference.what for difference in differences(exchange(real), exchange(fake), **options)]


def test_the_same_is_the_same():
    assert found(REPLY, REPLY) == []


@pytest.mark.parametrize(
    ("fake", "what"),
    [
        (replace(REPLY, status=400), "status"),
        (replace(REPLY, ending="dropped", status=None, body=None), "ending"),
        (with_body(output_ids=[5, 6, 8]), "body.output_ids[2]"),
        (with_body(output_ids=[5, 6]), "body.output_ids length"),
        (with_meta(weight_version="v2"), "body.meta_info.weight_version"),
        (with_meta(cached_tokens=0), "body.meta_info keys"),
        (with_meta(finish_reason={"type": "stop", "length": 3}), "body.meta_info.finish_reason.type"),
        (with_meta(output_token_logprobs=[[-1.01, 5, None], *META["output_token_logprobs"][1:]]), "logprobs"),
        (replace(REPLY, body="text"), "body"),
        (replace(REPLY, body=None), "body"),
    ],
)
def test_a_planted_difference_is_found(fake, what):
    assert [w for w in found(REPLY, fake) if what in w], found(REPLY, fake)


def test_a_death_that_only_one_side_died_is_found():
    real, fake = exchange(REPLY, died=True), exchange(REPLY, died=False)

    assert [difference.what for difference in differences(real, fake)] == ["death"]


def test_after_a_death_a_quick_caller_may_be_dropped_or_refused():
    first, late = replace(REPLY, ending="dropped", status=None, body=None), replace(REPLY, ending="refused", body=None)
    real = Exchange({"name": "x"}, (first, replace(late, ending="dropped")), True)

    assert differences(real, Exchange({"name": "x"}, (first, late), True)) == []
    assert differences(real, Exchange({"name": "x"}, (first, REPLY), True)) != []
    assert differences(real, Exchange({"name": "x"}, (late, late), True)) != []


def test_a_call_too_many_is_found():
    fake = Exchange({"name": "x"}, (REPLY, REPLY), False)

    assert [difference.what for difference in differences(exchange(REPLY), fake)] == ["number of calls"]


@pytest.mark.parametrize(
    "fake",
    [
        with_meta(id="f" * 32),
        with_meta(e2e_latency=9.0),
        with_meta(output_token_logprobs=[[-1.00001, 5, None], *META["output_token_logprobs"][1:]]),
    ],
)
def test_what_differs_from_run_to_run_is_no_difference(fake):
    assert found(REPLY, fake) == []


def stream(*lengths, **meta):
    """Chunks of a stream with that many tokens; the first has a time stamp."""
    chunks = [
        {
            "output_ids": [5, 6, 7][:length],
            "meta_info": {"x": 1, **({"response_sent_to_client_ts": 1.0} if first else {})},
        }
        for length, first in zip(lengths, [True] + [False] * 9, strict=False)
    ]
    chunks[-1]["meta_info"] |= meta
    return replace(REPLY, body={"stream": [*chunks, "[DONE]"]})


def test_a_slow_server_may_send_steps_as_one_chunk():
    assert found(stream(1, 2, 3), stream(1, 2, 3)) == []
    assert found(stream(2, 3), stream(1, 2, 3)) == []
    assert found(stream(3), stream(1, 2, 3)) == []


@pytest.mark.parametrize(
    ("real", "fake"),
    [
        (stream(1, 2, 3), stream(2, 3)),
        (stream(2, 3, y=1), stream(1, 2, 3)),
        (stream(1, 2), stream(1, 3)),
        (stream(1, 3), stream(1, 2)),
        (replace(REPLY, body={"stream": stream(2, 3).body["stream"][:-1]}), stream(1, 2, 3)),
    ],
)
def test_other_streams_differ(real, fake):
    assert found(real, fake) != []


def answer(body, compare="exact"):
    return Answer("weights_checker", {}, "reply", 200, body, compare)


def test_digests_are_compared_by_which_are_equal():
    real = answer({"a": "0123456789abcdef", "b": "0123456789abcdef", "c": "fedcba9876543210"})
    same = answer({"a": "1111111111111111", "b": "1111111111111111", "c": "2222222222222222"})
    other = answer({"a": "1111111111111111", "b": "2222222222222222", "c": "2222222222222222"})

    assert found(real, same) == []
    assert found(real, other) != []


def test_errors_against_random_values_differ_but_not_their_counts():
    real = answer({"message": "name=x max_abs_err=0.12345 mean_abs_err=0.5 num_exceed=64 "})
    other = answer({"message": "name=x max_abs_err=0.9 mean_abs_err=0.1 num_exceed=64 "})
    fewer = answer({"message": "name=x max_abs_err=0.12345 mean_abs_err=0.5 num_exceed=63 "})

    assert found(real, other) == []
    assert found(real, fewer) == ["body.message"]


def test_an_integer_is_no_string_and_true_is_no_one():
    assert found(answer({"a": 1}), answer({"a": "1"})) == ["body.a"]
    assert found(answer({"a": 1}), answer({"a": True})) == ["body.a"]


def test_keys_only():
    assert found(answer({"a": 1, "b": 2}, "keys"), answer({"a": 5, "b": 6}, "keys")) == []
    assert found(answer({"a": 1, "b": 2}, "keys"), answer({"a": 1}, "keys")) == []
    assert found(answer({"a": 1}, "keys"), answer({"a": 1, "b": 2}, "keys")) != []
    assert found(answer({"a": 1}, "keys"), answer("text", "keys")) != []


def aborted(tokens):
    meta = {"finish_reason": {"type": "abort", "message": "Aborted"}}
    return replace(REPLY, compare="prefix", body={"output_ids": tokens, "meta_info": meta})


def test_an_aborted_generation_is_compared_as_far_as_both_came():
    assert found(aborted([1, 2, 3]), aborted([1, 2])) == []
    assert found(aborted([1, 2, 3]), aborted([1, 9])) != []


def test_only_the_ending():
    real, fake = replace(REPLY, compare="ending"), with_body(output_ids=[1])

    assert found(real, fake) == []
    assert found(real, replace(fake, status=400)) == ["status"]


@pytest.mark.parametrize(("best", "step"), [(5.0, 2**-5), (9.0, 2**-4), (-0.75, 2**-8)])
def test_a_near_tie_is_one_step_of_bfloat16_at_the_best_logit(best, step):
    logits = np.array([best, best - step, best - 1.01 * step, best - 1.0])
    assert NearTies._close(logits, 0, 1)
    assert not NearTies._close(logits, 0, 2)
    assert not NearTies._close(logits, 2, 1)


def test_tokens_may_part_only_at_a_near_tie():
    fake = with_body(output_ids=[5, 9, 9])
    asked = []

    def near_tie(before, one, other):
        asked.append((before, one, other))
        return True

    assert found(REPLY, fake, near_tie=near_tie) == []
    assert asked == [([1, 2, 5], 6, 9)]
    assert found(REPLY, fake, near_tie=lambda *_: False) != []
