"""Who may run: admission by requests and by tokens, retraction, what counts as idle, what a finished request leaves."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.batching import Batch
from fakes.engine.cache import PrefixCache
from fakes.engine.memo import SHARED
from fakes.engine.model import Model
from fakes.engine.profiles import PROFILES
from fakes.engine.request import Logprobs, Req, Sampling
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config, tiny_weights
from tests.fakes.engine.control.driver import PROMPT, Driver, generate_body

CONFIG = tiny_config()
RANK = RankWeights(CONFIG, 0, 1, "bfloat16")
RANK.load(tiny_weights(CONFIG, 0).items())


def batch(running: int = 8, tokens: int = 1000, log: list[Any] | None = None) -> Batch:
    SHARED.clear()
    told = [] if log is None else log
    return Batch(
        Model(CONFIG, [RANK]),
        PrefixCache(tokens),
        profile=PROFILES["0.5.23"],
        device="cpu",
        max_running=running,
        max_tokens=tokens,
        eos=frozenset({2}),
        seed=0,
        model_key="k",
        observe=lambda req, event: told.append((req.rid, event)),
    )


def req(rid: str, prompt: int = 4, new: int = 10, **more: Any) -> Req:
    first = 10 * (ord(rid[0]) - 90)
    sampling = Sampling(max_new_tokens=new, temperature=0.0, ignore_eos=True)
    return Req(rid, list(range(first, first + prompt)), sampling, **more)


def step(made: Batch) -> tuple[str, list[str]]:
    forward = made.launch(0.0, weights="w", prefill_s=1.0, decode_s=2.0, facts={})
    if forward is None:
        return "nothing", []
    assert forward.done_at == (1.0 if forward.phase == "prefill" else 2.0)
    made.complete(forward)
    return forward.phase, [s.req.rid for s in forward.steps]


def test_log_probabilities_of_a_prompt_stay_those_of_its_first_prefill() -> None:
    """managers/scheduler_components/logprob_result_processor.py:252@0.5.23: also when weights came between."""
    engine = Driver("0.5.23")
    wanted = {"return_logprob": True, "logprob_start_len": 0}
    old = engine.call("generate", {**generate_body(1), **wanted}).body["meta_info"]["input_token_logprobs"]
    engine.call("flush_cache")
    call = engine.start("generate", {**generate_body(80), **wanted})
    engine.advance(0.1)
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("begin_weight_update", {})
    assert engine.update(seed=1).status == 200
    engine.call("end_weight_update", {})
    engine.call("continue_generation", {})
    meta = engine.result(call).body["meta_info"]
    assert meta["num_retractions"] == 1
    assert meta["input_token_logprobs"] == old
    new = engine.call("generate", {**generate_body(1), **wanted}).body["meta_info"]["input_token_logprobs"]
    assert new != old


def test_new_requests_are_prefilled_before_anything_is_decoded() -> None:
    made = batch(running=2)
    made.waiting = [req("a"), req("b"), req("c", new=1)]
    assert step(made) == ("prefill", ["a", "b"])
    assert step(made) == ("decode", ["a", "b"])
    made._max_running = 3
    assert step(made) == ("prefill", ["c"])
    assert step(made) == ("decode", ["a", "b"])
    for _ in range(7):
        assert step(made) == ("decode", ["a", "b"])
    assert step(made) == ("nothing", [])
    assert made.is_idle()


@pytest.mark.parametrize(
    ("room", "admitted"),
    [(1000, ["a", "b", "c"]), (33, ["a", "b", "c"]), (32, ["a", "b"]), (22, ["a", "b"]), (21, ["a"]), (3, ["a"])],
)
def test_a_request_needs_its_tokens_and_seven_tenths_of_what_it_may_still_write(room: int, admitted: list[str]) -> None:
    """4 + 0.7 * 10 = 11 tokens each; the first one runs whatever it needs (new_token_ratio@0.5.23)."""
    made = batch(tokens=room)
    made.waiting = [req(name) for name in "abc"]
    assert step(made) == ("prefill", admitted)


def test_what_was_written_counts_whole_and_what_is_left_in_part() -> None:
    """After 6 of 10 tokens: 4 + 6 + 0.7 * 4 = 12.8; with 11 for another that is 23.8."""
    for room, goes in ((24, True), (23, False)):
        made = batch(tokens=room)
        made.waiting = [req("a")]
        for _ in range(6):
            step(made)
        made.waiting = [req("b")]
        assert (step(made) == ("prefill", ["b"])) == goes


def test_a_retracted_request_needs_no_more_than_before() -> None:
    made = batch(tokens=1000)
    one = req("a", new=3)
    one.output = [1, 2, 3, 4]
    assert made._need(one) == 8
    assert made._need(req("a", new=0)) == 4


def test_when_the_next_step_does_not_fit_the_least_advanced_goes_back_to_the_queue() -> None:
    log: list[Any] = []
    made = batch(tokens=1000, log=log)
    made.waiting = [req("a", 4, 60)]
    step(made)
    step(made)
    made.waiting = [req("b", 4, 60), req("c", 6, 60)]
    step(made)
    made._max_tokens = 17
    log.clear()
    assert step(made) == ("decode", ["a", "b"])
    assert log == [("c", "retracted")]
    (victim,) = made.waiting
    assert (victim.rid, victim.kv, victim.states, victim.retractions, len(victim.output)) == ("c", None, [], 1, 1)
    made._max_tokens = 2
    assert step(made) == ("decode", ["a"])
    assert step(made) == ("decode", ["a"])
    assert [r.rid for r in made.waiting] == ["c", "b"]


@pytest.mark.parametrize("where", ["running", "last", "waiting"])
def test_what_counts_as_idle(where: str) -> None:
    made = batch()
    assert made.is_idle()
    getattr(made, where).append(req("a"))
    assert not made.is_idle()
    assert made.is_idle(ignore_waiting=True) == (where == "waiting")


def test_a_finished_request_is_in_flight_until_the_next_step_is_put_together() -> None:
    made = batch()
    made.waiting = [req("a", new=1), req("b", new=3)]
    step(made)
    assert [r.rid for r in made.in_flight()] == ["a", "b"]
    assert [r.rid for r in made.live()] == ["b"]
    step(made)
    assert [r.rid for r in made.running] == [r.rid for r in made.last] == ["b"]
    assert [r.rid for r in made.live()] == [r.rid for r in made.in_flight()] == ["b"]
    made.settle()
    made.settle()
    assert [r.rid for r in made.running] == ["b"]
    assert (made.last, made.last_is_prefill) == ([], False)


def test_retracting_all_leaves_what_is_over_alone() -> None:
    log: list[Any] = []
    made = batch(log=log)
    made.waiting = [req("a", new=1), req("b", new=3)]
    step(made)
    log.clear()
    assert [r.rid for r in made.retract_all()] == ["b"]
    assert (made.running, made.last, log) == ([], [], [("b", "retracted")])
    assert step(made) == ("prefill", ["b"])


def test_only_who_asked_has_rows() -> None:
    made = batch()
    plain, wants = req("a", new=2), req("b", new=2, logprobs=Logprobs(start=0))
    made.waiting = [plain, wants]
    step(made)
    step(made)
    assert (plain.input_rows, plain.output_rows) == ([], [])
    assert [row.token for row in wants.input_rows] == wants.prompt
    assert [row.token for row in wants.output_rows] == wants.output
    assert wants.input_rows[0].own is None


@pytest.mark.parametrize(("start", "rows"), [(-1, 0), (0, 5), (2, 3), (4, 1), (5, 0)])
def test_prompt_rows_begin_where_they_are_wanted(start: int, rows: int) -> None:
    body = generate_body(1, return_logprob=True, logprob_start_len=start)
    meta = Driver("0.5.23").call("generate", body).body["meta_info"]
    assert [row[1] for row in meta["input_token_logprobs"]] == PROMPT[len(PROMPT) - rows :]
    assert [row[0] is None for row in meta["input_token_logprobs"]] == [True] + [False] * (rows - 1) if rows else True


def test_prompt_rows_do_not_depend_on_what_is_cached() -> None:
    engine = Driver("0.5.23")
    body = generate_body(1, return_logprob=True, logprob_start_len=3)
    cold = engine.call("generate", body).body["meta_info"]
    warm = engine.call("generate", body).body["meta_info"]
    assert (cold["cached_tokens"], warm["cached_tokens"]) == (0, 3)
    assert cold["input_token_logprobs"] == warm["input_token_logprobs"]
    whole = engine.call("generate", generate_body(1, return_logprob=True, logprob_start_len=0)).body["meta_info"]
    assert cold["input_token_logprobs"][1:] == whole["input_token_logprobs"][4:]


def test_a_finished_request_leaves_all_but_its_last_token_in_the_cache() -> None:
    engine = Driver("0.5.23")
    tokens = engine.generate(4)
    reply = engine.call("generate", generate_body(1, [*PROMPT, *tokens, 9])).body
    assert reply["meta_info"]["cached_tokens"] == len(PROMPT) + 3
    assert reply["output_ids"] == Driver("0.5.23").generate(1, [*PROMPT, *tokens, 9])


def test_remembered_steps_belong_to_one_model_one_state_and_all_tokens() -> None:
    made = batch()
    made.waiting = [req("a", new=3)]
    while step(made)[0] != "nothing":
        pass
    keys = sorted(SHARED._entries, key=lambda key: len(key[2]))
    assert [(model, state, len(tokens)) for model, state, tokens in keys] == [
        ("k", "w", 4),
        ("k", "w", 5),
        ("k", "w", 6),
    ]
    assert [len(SHARED._entries[key][1]) for key in keys] == [4, 1, 1]
