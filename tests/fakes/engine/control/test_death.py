"""How an engine dies: when, what still answers, and what every kind of bad call says in its log."""

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Call, Raised, Tick
from tests.fakes.engine.control.driver import Driver, generate_body

KEY_ERROR = Raised("KeyError", "'kv_cache'")


@pytest.mark.parametrize("version", ORDER)
def test_death_comes_after_the_profiles_delay_and_is_final(version: str) -> None:
    engine = Driver(version)
    running = engine.start("generate", generate_body(80))
    engine.advance(0.1)
    reply = engine.call("resume_memory_occupation", {})
    assert reply.ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == KEY_ERROR
    delay = 0.08 if version == "0.5.12.post1" else 5.08
    assert engine.died_at == pytest.approx(0.1 + delay, abs=0.02)
    assert engine.result(running).ending == "dropped"
    assert engine.core.dead
    assert engine.core.next_deadline() is None
    assert engine.core.step(Call(id=99, path="/model_info", method="GET"), engine.now) == []


def test_between_exception_and_signal_the_http_process_answers_then_it_freezes() -> None:
    """Seen on the real 0.5.23: /model_info hangs while the SIGQUIT handler sleeps on the event loop."""
    engine = Driver("0.5.23")
    fatal = engine.start("resume_memory_occupation", {})
    assert engine.call("model_info", method="GET").status == 200
    assert engine.call("flush_cache", timeout=0.02).ending == "timeout", "the scheduler is dead at once"
    engine.advance(0.5)
    late = engine.start("model_info", method="GET")
    engine.advance(4)
    assert not engine.done(late)
    assert engine.result(late).ending == "dropped"
    assert engine.result(fatal).ending == "dropped"


def test_facts_name_the_exception_before_the_end() -> None:
    engine = Driver("0.5.23")
    engine.start("resume_memory_occupation", {})
    assert engine.named("raise") == [{"rank": 0, "type": "KeyError", "message": "'kv_cache'"}]


@pytest.mark.parametrize(
    ("payload", "fields", "error"),
    [
        (Raised("RuntimeError", "Blocked unsafe global (posix.system) during pickle deserialization"), {}, None),
        (Raised("RuntimeError", "No such file or directory"), {}, None),
        ({}, {"load_format": "bogus"}, Raised("NotImplementedError", "Unknown load_format=bogus")),
    ],
)
def test_payloads_that_kill(payload: object, fields: dict[str, str], error: Raised | None) -> None:
    engine = Driver("0.5.23")
    engine.call("begin_weight_update", {})
    text = engine.payload(payload)  # type: ignore[arg-type]  # an error or tensors, by the table
    reply = engine.call("update_weights_from_tensor", {"serialized_named_tensors": [text], **fields})
    assert reply.ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == (error or payload)


@pytest.mark.parametrize("version", ORDER)
def test_a_norm_of_the_wrong_length_kills_the_tensor_path(version: str) -> None:
    engine = Driver(version)
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    reply = engine.update({"model.norm.weight": engine.weights(1)["model.norm.weight"][:3]})
    assert reply.ending == "dropped"
    assert engine.died is not None
    text = "Attempted to load weight (torch.Size([3])) into parameter (torch.Size([64]))"
    assert engine.died.error == Raised("AssertionError", text)


@pytest.mark.parametrize("version", ORDER)
def test_two_paused_disk_updates_at_once_end_the_http_process(version: str) -> None:
    """sgl-project/sglang#33698, seen on 0.5.23: the second gets the first reply, the first never gets any.

    The second reply is an InvalidStateError in the receive loop; as the schedulers live, the process waits for their
    core
    dumps for a minute before it goes.
    """
    engine = Driver(version)
    engine.disk["/b"] = list(engine.weights(1).items())
    engine.call("pause_generation", {"mode": "retract"})
    engine.hang.add("ReadDisk")
    first = engine.start("update_weights_from_disk", {"model_path": "/b"})
    second = engine.start("update_weights_from_disk", {"model_path": "/b"})
    engine.hang.clear()
    engine.finish_reads()
    assert engine.result(second).status == 200
    assert engine.result(first).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("InvalidStateError", "invalid state")
    assert engine.died_at == pytest.approx(0.0 if version == "0.5.12.post1" else 65.0, abs=0.1)


def test_a_step_never_goes_over_a_deadline() -> None:
    """A front that comes late still sees the death, once, and nothing after it."""
    engine = Driver("0.5.23")
    engine.start("resume_memory_occupation", {})
    effects = engine.core.step(Tick(), 1000.0)
    assert [type(e).__name__ for e in effects] == ["Die"]
    assert engine.core.step(Tick(), 1001.0) == []


def test_death_finds_requests_waiting_for_a_pause_whose_condition_is_held() -> None:
    """A paused begin holds the condition when its scheduler dies: a request that waits for it never has it back."""
    engine = Driver("miles")
    engine.call("begin_weight_update", {})
    engine.call("pause_generation", {"mode": "abort"})
    waiting = engine.start("generate", generate_body())
    assert engine.call("begin_weight_update", {}).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.type == "AssertionError"
    assert engine.result(waiting).ending == "dropped"
