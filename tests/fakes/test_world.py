"""Calls, deadlines and deaths in virtual time, against a scripted core."""

from __future__ import annotations

import pytest

from fakes.engine.protocol import Call, Cancel, EngineConfig
from fakes.trace import Fact, TraceWriter
from fakes.world import DeadlockError, World, WorldBroken
from tests.fakes.scripted import ScriptedCore


@pytest.fixture
def world():
    with World(make_core=ScriptedCore, trace=TraceWriter()) as w:
        yield w


@pytest.fixture
def engine(world):
    return world.add_engine("e0", EngineConfig(), {}, {})


def facts(world, name):
    return [r for r in world.trace.records if isinstance(r, Fact) and r.name == name]


def test_a_call_is_answered_with_what_the_core_said(world, engine):
    outcome = world.call(engine, "POST", "/echo", {"a": 1}, timeout_s=5)
    assert (outcome.ending, outcome.status, outcome.body) == ("reply", 200, {"path": "/echo", "body": {"a": 1}})


def test_everything_of_a_request_reaches_the_core(world, engine):
    world.call(engine, "PUT", "/echo", b"raw", {"timeout": "3"}, "secret", "engine", timeout_s=5)
    [call] = [event for _, event in engine.core.events if isinstance(event, Call)]
    assert (call.method, call.path, call.body, call.query) == ("PUT", "/echo", b"raw", {"timeout": "3"})
    assert (call.bearer, call.via) == ("secret", "engine")


def test_time_jumps_to_the_answer(world, engine):
    outcome = world.call(engine, "POST", "/in", {"s": 3.0}, timeout_s=5)
    assert outcome.ok
    assert outcome.elapsed_s == pytest.approx(3.0 + world.transit_s)
    assert world.now == pytest.approx(outcome.elapsed_s)


def test_a_client_that_times_out_closes_its_connection(world, engine):
    outcome = world.call(engine, "POST", "/hang", timeout_s=7)
    assert (outcome.ending, outcome.elapsed_s) == ("timeout", 7.0)
    assert [event for _, event in engine.core.events if isinstance(event, Cancel)] == [Cancel(1)]


def test_a_background_call_times_out_though_nobody_waits_for_it(world, engine):
    ticket = world.submit(engine, "POST", "/hang", timeout_s=7)
    world.sleep(10)
    assert ticket.outcome is not None
    assert ticket.outcome.ending == "timeout"
    assert engine.core.cancelled == [ticket.id]


def test_an_answer_at_the_deadline_counts(world, engine):
    assert world.call(engine, "POST", "/in", {"s": 3.0}, timeout_s=3.0 + world.transit_s).ending == "reply"


def test_waiting_without_patience_leaves_the_call_open(world, engine):
    ticket = world.submit(engine, "POST", "/in", {"s": 3.0})
    assert world.wait(ticket, 1.0).ending == "timeout"
    assert engine.core.cancelled == []
    assert world.wait(ticket, 5.0).body == {"after": 3.0}


def test_a_waiter_that_loses_its_patience_closes_the_connection(world, engine):
    ticket = world.submit(engine, "POST", "/hang")
    assert world.run_until(ticket, 3.0).ending == "timeout"
    assert (world.now, engine.core.cancelled) == (3.0, [ticket.id])


def test_an_answer_after_the_caller_left_is_nobodys(world, engine):
    outcome = world.call(engine, "POST", "/in", {"s": 3.0}, timeout_s=1)
    world.sleep(5)
    assert outcome.ending == "timeout"


def test_the_dead_drop_what_is_open_and_refuse_what_comes_later(world, engine):
    open_call = world.submit(engine, "POST", "/hang")
    fatal = world.call(engine, "POST", "/die", {"after": 5.0})
    assert (fatal.ending, fatal.elapsed_s) == ("dropped", pytest.approx(5.0 + world.transit_s))
    assert open_call.outcome is not None
    assert open_call.outcome.ending == "dropped"
    assert not engine.alive
    assert world.call(engine, "POST", "/echo").ending == "refused"


def test_a_death_is_a_fact_with_its_cause(world, engine):
    world.call(engine, "POST", "/die", {"after": 5.0})
    [raised], [died] = facts(world, "raise"), facts(world, "die")
    assert raised.data == died.data == {"rank": 0, "type": "AssertionError", "message": "boom"}
    assert (died.engine, died.source, died.t - raised.t) == ("e0", "core", pytest.approx(5.0))


def test_a_kill_is_a_death_without_delay(world, engine):
    ticket = world.submit(engine, "POST", "/hang")
    world.sleep(1)
    engine.kill()
    assert ticket.outcome is not None
    assert (ticket.outcome.ending, world.now) == ("dropped", 1.0)


