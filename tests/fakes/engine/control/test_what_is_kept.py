"""What an engine keeps of calls that are over, does while it is frozen, and sends; small things nobody else asks."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.profiles import ORDER
from fakes.engine.protocol import Block, Cancel, OpenPayload, Raised, ReadDisk, Reply
from fakes.tiny import tiny_config
from tests.fakes.engine.control import driver
from tests.fakes.engine.control.driver import Driver, generate_body
from tests.fakes.engine.control.test_exceptions import planted


@pytest.mark.parametrize("version", ["0.5.19", "0.5.23"])
def test_nothing_is_kept_of_calls_that_are_over(version: str) -> None:
    engine = Driver(version)
    for body in (generate_body(3), generate_body(3, stream=True), generate_body(3, rid="a", return_logprob=True)):
        engine.call("generate", body)
    engine.call("generate", {"input_ids": [], "sampling_params": {}, "stream": True})
    engine.call("flush_cache")
    for stream in (False, True):
        left = engine.start("generate", generate_body(40, stream=stream))
        engine.advance(0.05)
        engine.cancel(left)
    engine.advance(10.0)
    for call in range(1, engine._next + 2):
        engine._absorb(engine.core.step(Cancel(call), engine.now))  # a client that leaves when all is said
    core = engine.core
    kept: list[Any] = [core._open, core._gone, core._opened, core._states, core._streams, core._tm.states]
    assert [len(each) for each in kept] == [0] * 6


def crashed(version: str = "0.5.23") -> Driver:
    """Frozen: the handler of SIGQUIT holds the HTTP process for some seconds."""
    engine = Driver(version)
    left = engine.start("generate", generate_body(2000))
    engine.advance(0.05)
    engine.cancel(left)  # looked at in 4 s
    engine.core.scheduler._handlers["slow_down"] = planted
    engine.start("slow_down", {"forward_sleep_time": None})
    return engine


def test_no_timer_of_a_frozen_process_is_waited_for() -> None:
    engine = crashed()
    engine.advance(1.0)
    assert engine.died is None
    assert engine.core.next_deadline() == pytest.approx(engine.core._dies_at())


def test_what_was_about_to_be_said_is_not_said_by_a_frozen_process() -> None:
    engine = Driver("0.5.23")
    receive = engine.core._tm.receive

    def broken(op: str, payload: Any) -> None:
        if op == "slow_down":
            raise ZeroDivisionError
        receive(op, payload)

    engine.core._tm.receive = broken  # type: ignore[method-assign]  # the plant
    engine.start("generate", generate_body(4))
    told = engine.start("server_info", method="GET")
    engine.start("slow_down", {"forward_sleep_time": None})
    while engine.core._crash is None:
        engine.advance(0.001)
    engine.advance(0.5)
    assert engine.died is None
    assert not engine.done(told)


def test_a_text_of_a_caller_in_process_is_not_encoded() -> None:
    reply = Driver("0.5.23").call("update_weight_version", {"new_version": "\ud800"}, via="engine")
    assert reply.status == 200


def test_what_kind_of_body_an_answer_has() -> None:
    engine = Driver("0.5.23")
    engine.call("generate", generate_body(1))
    engine.call("generate", generate_body(1, stream=True))
    engine.core._tm.flush_cache = planted  # type: ignore[method-assign,assignment]  # the plant
    engine.call("flush_cache")
    assert [effect.media for effect in engine.effects if isinstance(effect, Reply)] == ["json", "empty", "text"]


@pytest.fixture
def short_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of 64 positions."""
    monkeypatch.setattr(driver, "tiny_config", lambda *args: {**tiny_config(*args), "max_position_embeddings": 64})


@pytest.mark.usefixtures("short_context")
def test_the_longest_prompt_of_a_context() -> None:
    """max_req_input_len: six less than the context, and the prompt shorter still (managers/tp_worker.py@0.5.23)."""
    taken = [length for length in range(54, 64) if Driver("0.5.23").call("generate", generate_body(1, [7] * length)).ok]
    assert max(taken) == 57


@pytest.mark.usefixtures("short_context")
def test_a_generation_ends_with_its_context() -> None:
    sampling = {"temperature": 0, "ignore_eos": True, "max_new_tokens": None}
    made = Driver("0.5.23").call("generate", {"input_ids": [7] * 44, "sampling_params": sampling})
    assert len(made.body["output_ids"]) == 18


def test_a_probe_is_one_greedy_token_and_is_forgotten() -> None:
    """entrypoints/http_server.py:721@0.5.23."""
    engine = Driver("0.5.23")
    found: list[Any] = []
    generate = engine.core.scheduler._handlers["generate"]

    def handle(obj: dict[str, Any]) -> None:
        req = obj["req"]
        found.append((req.prompt, req.sampling.max_new_tokens, req.sampling.greedy, req.stream))
        generate(obj)

    engine.core.scheduler._handlers["generate"] = handle
    assert engine.call("health_generate", method="GET").status == 200
    assert found == [([0], 1, True, False)]
    engine.call("pause_generation", {"mode": "retract"})
    engine.advance(30.0)
    assert engine.call("health_generate", method="GET").status == 503
    engine.call("continue_generation", {})
    engine.advance(1.0)
    assert len(found) == 1, "what waited for the pause has been given up"


def test_every_update_has_a_number_of_its_own() -> None:
    engine = Driver("0.5.20")
    engine.disk["/new"] = list(engine.weights(2).items())
    for _ in range(2):
        assert engine.update().status == 200
        assert engine.call("update_weights_from_disk", {"model_path": "/new"}).status == 200
    numbers = [load["update"] for load in engine.named("load")]
    assert len(numbers) == len(set(numbers)) == 4


def test_every_rank_is_said_to_wait_for_its_own_io() -> None:
    engine = Driver("0.5.20", tp_size=2)
    engine.disk["/new"] = list(engine.weights(2).items())
    text = engine.payload(engine.weights(1))
    for op, body in (
        ("update_weights_from_tensor", {"serialized_named_tensors": [text, text]}),
        ("update_weights_from_disk", {"model_path": "/new"}),
    ):
        assert not engine.core.scheduler.blocked
        engine.hang = {"OpenPayload", "ReadDisk"}
        call = engine.start(op, body)
        assert engine.core.scheduler.blocked
        engine.hang = set()
        engine.finish_reads()
        assert engine.result(call).status == 200
    waits = [effect for effect in engine.effects if isinstance(effect, OpenPayload | ReadDisk | Block)]
    assert [(type(effect).__name__, getattr(effect, "rank", None)) for effect in waits] == [
        ("OpenPayload", 0), ("Block", 0), ("OpenPayload", 1), ("Block", 1), ("ReadDisk", 0), ("Block", 0),
        ("ReadDisk", 1), ("Block", 1),
    ]  # fmt: skip
    assert [effect.id for effect in waits if isinstance(effect, Block)] == [
        effect.id for effect in waits if not isinstance(effect, Block)
    ]


@pytest.mark.parametrize("version", ORDER)
def test_an_error_of_a_generation_in_process_is_a_value_error(version: str) -> None:
    reply = Driver(version).call("generate", {"input_ids": [5] * 5000, "sampling_params": {}}, via="engine")
    assert isinstance(reply.value, Raised)
    assert reply.value.type == "ValueError"
