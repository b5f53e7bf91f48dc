"""An exception that nobody foresaw: in the scheduler it is a death, in the HTTP process a 500 that holds no lock, and
in its receive loop the end of that process."""

from __future__ import annotations

import pytest

from fakes.engine.protocol import Broken, Opened, Raised
from tests.fakes.engine.control.driver import Driver, generate_body


def planted(*args: object, **more: object) -> None:
    raise ZeroDivisionError("planted")


PLANTED = Raised("ZeroDivisionError", "planted")


def updates(engine: Driver) -> None:
    """Nothing is held: an update runs at once, and so does a generation."""
    engine.call("begin_weight_update", {})
    assert engine.update().status == 200
    assert engine.call("end_weight_update", {}).status == 200
    assert engine.generate() == engine.expected(1)


@pytest.mark.parametrize("op", ["flush_cache", "begin_weight_update", "generate", "slow_down", "server_info"])
def test_in_a_handler_of_the_scheduler_it_is_a_death(op: str) -> None:
    engine = Driver()
    engine.core.scheduler._handlers[op] = planted
    body = {"generate": generate_body(), "slow_down": {"forward_sleep_time": None}}.get(op, {})
    reply = engine.call(op, body, method="GET" if op == "server_info" else "POST")
    assert reply.ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == PLANTED
    assert engine.named("raise") == [{"rank": 0, "type": "ZeroDivisionError", "message": "planted"}]


@pytest.mark.parametrize("where", ["launch", "complete"])
def test_in_a_step_of_the_scheduler_it_is_a_death(where: str) -> None:
    engine = Driver()
    running = engine.start("generate", generate_body(30))
    engine.advance(0.02)
    setattr(engine.core.scheduler.batch, where, planted)
    assert engine.result(running).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == PLANTED


def test_in_a_load_after_its_payload_was_opened_it_is_a_death() -> None:
    engine = Driver()
    engine.call("begin_weight_update", {})
    engine.core.scheduler.ranks[0].load = planted  # type: ignore[method-assign,assignment]  # the plant
    assert engine.update().ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == PLANTED


@pytest.mark.parametrize("where", ["flush_cache", "begin_weight_update", "pause_generation"])
def test_in_an_endpoint_it_is_a_bare_500(where: str) -> None:
    engine = Driver()
    kept = getattr(engine.core._tm, where)
    setattr(engine.core._tm, where, planted)
    reply = engine.call(where, {})
    assert (reply.status, reply.body, reply.value) == (500, "Internal Server Error", PLANTED)
    assert engine.died is None
    setattr(engine.core._tm, where, kept)
    updates(engine)


def test_under_the_locks_of_an_endpoint_it_gives_them_back() -> None:
    for paused in (False, True):
        engine = Driver()
        if paused:
            engine.call("pause_generation", {"mode": "retract"})
        engine.core._tm._communicators["flush_cache"] = planted  # type: ignore[assignment]  # the plant
        engine.core._tm._communicators["begin_weight_update"] = planted  # type: ignore[assignment]  # the plant
        for op in ("begin_weight_update", "flush_cache"):
            assert engine.call(op, {}).status == 500
        engine.core._tm._communicators.clear()
        if paused:
            assert engine.call("continue_generation", {}).status == 200
        updates(engine)


@pytest.mark.parametrize("where", ["_dispatch", "_collect", "_next", "_last"])
@pytest.mark.parametrize("stream", [False, True])
def test_in_a_generation_it_is_a_500_or_a_broken_stream_and_holds_no_lock(where: str, stream: bool) -> None:
    """entrypoints/http_server.py:933@0.5.23: only a ValueError becomes an event, and the headers are out."""
    engine = Driver()
    generator = engine.core._controls._generator
    kept = getattr(generator, where)
    setattr(generator, where, planted)
    reply = engine.call("generate", generate_body(stream=stream), timeout=2)
    if stream and where == "_last":
        assert reply.status == 200, "a stream does not wait for a last answer"
    elif stream:
        assert reply.ending == "dropped"
        assert [type(e).__name__ for e in engine.effects if isinstance(e, Opened | Broken)] == ["Opened", "Broken"]
    else:
        assert reply.status == 500
    setattr(generator, where, kept)
    assert engine.died is None
    updates(engine)


def test_in_the_receive_loop_it_ends_the_process() -> None:
    engine = Driver()
    engine.core._tm.receive = planted  # type: ignore[method-assign]  # the plant
    fatal = engine.start("flush_cache")
    assert engine.call("model_info", method="GET").ending == "dropped", "that process answers nothing from then on"
    assert engine.result(fatal).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == PLANTED


def test_before_a_handler_it_is_a_bare_500(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Driver()
    monkeypatch.setattr("fakes.engine.core.parse", planted)
    reply = engine.call("begin_weight_update", {})
    assert (reply.status, reply.body) == (500, "Internal Server Error")
    monkeypatch.undo()
    updates(engine)


def test_what_ends_the_program_passes_through() -> None:
    engine = Driver()

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    engine.core._tm.flush_cache = stop  # type: ignore[method-assign,assignment]  # the plant
    with pytest.raises(KeyboardInterrupt):
        engine.call("flush_cache")
    engine.core._controls._generator._dispatch = stop  # type: ignore[method-assign,assignment]  # the plant
    with pytest.raises(KeyboardInterrupt):
        engine.call("health", method="GET")