def test_the_next_incarnation_is_another_engine(world, engine):
    world.call(engine, "POST", "/die", {"after": 0.1})
    second = world.add_engine("e0", EngineConfig(), {}, {})
    assert (engine.incarnation, second.incarnation) == (0, 1)
    assert world.call("e0", "POST", "/echo").ok
    assert world.call(engine, "POST", "/echo").ending == "refused"


def test_an_engine_that_is_replaced_alive_is_killed(world, engine):
    world.add_engine("e0", EngineConfig(), {}, {})
    assert not engine.alive


def test_a_stream_gives_its_chunks_and_then_ends(world, engine):
    ticket = world.submit(engine, "POST", "/stream", {"n": 3, "every": 1.0})
    world.sleep(2.5)
    assert ticket.chunks == [{"i": 0}, {"i": 1}]
    assert world.run_until(ticket).body == [{"i": 0}, {"i": 1}, {"i": 2}]


def test_a_stream_that_breaks_off_is_dropped_by_an_engine_that_lives(world, engine):
    ticket = world.submit(engine, "POST", "/breaks")
    outcome = world.run_until(ticket)
    assert (outcome.ending, ticket.chunks) == ("dropped", [{"i": 0}])
    assert outcome.elapsed_s == pytest.approx(2.0, abs=0.01)
    assert "incomplete chunked read" in outcome.error
    assert engine.alive


def test_who_watches_a_call_hears_its_end_when_it_happens(world, engine):
    heard = []
    ticket = world.submit(engine, "POST", "/in", {"s": 3.0})
    ticket.on_done(lambda t: heard.append((world.now, t.outcome.body)))
    world.sleep(10)
    ticket.on_done(lambda t: heard.append("late"))
    assert heard == [(pytest.approx(3.0 + world.transit_s), {"after": 3.0}), "late"]


def test_calls_that_cost_nothing_still_bring_a_deadline_nearer(world, engine):
    polls = 0
    while world.now < 1.0:
        world.call(engine, "POST", "/echo", timeout_s=1)
        polls += 1
    assert polls == pytest.approx(1.0 / world.transit_s, abs=1)


def test_a_client_that_calls_for_ever_is_stopped():
    with World(make_core=ScriptedCore, max_calls=10) as world:
        engine = world.add_engine("e0", EngineConfig(), {}, {})
        for _ in range(10):
            world.call(engine, "POST", "/echo")
        with pytest.raises(WorldBroken, match="more than 10 calls"):
            world.call(engine, "POST", "/echo")


def test_a_join_without_peers_blocks_until_torch_gives_up(world, engine):
    outcome = world.call(engine, "POST", "/join")
    assert (outcome.status, outcome.body) == (400, {"error": "DistNetworkError"})
    assert outcome.elapsed_s == pytest.approx(1800.0 + world.transit_s)


def test_what_a_scheduler_waits_for_is_known(world, engine):
    world.submit(engine, "POST", "/join")
    world.sleep(1)
    assert engine.shell.blocked == {0: "Join(g)"}
    world.sleep(1800)
    assert engine.shell.blocked == {}


def test_a_broken_payload_is_an_exception_of_the_engine_not_of_the_world(world, engine):
    outcome = world.call(engine, "POST", "/open")
    assert (outcome.ending, outcome.status) == ("reply", 400)


def test_a_call_that_nothing_will_ever_end_is_a_deadlock(world, engine):
    with pytest.raises(DeadlockError, match="main waits for e0 POST /hang"):
        world.call(engine, "POST", "/hang")
    assert world.deadlock is not None
    [fact] = facts(world, "deadlock")
    assert fact.source == "harness"
    assert fact.data["waiting"] == [{"who": "main", "what": "e0 POST /hang"}]


def test_the_timeout_of_a_call_that_has_ended_is_no_deadline(world, engine):
    world.call(engine, "POST", "/echo", timeout_s=600)
    with pytest.raises(DeadlockError):
        world.call(engine, "POST", "/hang")
    assert world.now < 1.0


def test_an_engine_that_ticks_for_ever_does_not_hide_a_deadlock(world, engine):
    world.submit(engine, "POST", "/poll")
    with pytest.raises(DeadlockError, match="main waits for e0 POST /hang"):
        world.call(engine, "POST", "/hang")


def test_a_world_goes_on_after_a_deadlock(world, engine):
    with pytest.raises(DeadlockError):
        world.call(engine, "POST", "/hang")
    assert world.call(engine, "POST", "/echo").ok


def test_a_core_that_does_not_let_time_pass_is_a_harness_error(world, engine):
    with pytest.raises(WorldBroken, match="asks for a tick"):
        world.call(engine, "POST", "/tick_for_ever")


def test_an_exception_of_the_core_is_a_harness_error_and_keeps_its_cause(world, engine):
    with pytest.raises(WorldBroken, match="KeyError") as caught:
        world.call(engine, "POST", "/in", {})
    assert isinstance(caught.value.__cause__, KeyError)
