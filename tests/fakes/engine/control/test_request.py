"""One request inside the scheduler: which token comes next, when it ends, what it reports, and its weight versions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fakes.engine.request import LogprobRow, Logprobs, Req, Sampling, aborted, choose, eos_ids, row, spans

NONE: frozenset[int] = frozenset()


def req(output=(), prompt=(5, 6, 7), logprobs=None, **sampling) -> Req:
    made = Req("r", list(prompt), Sampling(**sampling), logprobs=logprobs)
    made.output = list(output)
    return made


def finish(made: Req, eos=NONE):
    made.update_finish(eos)
    return made.finish


def test_a_new_request_has_nothing_yet() -> None:
    made = Req("r", [1], Sampling())
    assert (made.stream, made.logprobs, made.extra_key, made.health, made.number) == (False, None, None, False, 0)
    assert (made.output, made.kv, made.states, made.cached_tokens, made.retractions) == ([], None, [], 0, 0)
    assert (made.version_events, made.to_finish, made.finish, made.finished_len, made.sent) == ([], None, None, None, 0)
    assert (made.input_rows, made.output_rows) == ([], [])
    assert Logprobs() == Logprobs(-1, 0, None)
    assert Sampling() == Sampling(128, 1.0, 1.0, -1, 0, NONE, False, None)


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        ({"temperature": 0.0}, True),
        ({"temperature": 0.9e-6}, True),
        ({"temperature": 1e-6}, False),
        ({"temperature": 1.0}, False),
        ({"temperature": 1.0, "top_k": 1}, True),
        ({"temperature": 1.0, "top_k": 2}, False),
        ({"temperature": 0.0, "top_k": 2}, True),
    ],
)
def test_what_is_greedy(sampling, greedy) -> None:
    """sampling/sampling_params.py:246@0.5.23: below 1e-6 the temperature is 1 and top_k 1."""
    assert Sampling(**sampling).greedy is greedy


@pytest.mark.parametrize(
    ("output", "sampling", "eos", "wanted"),
    [
        ([9], {"max_new_tokens": 2}, NONE, None),
        ([9, 9], {"max_new_tokens": 2}, NONE, {"type": "length", "length": 2}),
        ([9, 9, 9], {"max_new_tokens": 2}, NONE, {"type": "length", "length": 2}),
        ([9], {"max_new_tokens": 0}, NONE, {"type": "length", "length": 0}),
        ([3, 9], {"stop_token_ids": frozenset({3})}, NONE, None),
        ([9, 3], {"stop_token_ids": frozenset({3})}, NONE, {"type": "stop", "matched": 3}),
        ([9, 2], {}, frozenset({2}), {"type": "stop", "matched": 2}),
        ([9, 2], {"max_new_tokens": 2}, frozenset({2}), {"type": "stop", "matched": 2}),
        ([9, 2], {"ignore_eos": True}, frozenset({2}), None),
        ([9, 3], {"ignore_eos": True, "stop_token_ids": frozenset({3})}, NONE, None),
    ],
)
def test_when_it_is_over(output, sampling, eos, wanted) -> None:
    """managers/schedule_batch.py:2007@0.5.23."""
    assert finish(req(output, **sampling), eos) == wanted


@pytest.mark.parametrize(
    ("output", "stop_first", "wanted"),
    [
        ([9, 2], True, {"type": "stop", "matched": 2}),
        ([9, 2], False, {"type": "length", "length": 2}),
        ([2], False, {"type": "stop", "matched": 2}),
    ],
)
def test_a_stop_token_at_the_length_by_version(output, stop_first, wanted) -> None:
    """Up to 0.5.17 the length is looked at first (managers/schedule_batch.py:1577@0.5.17)."""
    made = req(output, max_new_tokens=2)
    made.update_finish(frozenset({2}), stop_first=stop_first)
    assert made.finish == wanted


@pytest.mark.parametrize(
    ("logprobs", "new", "start", "limit"),
    [
        (None, 9, None, 4),
        (Logprobs(start=0), 9, 0, 0),
        (Logprobs(start=2), 9, 2, 2),
        (Logprobs(), 9, 3, 3),
        (Logprobs(token_ids=(1,)), 9, None, 4),
        (Logprobs(token_ids=(1,)), 0, 3, 3),
        (Logprobs(start=1, token_ids=(1,)), 9, 1, 1),
    ],
)
def test_how_much_of_a_prefill_may_come_from_the_cache(logprobs, new, start, limit) -> None:
    """managers/scheduler.py:3260, managers/schedule_batch.py:1766@0.5.23; prompt of three, output of two."""
    made = req([8, 9], logprobs=logprobs, max_new_tokens=new)
    assert (made.logprob_start(), made.prefix_limit()) == (start, limit)


def test_an_abort_takes_effect_with_the_next_token_and_nothing_after_it() -> None:
    made = req([9], max_new_tokens=1)
    made.to_finish = aborted()
    assert finish(made) == {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    assert made.to_finish is None
    assert made.visible() == [9]
    made.to_finish = {"type": "other"}
    assert finish(made) == aborted()
    assert made.to_finish == {"type": "other"}


def test_only_what_came_before_the_end_is_visible() -> None:
    made = req([9, 8, 2])
    assert made.visible() == [9, 8, 2]
    finish(made, frozenset({2}))
    made.output.append(7)
    assert made.visible() == [9, 8, 2]
    long = req([9, 8, 7], max_new_tokens=2)
    finish(long)
    assert long.visible() == [9, 8]


def test_when_something_is_reported() -> None:
    """Streams at every token, the rest every 50 and at the end (output_streamer.py:452@0.5.23)."""
    assert [n for n in range(1, 151) if req([1] * n).should_output()] == [50, 100, 150]
    made = req([1])
    made.stream = True
    assert made.should_output()
    over = req([1])
    over.finish = aborted()
    assert over.should_output()


@pytest.mark.parametrize(
    ("start", "output", "limit"),
    [(None, [], 2), (None, [1, 2], 4), (-1, [], 2), (0, [], 0), (1, [], 1), (2, [], 2), (3, [], 2), (1, [9], 1)],
)
def test_how_much_may_come_from_the_cache(start, output, limit) -> None:
    """Never the last token, nor one whose log-probability is wanted."""
    wanted = None if start is None else Logprobs(start=start)
    assert req(output, logprobs=wanted).prefix_limit() == limit
    assert req(output, logprobs=wanted).tokens == [5, 6, 7, *output]


def test_an_empty_prompt_takes_nothing_from_the_cache() -> None:
    assert req(prompt=()).prefix_limit() == 0


def naive_spans(events, current, total):
    """One version per token, then runs of the same."""
    versions = []
    for version, count in [*events, (current, total)]:
        versions += [version] * (min(count, total) - len(versions))
    found = []
    for at, version in enumerate(versions):
        if found and found[-1]["version"] == version:
            found[-1]["end"] = at + 1
        else:
            found.append({"version": version, "start": at, "end": at + 1})
    return found


@pytest.mark.parametrize("seed", range(60))
def test_spans_are_the_runs_of_versions_over_the_output(seed) -> None:
    rng = np.random.default_rng(seed)
    total = int(rng.integers(1, 7))
    counts = sorted(int(n) for n in rng.integers(1, 8, size=rng.integers(0, 5)))
    events = [(str(rng.choice(["a", "b", "c"])), count) for count in counts]
    assert spans(events, "z", total) == naive_spans(events, "z", total)
    made = req([1] * total, max_new_tokens=99)
    made.version_events = events
    assert made.spans("z") == spans(events, "z", total)


def test_no_output_is_one_empty_span() -> None:
    """utils/weight_versions.py:63@0.5.23."""
    assert spans([], "v", 0) == [{"version": "v", "start": 0, "end": 0}]


LOGITS = np.log(np.array([0.05, 0.4, 0.1, 0.25, 0.2], np.float32))


def drawn(count=400, seed=0, **sampling) -> Counter[int]:
    made = req(**{"temperature": 1.0, **sampling})
    found: Counter[int] = Counter()
    for number in range(count):
        made.number = number
        found[choose(made, LOGITS, seed)[0]] += 1
    return found


@pytest.mark.parametrize(
    ("sampling", "weights"),
    [
        ({}, {0: 0.05, 1: 0.4, 2: 0.1, 3: 0.25, 4: 0.2}),
        ({"top_k": 2}, {1: 0.4, 3: 0.25}),
        ({"top_k": 99}, {0: 0.05, 1: 0.4, 2: 0.1, 3: 0.25, 4: 0.2}),
        ({"top_p": 0.3}, {1: 1.0}),
        ({"top_p": 0.5}, {1: 0.4, 3: 0.25}),
        ({"top_p": 0.8}, {1: 0.4, 3: 0.25, 4: 0.2}),
        ({"top_p": 0.5, "top_k": 4}, {1: 0.4, 3: 0.25}),
        ({"top_p": 0.9, "top_k": 2}, {1: 0.4, 3: 0.25}),
        ({"temperature": 0.5}, {0: 0.0025, 1: 0.16, 2: 0.01, 3: 0.0625, 4: 0.04}),
        ({"temperature": 2.0}, {0: 0.2236, 1: 0.6325, 2: 0.3162, 3: 0.5, 4: 0.4472}),
    ],
)
def test_tokens_are_drawn_from_what_top_k_and_top_p_leave(sampling, weights) -> None:
    count, found = 1500, drawn(1500, **sampling)
    assert set(found) <= set(weights)
    for token, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(found[token] / count - share) < 4 * np.sqrt(share * (1 - share) / count) + 1e-9, token


def test_large_logits_do_not_overflow() -> None:
    with np.errstate(all="raise"):
        assert choose(req(temperature=1.0), np.array([1000.0, 900.0], np.float32), 0)[0] == 0


def test_greedy_takes_the_largest_and_the_first_of_equals() -> None:
    assert choose(req(temperature=0.0), LOGITS, 0) == (1, None)
    assert choose(req(temperature=0.0), np.zeros(4, np.float32), 0)[0] == 0


def test_what_a_draw_depends_on() -> None:
    """The engine's seed, the request's own seed or else its number, and the position."""

    def draws(engine=0, number=0, seed=None, position=0):
        made = req([1] * position, temperature=1.0, seed=seed)
        made.number = number
        wide = np.zeros(5000, np.float32)
        return choose(made, wide, engine)[0]

    base = draws()
    assert draws() == base
    assert len({base, draws(engine=1), draws(number=1), draws(position=1), draws(seed=0)}) == 5
    assert draws(seed=3, number=1) == draws(seed=3, number=2) != draws(seed=4)
    assert draws(seed=-1) == draws(seed=-1) != draws(seed=1)
    assert draws(seed=2**63 - 1) == draws(seed=2**63 - 1)
    assert draws(seed=3) != draws(number=3)


def test_log_probabilities_are_of_the_scaled_logits() -> None:
    plain = np.array([0.05, 0.4, 0.1, 0.25, 0.2])
    token, made = choose(req(temperature=0.0, logprobs=Logprobs(top=2, token_ids=(4, 0))), LOGITS, 0)
    assert (token, made.token) == (1, 1)
    assert np.isclose(made.own, np.log(0.4), atol=1e-5)
    assert [i for _, i in made.top] == [1, 3]
    assert np.allclose([value for value, _ in made.top], np.log([0.4, 0.25]), atol=1e-5)
    assert [i for _, i in made.ids] == [4, 0]
    assert np.allclose([value for value, _ in made.ids], np.log([0.2, 0.05]), atol=1e-5)
    scaled = plain**2 / (plain**2).sum()
    token, made = choose(req(temperature=0.5, logprobs=Logprobs()), LOGITS, 0)
    assert np.isclose(made.own, np.log(scaled[token]), atol=1e-4)
    assert (made.top, made.ids) == (None, None)


def test_a_row_of_log_probabilities() -> None:
    values = np.array([-3.0, -1.0, -1.0, -2.0], np.float32)
    assert row(Logprobs(), values, 3) == LogprobRow(-2.0, 3, None, None)
    assert row(Logprobs(top=3), values, 0) == LogprobRow(-3.0, 0, [(-1.0, 1), (-1.0, 2), (-2.0, 3)], None)
    assert row(Logprobs(token_ids=()), values, 0) == LogprobRow(-3.0, 0, None, [])
    assert all(type(x) is float for x in (row(Logprobs(), values, 1).own,))


@pytest.mark.parametrize(
    ("config", "wanted"),
    [({}, set()), ({"eos_token_id": None}, set()), ({"eos_token_id": 2}, {2}), ({"eos_token_id": [2, 5]}, {2, 5})],
)
def test_the_end_of_sequence_tokens_of_a_config(config, wanted) -> None:
    assert eos_ids(config) == wanted
