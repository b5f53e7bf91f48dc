"""What a generation asks for beyond a plain text model: refused in SGLang's words, and nothing is held afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine import messages as m
from fakes.engine.generation import State
from fakes.engine.profiles import ORDER
from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import Driver, generate_body

NEW, OLD = "0.5.23", "0.5.12.post1"


def free(engine: Driver) -> None:
    """No lock is held: an update runs at once."""
    assert engine.died is None
    engine.call("begin_weight_update", {})
    assert engine.update().status == 200
    assert engine.generate()


ASKED = [
    ("max_thinking_tokens", 5, m.THINKING_OFF.text, ORDER[1:]),
    ("routed_dp_rank", 1, m.DP_RANK(rank=1), ORDER),
    ("routed_dp_rank", -1, m.DP_RANK(rank=-1), ORDER),
    ("lora_path", "a", m.LORA_OFF(adapter="a"), ORDER),
    ("input_embeds", [[1.0]], m.EMBEDS_OFF.text, ORDER),
    ("token_ids_logprob", [5, 10**9], m.OUT_OF_VOCABULARY(token=10**9, limit=512), ORDER[1:]),
    ("token_ids_logprob", [512], m.OUT_OF_VOCABULARY(token=512, limit=512), ORDER[1:]),
    ("token_ids_logprob", [-1], m.OUT_OF_VOCABULARY(token=-1, limit=512), ORDER[1:]),
    ("return_hidden_states", True, m.HIDDEN_OFF.text, ORDER[1:]),
    ("return_hidden_states", True, m.HIDDEN_OFF_12.text, ORDER[:1]),
    ("custom_logit_processor", "x", m.PROCESSOR_OFF.text, ORDER),
    ("session_params", {"id": "s"}, m.SESSION_UNKNOWN(session="s"), ORDER),
]


@pytest.mark.parametrize(("name", "value", "text", "versions"), ASKED)
def test_it_is_refused_with_a_400(name: str, value: Any, text: str, versions: tuple[str, ...]) -> None:
    for version in versions:
        engine = Driver(version)
        reply = engine.call("generate", generate_body(**{name: value, "return_logprob": True}))
        assert (reply.status, reply.body) == (400, {"error": {"message": text}}), version
        stream = engine.start("generate", generate_body(stream=True, **{name: value}))
        assert engine.result(stream).status == 200
        assert [chunk["error"]["message"] for chunk in engine.chunks(stream)] == [text]
        free(engine)


@pytest.mark.parametrize(
    "fields",
    [
        {"lora_path": None, "session_params": None, "token_ids_logprob": [], "custom_logit_processor": ""},
        {"session_params": {}, "return_hidden_states": False, "routed_dp_rank": 0, "lora_path": ""},
        {"session_params": {"id": None}, "token_ids_logprob": [0, 511], "return_logprob": True},
    ],
)
def test_asking_for_nothing_is_nothing(fields: dict[str, Any]) -> None:
    for version in (NEW, OLD):
        assert Driver(version).call("generate", generate_body(**fields)).status == 200


def test_in_a_batch_one_prompt_that_asks_refuses_all() -> None:
    body = {**generate_body(2), "input_ids": [[5, 6], [7, 8]]}
    for name, value, text in (
        ("lora_path", [None, "b"], m.LORA_OFF(adapter="b")),
        ("token_ids_logprob", [[1], [600]], m.OUT_OF_VOCABULARY(token=600, limit=512)),
        ("custom_logit_processor", [None, "x"], m.PROCESSOR_OFF.text),
        ("return_hidden_states", [False, True], m.HIDDEN_OFF.text),
    ):
        reply = Driver().call("generate", {**body, name: value})
        assert (reply.status, reply.body) == (400, {"error": {"message": text}}), name


def test_it_waits_for_the_pause_unless_it_is_refused_at_once() -> None:
    engine = Driver()
    engine.call("pause_generation", {"mode": "retract"})
    assert engine.call("generate", generate_body(max_thinking_tokens=1), timeout=1).status == 400
    late = engine.start("generate", generate_body(lora_path="a"))
    engine.advance(5)
    assert not engine.done(late)
    engine.call("continue_generation", {})
    assert engine.result(late).status == 400


def test_up_to_0_5_12_a_token_outside_the_vocabulary_kills_the_scheduler() -> None:
    engine = Driver(OLD)
    body = generate_body(1, return_logprob=True, token_ids_logprob=[10**9])
    assert engine.call("generate", body).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.type == "IndexError"


@pytest.mark.parametrize(("top", "fate"), [(512, 200), (513, "death"), (10**9, "death"), (0, 200), (-3, 200)])
def test_more_top_logprobs_than_the_vocabulary_kill_the_scheduler(top: int, fate: Any) -> None:
    engine = Driver()
    reply = engine.call("generate", generate_body(2, return_logprob=True, top_logprobs_num=top))
    if fate == "death":
        assert reply.ending == "dropped"
        assert engine.died is not None
        assert engine.died.error == Raised("RuntimeError", "selected index k out of range")
        return
    assert reply.status == 200
    found = reply.body["meta_info"].get("output_top_logprobs")
    assert [len(row) for row in found or ()] == ([top] * 2 if top > 0 else [])


@pytest.mark.parametrize("value", [1e308, 9.3e9])
def test_a_sleep_that_no_clock_can_hold_kills_at_the_next_step(value: float) -> None:
    engine = Driver()
    assert engine.call("slow_down", {"forward_sleep_time": value}).status == 200
    assert engine.call("generate", generate_body()).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("OverflowError", "timestamp out of range for platform time_t")


@pytest.mark.parametrize("value", [None, 0, -1.0, -1e308])
def test_no_sleep_is_no_sleep(value: float | None) -> None:
    engine = Driver()
    engine.call("slow_down", {"forward_sleep_time": 5})
    engine.call("slow_down", {"forward_sleep_time": value})
    begun = engine.now
    engine.generate()
    assert engine.now - begun < 1


def test_many_answers_to_one_prompt_cost_no_more_than_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quadratic work in the HTTP process would hold everything else up for minutes."""
    looks = [0]

    def looked(state: State) -> bool:
        looks[0] += 1
        return bool(state.__dict__.get("gone", False))

    def set_(state: State, value: bool) -> None:
        state.__dict__["gone"] = value

    monkeypatch.setattr(State, "disconnected", property(looked, set_), raising=False)
    engine = Driver(max_running_requests=64)
    body = {"input_ids": [5, 6, 7], "sampling_params": {"n": 2000, "max_new_tokens": 1, "temperature": 0}}
    call = engine.start("generate", body)
    assert engine.call("health", method="GET").status == 200
    assert len(engine.result(call, 600).body) == 2000
    assert looks[0] < 10 * 2000


@pytest.mark.parametrize(
    ("version", "ids", "text", "kind"),
    [(NEW, [[5, 6]], "", "TypeError"), (OLD, [2**63], None, "OverflowError"), (OLD, [[5, 6]], "x", "TypeError")],
)
def test_a_prompt_that_is_no_list_of_64_bit_integers_is_a_500(version: str, ids: Any, text: Any, kind: str) -> None:
    engine = Driver(version)
    reply = engine.call("generate", {**generate_body(), "input_ids": ids, "text": text})
    assert (reply.status, reply.value.type) == (500, kind)
    if version == NEW:
        free(engine)
